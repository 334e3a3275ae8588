#include "client/served_pack.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace nightshift {
namespace {

v1::Model ModelOf(const std::string& name, const std::string& digest) {
  v1::Model model;
  model.set_name(name);
  model.set_digest(digest);
  return model;
}

bool Says(const absl::Status& status, const std::string& text) {
  return absl::IsFailedPrecondition(status) && absl::StrContains(status.message(), text);
}

TEST(ServedPackTest, NamesWhatIsServedInsteadAndTheWayOut) {
  const std::vector<v1::Model> models = {ModelOf("a", "1"), ModelOf("b", "2")};
  EXPECT_TRUE(CheckServed(models, "a", "1", "packs/a").ok());
  EXPECT_TRUE(Says(CheckServed(models, "a", "2", "packs/a"), "--model b"));
  EXPECT_TRUE(Says(CheckServed(models, "a", "3", "packs/a"), "is another pack (digest 1)"));
  EXPECT_TRUE(Says(CheckServed(models, "c", "3", "packs/c"), "--private"));
}

TEST(ServedPackTest, RefusesAFolderThatIsNoPack) {
  const std::string folder = testing::TempDir() + "served_pack_test";
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(absl::IsNotFound(PackDigest(folder + "/none").status()));
  std::ofstream(folder + "/manifest.json") << "{}";
  EXPECT_TRUE(absl::IsInvalidArgument(PackDigest(folder).status()));
  std::ofstream(folder + "/manifest.json") << R"({"digest": "ab"})";
  EXPECT_EQ(*PackDigest(folder), "ab");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace nightshift
