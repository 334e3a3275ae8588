#include "engine/io/disk_file.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/file_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

TEST(DiskFileTest, SaysWhatCannotBeOpened) {
  TemporaryFolder folder;
  EXPECT_THAT(DiskFile::Open(folder.path() + "/none"),
              StatusIs(absl::StatusCode::kNotFound, "open "));
  WriteFileBytes(folder.path() + "/file", "seven b");
  std::filesystem::create_symlink("file", folder.path() + "/link");
  EXPECT_THAT(DiskFile::Open(folder.path() + "/link"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "/link"));
  ASSERT_OK_AND_ASSIGN(const DiskFile file, DiskFile::Open(folder.path() + "/file"));
  EXPECT_EQ(file.bytes(), 7);
}

TEST(DiskFileTest, ASpillHasItsBytesAndNoName) {
  TemporaryFolder folder;
  ASSERT_OK_AND_ASSIGN(const DiskFile spill, DiskFile::CreateSpill(folder.path(), 1 << 20));
  EXPECT_EQ(spill.bytes(), 1 << 20);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(DiskFile::CreateSpill(folder.path(), int64_t{1} << 60),
              StatusIs(absl::StatusCode::kUnavailable, "asked 1152921504606846976"));
  EXPECT_THAT(DiskFile::CreateSpill(folder.path() + "/none", 1 << 20),
              StatusIs(absl::StatusCode::kNotFound, "/none"));
}

}  // namespace
}  // namespace nightshift
