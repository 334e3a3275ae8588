#include "engine/model/partial_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/file_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

class PartialFolderTest : public ::testing::Test {
 protected:
  std::string target() const { return folder_.path() + "/target"; }
  std::vector<std::string> Entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(PartialFolderTest, AppearsUnderItsNameOnlyWhenPublished) {
  ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target() + "/"));
  WriteFileBytes(partial->path() + "/file", "content");
  EXPECT_FALSE(fs::exists(target()));
  ASSERT_OK(partial->Publish());
  EXPECT_TRUE(fs::exists(target() + "/file"));
  EXPECT_THAT(Entries(), ::testing::ElementsAre("target"));
}

TEST_F(PartialFolderTest, IsGoneWhenNotPublished) {
  {
    ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target()));
    WriteFileBytes(partial->path() + "/file", "content");
  }
  EXPECT_THAT(Entries(), ::testing::IsEmpty());
}

TEST_F(PartialFolderTest, IsReadableByItsOwnerOnly) {
  ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target()));
  EXPECT_EQ(fs::status(partial->path()).permissions(), fs::perms::owner_all);
}

TEST_F(PartialFolderTest, LeftoversOfTheDeadAreRemovedAndOthersKept) {
  for (const char* name : {"target.partial-1", "target.partial-x", "other.partial-2"}) {
    fs::create_directory(folder_.path() + "/" + name);
    WriteFileBytes(folder_.path() + "/" + name + "/weights.extent", "x");
  }
  ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target()));
  ASSERT_OK(partial->Publish());
  EXPECT_THAT(Entries(),
              ::testing::UnorderedElementsAre("target", "target.partial-x", "other.partial-2"));
}

TEST_F(PartialFolderTest, WorkOfALivingProcessIsKept) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto partial = PartialFolder::Create(target());
    const char answer = partial.ok() ? 'y' : 'n';
    if (write(ready[1], &answer, 1) == 1) {
      pause();
    }
    std::_Exit(1);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  const std::string childs = target() + ".partial-" + std::to_string(child);
  {
    ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target()));
    EXPECT_TRUE(fs::exists(childs));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target()));
  EXPECT_FALSE(fs::exists(childs));
  close(ready[0]);
  close(ready[1]);
}

// A leftover that is a link to a folder must not empty that folder.
TEST_F(PartialFolderTest, LinksAmongLeftoversAreNotFollowed) {
  fs::create_directory(folder_.path() + "/precious");
  WriteFileBytes(folder_.path() + "/precious/file", "x");
  fs::create_directory_symlink(folder_.path() + "/precious", target() + ".partial-3");
  ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target()));
  EXPECT_TRUE(fs::exists(folder_.path() + "/precious/file"));
}

TEST_F(PartialFolderTest, TargetThatAppearsMeanwhileIsNotReplaced) {
  ASSERT_OK_AND_ASSIGN(const auto partial, PartialFolder::Create(target()));
  WriteFileBytes(target(), "somebody else's");
  EXPECT_THAT(partial->Publish(), StatusIs(absl::StatusCode::kAlreadyExists, "renaming"));
}

TEST_F(PartialFolderTest, NamesThatCannotBeAreRefused) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(PartialFolder::Create(""), StatusIs(kInvalid, "not a usable name"));
  EXPECT_THAT(PartialFolder::Create("/"), StatusIs(kInvalid, "not a usable name"));
  EXPECT_THAT(PartialFolder::Create(folder_.path() + "/.."), StatusIs(kInvalid, "not a usable"));
  EXPECT_THAT(PartialFolder::Create(target() + ".partial-1"), StatusIs(kInvalid, "not a usable"));
  EXPECT_THAT(PartialFolder::Create(target() + "/deeper"),
              StatusIs(absl::StatusCode::kNotFound, "/target to put it in"));
}

TEST(FreeDiskTest, SaysHowMuchIsMissing) {
  TemporaryFolder folder;
  EXPECT_OK(CheckFreeDisk(folder.path() + "/new", 1));
  EXPECT_THAT(CheckFreeDisk(folder.path() + "/new", int64_t{1} << 60),
              StatusIs(absl::StatusCode::kResourceExhausted, "takes 1152921504606846976 bytes"));
}

}  // namespace
}  // namespace nightshift
