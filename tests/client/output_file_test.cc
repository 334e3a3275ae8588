#include "client/output_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = (folder_ / "out.jsonl").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  static OutputState Job(const std::string& uid) {
    OutputState state;
    state.request_id = "request-" + uid;
    state.job_name = "jobs/" + uid;
    state.job_uid = uid;
    return state;
  }

  // Opens, begins with the job; `after` is where it goes on.
  std::unique_ptr<OutputFile> Begin(const OutputState& job, int64_t* after) {
    auto file = OutputFile::Open(path_);
    EXPECT_OK(file);
    const auto begun = (*file)->Begin(job);
    EXPECT_OK(begun);
    *after = *begun;
    return *std::move(file);
  }

  // A process that wrote three results and made them certain, wrote a fourth and was killed in the
  // middle of the fifth.
  void LeaveTornPart(const OutputState& job) {
    int64_t after = 0;
    auto file = Begin(job, &after);
    ASSERT_OK(file->Append("1\n2\n3\n", 3));
    ASSERT_OK(file->Checkpoint());
    file.reset();
    std::ofstream(path_ + ".part", std::ios::app) << "4\n5 to";
  }

  std::string Read(const std::string& path) const {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(OutputFileTest, AppearsWholeAtTheEnd) {
  int64_t after = -1;
  auto file = Begin(Job("a"), &after);
  EXPECT_EQ(after, 0);
  ASSERT_OK(file->Append("1\n", 1));
  ASSERT_OK(file->Append("2\n3\n", 3));
  EXPECT_FALSE(fs::exists(path_));
  ASSERT_OK(file->Finish());
  EXPECT_EQ(Read(path_), "1\n2\n3\n");
  EXPECT_FALSE(fs::exists(path_ + ".part"));
  EXPECT_FALSE(fs::exists(path_ + ".part.state"));
}

TEST_F(OutputFileTest, CutsATornTailAndGoesOnAfterTheLastCertainResult) {
  LeaveTornPart(Job("a"));
  int64_t after = 0;
  auto file = Begin(Job("a"), &after);
  EXPECT_EQ(after, 3);
  ASSERT_OK(file->Append("4\n5\n", 5));
  ASSERT_OK(file->Finish());
  EXPECT_EQ(Read(path_), "1\n2\n3\n4\n5\n");
}

TEST_F(OutputFileTest, TellsWhatAnEarlierRunWasDoing) {
  LeaveTornPart(Job("a"));
  ASSERT_OK_AND_ASSIGN(const auto file, OutputFile::Open(path_));
  ASSERT_TRUE(file->earlier().has_value());
  EXPECT_EQ(file->earlier()->request_id, "request-a");
  EXPECT_EQ(file->earlier()->job_name, "jobs/a");
  EXPECT_EQ(file->earlier()->last_seq, 3);
}

TEST_F(OutputFileTest, StartsOverForAnotherJob) {
  LeaveTornPart(Job("a"));
  int64_t after = -1;
  auto file = Begin(Job("b"), &after);
  EXPECT_EQ(after, 0);
  ASSERT_OK(file->Append("b1\n", 1));
  ASSERT_OK(file->Finish());
  EXPECT_EQ(Read(path_), "b1\n");
}

TEST_F(OutputFileTest, StartsOverWhenLinesWouldLookDifferent) {
  LeaveTornPart(Job("a"));
  OutputState job = Job("a");
  job.line_options = "token_ids";
  int64_t after = -1;
  Begin(job, &after);
  EXPECT_EQ(after, 0);
}

TEST_F(OutputFileTest, StartsOverWhenThePartLostBytes) {
  LeaveTornPart(Job("a"));
  fs::resize_file(path_ + ".part", 4);
  int64_t after = -1;
  Begin(Job("a"), &after);
  EXPECT_EQ(after, 0);
}

TEST_F(OutputFileTest, StartsOverWhenTheStateIsUnreadable) {
  for (const char* broken :
       {"", "{", "[]", "{\"version\":1}", "{\"version\":2,\"bytes\":1}",
        R"({"version":1,"request_id":"","job":"","job_uid":"a","line_options":"",
            "first_after_seq":0,"last_seq":3,"bytes":-6})"}) {
    LeaveTornPart(Job("a"));
    std::ofstream(path_ + ".part.state", std::ios::trunc) << broken;
    int64_t after = -1;
    Begin(Job("a"), &after);
    EXPECT_EQ(after, 0) << broken;
  }
}

TEST_F(OutputFileTest, IgnoresAStateWhosePartBecameTheOutput) {
  LeaveTornPart(Job("a"));
  fs::rename(path_ + ".part", path_);
  int64_t after = -1;
  auto file = Begin(Job("a"), &after);
  EXPECT_EQ(after, 0);
}

TEST_F(OutputFileTest, KeepsTheOldOutputUntilTheNewOneIsWhole) {
  std::ofstream(path_) << "old\n";
  int64_t after = 0;
  auto file = Begin(Job("a"), &after);
  ASSERT_OK(file->Append("new\n", 1));
  EXPECT_EQ(Read(path_), "old\n");
  ASSERT_OK(file->Finish());
  EXPECT_EQ(Read(path_), "new\n");
}

TEST_F(OutputFileTest, RefusesASecondWriter) {
  int64_t after = 0;
  auto file = Begin(Job("a"), &after);
  EXPECT_THAT(OutputFile::Open(path_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "another nightshift is writing it"));
  EXPECT_TRUE(fs::exists(path_ + ".part"));
}

TEST_F(OutputFileTest, LeavesNothingBehindWhenNothingWasWritten) {
  int64_t after = 0;
  Begin(Job("a"), &after);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(OutputFileTest, NamesAFolderThatDoesNotExist) {
  EXPECT_THAT(OutputFile::Open((folder_ / "none" / "out.jsonl").string()),
              StatusIs(absl::StatusCode::kNotFound, "none/out.jsonl.part"));
}

TEST_F(OutputFileTest, RefusesWhatIsNoFile) {
  EXPECT_THAT(OutputFile::Open(folder_.string()),
              StatusIs(absl::StatusCode::kInvalidArgument, "is not a regular file"));
}

}  // namespace
}  // namespace nightshift
