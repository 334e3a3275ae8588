// The preparer, and the ids that it keeps.
#include "engine/text/prompt_encoder.h"
#include "server/scheduling/request_preparer.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/model/pack.h"
#include "kernels/base/checksum.h"
#include "server/input/rpc_error.h"
#include "server/scheduling/wakeup.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RequestPreparerTest : public ::testing::Test {
 protected:
  RequestPreparerTest() {
    auto pack = Pack::Open(TinyPack("llama"));
    CHECK(pack.ok());
    auto encoder = PromptEncoder::Create(**pack);
    CHECK(encoder.ok());
    auto text = std::make_shared<ModelText>();
    text->model = "llama";
    text->encoder = *std::move(encoder);
    text->context_tokens = 16;
    text->vocabulary = 100;
    text_ = std::move(text);
  }

  // A tokenizer with one token a byte.
  static ModelTextPtr TextOfBytes() {
    TokenizerSpec spec;
    for (int byte = 0; byte < 256; ++byte) {
      spec.tokens.emplace_back(1, static_cast<char>(byte));
    }
    auto encoder = PromptEncoder::Create(std::move(spec), "");
    CHECK(encoder.ok());
    auto text = std::make_shared<ModelText>();
    text->model = "bytes";
    text->encoder = *std::move(encoder);
    text->context_tokens = 100;
    text->vocabulary = 256;
    text->digest = 1;
    return text;
  }
  // A job whose input is these lines, as tasks.
  std::vector<RowTask> MakeTasks(const std::vector<std::string>& lines) {
    std::ofstream file(folder_.path() + "/input");
    JobRecord record;
    record.id = "job";
    record.uid = "uid";
    record.counts.total = 9;
    record.input_format = v1::INPUT_FORMAT_JSONL;
    record.input_file = "input";
    const JobContextPtr job = MakeJobContext(record, folder_.path(), ComputeType::kF32);
    std::vector<RowTask> tasks;
    int64_t offset = 0;
    for (const std::string& line : lines) {
      const int64_t index = static_cast<int64_t>(tasks.size());
      ClaimedRow row;
      row.job_id = "job";
      row.index = index;
      row.offset = offset;
      row.length = static_cast<int64_t>(line.size());
      row.line = index + 1;
      tasks.push_back({.job = job, .text = text_, .row = row});
      file << line << "\n";
      offset += row.length + 1;
    }
    return tasks;
  }
  PreparedRow PrepareLine(const std::string& line) {
    return PrepareRow(MakeTasks({line})[0], ParseLimits(), nullptr);
  }

  TemporaryFolder folder_;
  ModelTextPtr text_;
};

TEST_F(RequestPreparerTest, ALengthThatTheCallerAskedForHasToFit) {
  const PreparedRow fits = PrepareLine(R"({"prompt": [3, 4], "max_tokens": 14})");
  EXPECT_OK(fits.status);
  const PreparedRow asked = PrepareLine(R"({"prompt": [3, 4], "max_tokens": 15})");
  EXPECT_EQ(ErrorReason(asked.status), reason::kPromptTooLong);
  EXPECT_THAT(asked.status, StatusIs(absl::StatusCode::kInvalidArgument,
                                     "2 tokens and max_tokens is 15; the context of llama is 16"));
  EXPECT_OK(PrepareLine(R"({"prompt": [3, 4]})").status);  // the default length is clipped
}

TEST_F(RequestPreparerTest, ARowOfOtherBytesThanWereAcceptedIsAnError) {
  const std::string line = R"({"prompt": [3, 4], "max_tokens": 5})";
  RowTask task = MakeTasks({line})[0];
  task.row.crc = Crc32c(std::as_bytes(std::span(line)));
  EXPECT_OK(PrepareRow(task, ParseLimits(), nullptr).status);
  std::ofstream(folder_.path() + "/input", std::ios::in | std::ios::out)
      << R"({"prompt": [3, 5], "max_tokens": 5})";
  EXPECT_THAT(PrepareRow(task, ParseLimits(), nullptr).status,
              StatusIs(absl::StatusCode::kDataLoss, "checksum"));
}

TEST_F(RequestPreparerTest, MakesARequestOfARow) {
  const PreparedRow row = PrepareLine(R"({"id": "x", "prompt": [3, 4], "max_tokens": 5})");
  ASSERT_OK(row.status);
  EXPECT_THAT(row.request.prompt, ElementsAre(3, 4));
  EXPECT_EQ(row.request.sampling.max_output_tokens, 5);
  EXPECT_EQ(row.header.custom_id, "x");
  EXPECT_EQ(row.header.form, v1::REQUEST_FORM_PLAIN);
  EXPECT_EQ(row.header.line, 1);
}

TEST_F(RequestPreparerTest, APromptNeedsRoomForOneTokenOfOutput) {
  const auto line = [](int count) {
    std::string ids = "3";
    for (int i = 1; i < count; ++i) {
      ids += ", 3";
    }
    return absl::StrCat("{\"prompt\": [", ids, "]}");
  };
  EXPECT_OK(PrepareLine(line(15)).status);
  const absl::Status status = PrepareLine(line(16)).status;
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "16 tokens"));
  EXPECT_EQ(ErrorReason(status), reason::kPromptTooLong);
}

TEST_F(RequestPreparerTest, RefusesIdsOutsideTheVocabulary) {
  EXPECT_THAT(PrepareLine(R"({"prompt": [100]})").status,
              StatusIs(absl::StatusCode::kInvalidArgument, "token id 100"));
}

TEST_F(RequestPreparerTest, RefusesOptionsThatDoNotFitModelOrEachOther) {
  const auto expect = [&](const char* options, const char* message) {
    const PreparedRow row = PrepareLine(absl::StrCat("{\"prompt\": [3, 4], ", options, "}"));
    EXPECT_THAT(row.status, StatusIs(absl::StatusCode::kInvalidArgument, message)) << options;
  };
  expect(R"("logit_bias": {"5": 1, "100": 1})",
         "logit_bias: has token id 100; the vocabulary of llama has 100");
  expect(R"("bad_words": [[5, 200]])", "bad_words: has token id 200");
  expect(R"("bad_words": ["text"])", "bad_words[0] is text and needs a tokenizer");
  expect(R"("min_tokens": 5, "max_tokens": 4)", "min_tokens: is 5, above max_tokens, 4");
  expect(R"("n": 3)", "n: is 3, but at temperature 0");
  expect(R"("n": 3, "temperature": 1, "prompt_logprobs": 1, "max_tokens": 0)",
         "n: is 3 while max_tokens is 0");
  expect(R"("echo": true, "max_tokens": 0)", "max_tokens: is 0");
}

TEST_F(RequestPreparerTest, AsksForThePromptsLogprobsAndKeepsItsText) {
  const PreparedRow row =
      PrepareLine(R"({"prompt": [3, 4], "echo": true, "logprobs": 2, "max_tokens": 0})");
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.sampling.prompt_logprobs, 2);
  EXPECT_EQ(row.request.sampling.max_output_tokens, 0);
  EXPECT_TRUE(row.echoed_prompt.has_value());
  const PreparedRow plain = PrepareLine(R"({"prompt": [3], "n": 4, "temperature": 1})");
  ASSERT_OK(plain.status);
  EXPECT_EQ(plain.num_choices, 4);
  EXPECT_FALSE(plain.echoed_prompt.has_value());
  EXPECT_FALSE(plain.request.sampling.prompt_logprobs.has_value());
}

TEST_F(RequestPreparerTest, ScoresWhatChoicesAddToTheirPrompt) {
  PreparedRow row =
      PrepareLine(R"({"prompt": [3, 4], "choices": [[5], [6, 7], [5, 8]], "top_logprobs": 2,
                      "logprobs": true})");
  ASSERT_OK(row.status);
  EXPECT_THAT(row.request.prompt, ElementsAre(3, 4));
  EXPECT_EQ(row.request.sampling.scored_from, 2);
  EXPECT_EQ(row.request.sampling.prompt_logprobs, 2);
  EXPECT_EQ(row.request.sampling.max_output_tokens, 0);
  EXPECT_EQ(row.num_choices, 3);
  ASSERT_EQ(row.scored.size(), 3U);
  EXPECT_THAT(row.scored[1].tokens, ElementsAre(6, 7));
  EXPECT_EQ(ErrorReason(PrepareLine(R"({"prompt": [3, 4], "choices": ["a"]})").status),
            reason::kFieldInvalid);  // no tokenizer
  EXPECT_THAT(PrepareLine(R"({"prompt": [3, 4], "choices": [[5], [100]]})").status,
              StatusIs(absl::StatusCode::kInvalidArgument, "token id 100"));
  EXPECT_THAT(PrepareLine(R"({"prompt": [3, 4, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4, 3, 4],
                              "choices": [[5, 5], [5, 5, 5]]})")
                  .status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "choices[1] have 17 tokens; the context of llama is 16"));
  text_ = TextOfBytes();
  row = PrepareLine(R"({"prompt": "Is it? ", "choices": ["yes", [33]]})");
  ASSERT_OK(row.status);
  EXPECT_EQ(row.request.prompt.size(), 7U);
  EXPECT_THAT(row.scored[0].tokens, ElementsAre('y', 'e', 's'));
  EXPECT_EQ(row.scored[1].text, "!");
}

// What the end of the prompt and the beginning of a choice melt into is scored.
TEST(ScoredChoicesTest, AreSplitWhereTheyBeginToDiffer) {
  const auto split = SplitChoices({1, 2, 3}, {{1, 2, 30}, {1, 2, 3, 4}, {1, 2, 31, 5}});
  ASSERT_OK(split);
  EXPECT_THAT(split->prompt, ElementsAre(1, 2));
  EXPECT_THAT(split->rests, ElementsAre(ElementsAre(30), ElementsAre(3, 4), ElementsAre(31, 5)));
  EXPECT_THAT(SplitChoices({1}, {{2, 3}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "longer prompt"));
  EXPECT_THAT(SplitChoices({1, 2}, {{1, 2, 3}, {1, 2}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "adds no token"));
}

TEST_F(RequestPreparerTest, AScoredPromptMayFillTheContext) {
  const std::string ids = "3,3,3,3,3,3,3,3,3,3,3,3,3,3,3,3";
  EXPECT_OK(PrepareLine("{\"prompt\":[" + ids + R"(],"prompt_logprobs":0,"max_tokens":0})").status);
  EXPECT_EQ(
      ErrorReason(
          PrepareLine("{\"prompt\":[" + ids + R"(,3],"prompt_logprobs":0,"max_tokens":0})").status),
      reason::kPromptTooLong);
}

TEST_F(RequestPreparerTest, ARowThatCannotBeParsedKeepsItsIdWhereItHasOne) {
  const PreparedRow row = PrepareLine(R"({"id": "x", "prompt": 7})");
  EXPECT_THAT(row.status, StatusIs(absl::StatusCode::kInvalidArgument, "prompt"));
  EXPECT_EQ(row.header.custom_id, "x");
}

TEST_F(RequestPreparerTest, RefusesARowBeyondTheLineLimitWithoutReadingIt) {
  RowTask task = MakeTasks({R"({"prompt": [3]})"})[0];
  ParseLimits limits;
  limits.max_line_bytes = 3;
  task.row.offset = int64_t{1} << 50;
  EXPECT_THAT(PrepareRow(task, limits, nullptr).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "limit is 3"));
}

TEST_F(RequestPreparerTest, InputThatEndsTooEarlyIsDataLoss) {
  RowTask task = MakeTasks({R"({"prompt": [3]})"})[0];
  task.row.length += 100;
  EXPECT_THAT(PrepareRow(task, ParseLimits(), nullptr).status,
              StatusIs(absl::StatusCode::kDataLoss, "ends before"));
}

TEST_F(RequestPreparerTest, ChecksRowsBesideThoseThatRunAndKeepsTheirOrder) {
  RequestPreparer preparer({.num_threads = 3, .max_ready_tokens = 1, .limits = {}, .on_ready = {}});
  std::vector<std::string> lines(40, R"({"prompt": [3, 4, 5]})");
  lines[7] = R"({"id": "bad", "prompt": [100]})";
  preparer.Push(MakeTasks({R"({"prompt": [3]})", R"({"prompt": [3]})"}));  // nobody takes them
  const std::vector<CheckedRow> rows = preparer.Check(MakeTasks(lines));
  ASSERT_EQ(rows.size(), 40U);
  EXPECT_EQ(rows[6].prompt_tokens, 3);
  EXPECT_OK(rows[6].status);
  EXPECT_THAT(rows[7].status, StatusIs(absl::StatusCode::kInvalidArgument, "token id 100"));
  EXPECT_EQ(rows[7].header.custom_id, "bad");
  EXPECT_EQ(rows[39].header.index, 39);
  EXPECT_EQ(preparer.num_rows(), 2) << "those that were pushed";
  preparer.StopChecks();
  EXPECT_THAT(preparer.Check(MakeTasks(lines)), IsEmpty());
}

TEST_F(RequestPreparerTest, TokenizesAPromptOnce) {
  text_ = TextOfBytes();
  KeptPrompts kept({.directory = folder_.path() + "/prompts", .max_bytes = 1 << 20});
  RowTask task = MakeTasks({R"({"prompt": "some text"})"})[0];
  const PreparedRow first = PrepareRow(task, ParseLimits(), &kept);
  ASSERT_OK(first.status);
  EXPECT_EQ(first.request.prompt.size(), 9U);
  const PromptKey key = {.job_uid = "uid", .job_rows = 9, .index = 0, .text_digest = 1};
  ASSERT_EQ(kept.Find(key), first.request.prompt);
  kept.Keep(key, std::vector<int32_t>{20, 21}, 1);  // stands for them, so that it shows
  EXPECT_THAT(PrepareRow(task, ParseLimits(), &kept).request.prompt, ElementsAre(20, 21));
}

TEST_F(RequestPreparerTest, ThePoolPreparesEveryRowAndSaysSo) {
  Wakeup wakeup;
  RequestPreparer preparer(
      {.num_threads = 3, .limits = {}, .on_ready = [&wakeup] { wakeup.Notify(); }});
  preparer.Push(MakeTasks(std::vector<std::string>(50, R"({"prompt": [3]})")));
  size_t taken = 0;
  while (taken < 50) {
    const int64_t ticket = wakeup.ticket();
    const size_t count = preparer.TakeReady().size();
    taken += count;
    if (count == 0) {
      wakeup.WaitPast(ticket);
    }
  }
  EXPECT_EQ(preparer.num_rows(), 0);
}

TEST_F(RequestPreparerTest, RestsWhileEnoughTokensAreReady) {
  Wakeup wakeup;
  RequestPreparer preparer(
      {.num_threads = 1, .max_ready_tokens = 4, .limits = {}, .on_ready = [&wakeup] {
         wakeup.Notify();
       }});
  const int64_t ticket = wakeup.ticket();
  preparer.Push(MakeTasks(std::vector<std::string>(9, R"({"prompt": [3, 3]})")));
  wakeup.WaitPast(ticket);
  // However long it had, it prepared no more than two rows.
  const std::vector<RowTask> queued = preparer.TakeQueued();
  preparer.WaitUntilIdle();
  EXPECT_GE(queued.size(), 7U);
  EXPECT_EQ(preparer.TakeReady().size(), 9U - queued.size());
}

TEST_F(RequestPreparerTest, RowsThatNobodyBeganCanBeTakenBack) {
  RequestPreparer preparer({.num_threads = 0, .limits = {}, .on_ready = {}});
  preparer.Push(MakeTasks({R"({"prompt": [3]})"}));
  EXPECT_EQ(preparer.num_rows(), 1);
  EXPECT_EQ(preparer.TakeQueued()[0].row.index, 0);
  EXPECT_EQ(preparer.num_rows(), 0);
  EXPECT_THAT(preparer.TakeQueued(), IsEmpty());
}

class KeptPromptsTest : public ::testing::Test {
 protected:
  PromptKey Key(int64_t index, const std::string& uid = "uid") const {
    return {.job_uid = uid, .job_rows = 100, .index = index, .text_digest = 7};
  }
  std::string directory() const { return folder_.path() + "/prompts"; }
  KeptPrompts Make(int64_t max_bytes = 1 << 20) const {
    return KeptPrompts({.directory = directory(), .max_bytes = max_bytes});
  }

  TemporaryFolder folder_;
  const std::vector<int32_t> ids_ = {5, 6, 7};
};

TEST_F(KeptPromptsTest, FindsWhatWasKeptAlsoAfterARestart) {
  {
    KeptPrompts kept = Make();
    kept.Keep(Key(3), ids_, 1);
    kept.Keep(Key(99), {}, 1);
    kept.Keep(Key(0, "other"), std::vector<int32_t>{1}, 1);
    EXPECT_EQ(kept.Find(Key(3)), ids_);
    EXPECT_EQ(kept.Find(Key(4)), std::nullopt);
    EXPECT_EQ(kept.Find(Key(3, "nobody")), std::nullopt);
  }
  KeptPrompts kept = Make();
  EXPECT_EQ(kept.Find(Key(3)), ids_);
  EXPECT_EQ(kept.Find(Key(99)), std::vector<int32_t>());
  EXPECT_EQ(kept.num_bytes(), 2 * 6400 + 4 * 4);
  kept.Keep(Key(4), std::vector<int32_t>{8}, 1);
  EXPECT_EQ(kept.Find(Key(4)), std::vector<int32_t>{8});
  EXPECT_EQ(kept.Find(Key(3)), ids_) << "goes on behind what is there";
}

TEST_F(KeptPromptsTest, TellsShapesOfRowsAlsoWhereTheIdsHadNoRoom) {
  const std::vector<int32_t> ids(140, 5);
  const PromptShape shape = MakePromptShape(ids, 30);
  EXPECT_EQ(shape.prompt_tokens, 140);
  EXPECT_NE(shape.pages[1], 0U);
  EXPECT_EQ(shape.pages[2], 0U) << "it has two pages";
  {
    KeptPrompts kept = Make(6400 + 600);
    kept.Keep(Key(2), ids, 30);
    kept.Keep(Key(4), ids, 30);
    kept.KeepShape(Key(5), {.prompt_tokens = 9, .max_output_tokens = 1});
    EXPECT_EQ(kept.Find(Key(4)), std::nullopt);
  }
  KeptPrompts kept = Make();
  const auto shapes = kept.FindShapes(Key(2), 5);
  ASSERT_EQ(shapes.size(), 5U);
  EXPECT_EQ(shapes[0], shape);
  EXPECT_EQ(shapes[1], std::nullopt);
  EXPECT_EQ(shapes[2], shape);
  EXPECT_EQ(shapes[3]->prompt_tokens, 9);
  EXPECT_EQ(shapes[4], std::nullopt);
  PromptKey other = Key(2);
  other.text_digest = 8;
  EXPECT_EQ(kept.FindShapes(other, 1)[0], std::nullopt);
  EXPECT_EQ(kept.FindShapes(Key(2, "nobody"), 1)[0], std::nullopt);
}

TEST_F(KeptPromptsTest, IdsOfAnotherPackAreNotFound) {
  KeptPrompts kept = Make();
  kept.Keep(Key(3), ids_, 1);
  PromptKey key = Key(3);
  key.text_digest = 8;
  EXPECT_EQ(kept.Find(key), std::nullopt);
}

// Whatever happens to the file, ids come back as they were or not at all.
TEST_F(KeptPromptsTest, DamagedIdsAreNeverFound) {
  for (const int64_t index : {0, 1}) {
    KeptPrompts kept = Make();
    kept.Keep(Key(index), ids_, 1);
  }
  const std::string path = directory() + "/uid";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (int64_t bit = 0; bit < 8 * size; ++bit) {
    if (bit >= 8 * 128 && bit < 8 * 6400) {
      bit = 8 * 6400;  // entries of rows that are not kept
    }
    const auto flip = [&] {
      file.seekg(bit / 8);
      const int byte = file.get();
      file.seekp(bit / 8);
      file.put(static_cast<char>(byte ^ (1 << bit % 8)));
      file.flush();
    };
    flip();
    KeptPrompts kept = Make();
    int found = 0;
    for (const int64_t index : {0, 1}) {
      const auto ids = kept.Find(Key(index));
      found += ids.has_value() ? 1 : 0;
      EXPECT_TRUE(!ids.has_value() || *ids == ids_) << "bit " << bit;
    }
    EXPECT_EQ(found, 1) << "bit " << bit;
    flip();
  }
  for (int64_t bytes = size - 1; bytes >= 0; bytes -= 7) {
    std::filesystem::resize_file(path, static_cast<uintmax_t>(bytes));
    KeptPrompts kept = Make();
    EXPECT_EQ(kept.Find(Key(1)), std::nullopt) << bytes;
    kept.Keep(Key(2), std::vector<int32_t>{9}, 1);
    EXPECT_EQ(kept.Find(Key(2)), std::vector<int32_t>{9}) << bytes;
  }
}

TEST_F(KeptPromptsTest, StaysWithinItsBoundAndHasRoomAgainWhenJobsEnd) {
  KeptPrompts kept = Make(6800);
  kept.Keep(Key(0), std::vector<int32_t>(90, 1), 1);
  kept.Keep(Key(1), std::vector<int32_t>(20, 2), 1);
  EXPECT_TRUE(kept.Find(Key(0)).has_value());
  EXPECT_EQ(kept.Find(Key(1)), std::nullopt);
  EXPECT_EQ(kept.num_bytes(), 6400 + 360);
  kept.Retain({"later"});
  EXPECT_EQ(kept.num_bytes(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory()));
  kept.Keep(Key(1, "later"), std::vector<int32_t>(20, 2), 1);
  kept.Retain({"later"});
  EXPECT_TRUE(kept.Find(Key(1, "later")).has_value());
}

TEST_F(KeptPromptsTest, KeepsNothingWithoutABudgetOrRoomOnTheDisk) {
  KeptPrompts none = Make(0);
  none.Keep(Key(0), ids_, 1);
  EXPECT_EQ(none.Find(Key(0)), std::nullopt);
  KeptPrompts reserved({.directory = directory(),
                        .max_bytes = 1 << 20,
                        .disk_reserve_bytes = int64_t{1} << 60});
  reserved.Keep(Key(0), ids_, 1);
  EXPECT_EQ(reserved.Find(Key(0)), std::nullopt);
}

TEST_F(KeptPromptsTest, RemovesFilesOfJobsThatAreGoneAtTheStart) {
  Make().Keep(Key(0, "gone"), ids_, 1);
  Make().Keep(Key(0, "open"), ids_, 1);
  KeptPrompts kept = Make();
  kept.Retain({"open"});
  EXPECT_FALSE(std::filesystem::exists(directory() + "/gone"));
  EXPECT_EQ(kept.Find(Key(0, "open")), ids_);
}

}  // namespace
}  // namespace nightshift
