#include "server/scheduling/model_catalog.h"

#include <chrono>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "engine/model/pack.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

class ModelCatalogTest : public ::testing::Test {
 protected:
  void AddPack(const std::string& name) {
    std::filesystem::copy(TinyPack("llama"), folder_.path() + "/" + name,
                          std::filesystem::copy_options::recursive);
  }
  TemporaryFolder folder_;
};

TEST_F(ModelCatalogTest, ListsThePacksOfAFolderByName) {
  AddPack("b");
  AddPack("a");
  std::filesystem::create_directory(folder_.path() + "/no-pack");
  ModelCatalog catalog({}, folder_.path());
  const std::vector<CatalogModel> models = catalog.List();
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0].name, "a");
  EXPECT_EQ(models[0].architecture, "LlamaForCausalLM");
  EXPECT_GT(models[0].parameters, 0);
  EXPECT_EQ(models[0].digest.size(), 16U);
  EXPECT_FALSE(models[0].has_tokenizer);
  EXPECT_OK(models[0].status);
}

TEST_F(ModelCatalogTest, TheOnlyModelNeedsNoName) {
  ModelCatalog catalog({TinyPack("llama") + "/"}, "");
  auto model = catalog.Find("");
  ASSERT_OK(model);
  EXPECT_EQ(model->name, "llama");
}

TEST_F(ModelCatalogTest, AnUnknownNameIsToldWhatThereIs) {
  AddPack("a");
  AddPack("b");
  ModelCatalog catalog({}, folder_.path());
  EXPECT_THAT(catalog.Find("c"), StatusIs(absl::StatusCode::kNotFound, "a, b"));
  EXPECT_THAT(catalog.Find(""), StatusIs(absl::StatusCode::kNotFound, "must be named"));
  EXPECT_THAT(ModelCatalog({}, "").Find("a"), StatusIs(absl::StatusCode::kNotFound, "none"));
}

TEST_F(ModelCatalogTest, ADamagedPackIsListedWithItsReasonAndHidesNoOther) {
  AddPack("a");
  AddPack("b");
  std::ofstream(folder_.path() + "/a/manifest.json") << "{";
  ModelCatalog catalog({}, folder_.path());
  EXPECT_EQ(catalog.List().size(), 2U);
  EXPECT_THAT(catalog.Find("a"), StatusIs(absl::StatusCode::kFailedPrecondition, "a"));
  EXPECT_OK(catalog.Find("b"));
}

TEST_F(ModelCatalogTest, APackThatIsNotThereIsAwayAndMayComeBack) {
  AddPack("b");
  const std::string away = folder_.path() + "/a";
  ModelCatalog catalog({away}, folder_.path());
  EXPECT_THAT(catalog.Find("a"),
              StatusIs(absl::StatusCode::kUnavailable, away + "/manifest.json: No such file"));
  EXPECT_TRUE(catalog.List()[0].is_away());
  AddPack("a");
  catalog.Rescan();
  EXPECT_OK(catalog.Find("a"));
}

TEST_F(ModelCatalogTest, ARescanSeesPacksThatWereAdded) {
  AddPack("a");
  ModelCatalog catalog({}, folder_.path());
  AddPack("b");
  catalog.Rescan();
  EXPECT_OK(catalog.Find("b"));
}

TEST_F(ModelCatalogTest, AMarkedModelIsRefusedUntilItsWeightsAreWrittenAnew) {
  AddPack("a");
  AddPack("b");
  ModelCatalog catalog({}, folder_.path());
  catalog.MarkUnusable("a", absl::DataLossError("shard 2 of layers.1.up.weight"));
  catalog.MarkUnusable("unknown", absl::DataLossError("gone"));
  catalog.Rescan();
  EXPECT_THAT(catalog.Find("a"), StatusIs(absl::StatusCode::kFailedPrecondition, "layers.1.up"));
  EXPECT_THAT(catalog.List()[0].status, StatusIs(absl::StatusCode::kDataLoss, "layers.1.up"));
  EXPECT_OK(catalog.Find("b"));
  const std::string extent = folder_.path() + "/a/" + kExtentFile;
  std::filesystem::last_write_time(
      extent, std::filesystem::last_write_time(extent) + std::chrono::seconds(1));
  catalog.Rescan();
  EXPECT_OK(catalog.Find("a"));
}

}  // namespace
}  // namespace nightshift
