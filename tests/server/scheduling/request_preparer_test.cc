#include "server/scheduling/request_preparer.h"

#include <fstream>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/model/pack.h"
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

  // A job whose input is these lines, as tasks.
  std::vector<RowTask> MakeTasks(const std::vector<std::string>& lines) {
    std::ofstream file(folder_.path() + "/input");
    JobRecord record;
    record.id = "job";
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
    return PrepareRow(MakeTasks({line})[0], ParseLimits());
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
  EXPECT_THAT(PrepareRow(task, limits).status,
              StatusIs(absl::StatusCode::kInvalidArgument, "limit is 3"));
}

TEST_F(RequestPreparerTest, InputThatEndsTooEarlyIsDataLoss) {
  RowTask task = MakeTasks({R"({"prompt": [3]})"})[0];
  task.row.length += 100;
  EXPECT_THAT(PrepareRow(task, ParseLimits()).status,
              StatusIs(absl::StatusCode::kDataLoss, "ends before"));
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

}  // namespace
}  // namespace nightshift
