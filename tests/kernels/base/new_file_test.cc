#include "kernels/base/new_file.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

class NewFileTest : public ::testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return folder_.path() + "/" + name; }
  static std::string Read(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  int64_t NumFiles() const {
    return std::distance(std::filesystem::directory_iterator(folder_.path()), {});
  }

  TemporaryFolder folder_;
};

TEST_F(NewFileTest, MakesAFileOfTheBytesAndNothingBesideIt) {
  const std::string bytes = std::string(100'000, 'x') + std::string("\0y", 2);
  ASSERT_OK(WriteNewFile(PathOf("a"), bytes));
  EXPECT_EQ(Read(PathOf("a")), bytes);
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(NewFileTest, NeverWritesOverWhatIsThere) {
  EXPECT_OK(CheckNoFile(PathOf("a")));
  std::ofstream(PathOf("a")) << "mine";
  EXPECT_THAT(CheckNoFile(PathOf("a")), StatusIs(absl::StatusCode::kAlreadyExists, "it exists"));
  EXPECT_THAT(WriteNewFile(PathOf("a"), "other"),
              StatusIs(absl::StatusCode::kAlreadyExists, PathOf("a")));
  EXPECT_EQ(Read(PathOf("a")), "mine");
  // A link that leads nowhere is there too.
  std::filesystem::create_symlink(PathOf("nowhere"), PathOf("link"));
  EXPECT_THAT(WriteNewFile(PathOf("link"), "other"),
              StatusIs(absl::StatusCode::kAlreadyExists, "link"));
  EXPECT_EQ(NumFiles(), 2);
}

TEST_F(NewFileTest, ReplacesWhatIsThereWhereThatIsAsked) {
  ASSERT_OK(ReplaceFile(PathOf("a"), "first"));
  ASSERT_OK(ReplaceFile(PathOf("a"), "second"));
  EXPECT_EQ(Read(PathOf("a")), "second");
  EXPECT_EQ(NumFiles(), 1);
}

TEST_F(NewFileTest, NamesAFolderThatIsNotThere) {
  EXPECT_THAT(WriteNewFile(PathOf("none/a"), "x"),
              StatusIs(absl::StatusCode::kNotFound, "none/a.part"));
}

TEST_F(NewFileTest, TellsBeforeLongWorkWhetherItsResultCanBeWritten) {
  std::ofstream(PathOf("a")) << "mine";
  EXPECT_OK(CheckWritable(PathOf("a")));
  EXPECT_EQ(Read(PathOf("a")), "mine");
  EXPECT_OK(CheckWritable(PathOf("b")));
  EXPECT_EQ(NumFiles(), 1);
  EXPECT_THAT(CheckWritable(PathOf("none/a")),
              StatusIs(absl::StatusCode::kNotFound, "none/a.part"));
  for (const std::string& folder : {PathOf(""), PathOf("."), std::string()}) {
    EXPECT_THAT(CheckWritable(folder), StatusIs(absl::StatusCode::kInvalidArgument, "no file"));
  }
}

TEST_F(NewFileTest, LeavesNothingBehindWhenTheDiskIsFull) {
  // What is written to the link goes to a device without space.
  std::filesystem::create_symlink("/dev/full", PathOf("a.part"));
  EXPECT_THAT(WriteNewFile(PathOf("a"), "x"),
              StatusIs(absl::StatusCode::kResourceExhausted, "a.part"));
  EXPECT_EQ(NumFiles(), 0);
}

}  // namespace
}  // namespace nightshift
