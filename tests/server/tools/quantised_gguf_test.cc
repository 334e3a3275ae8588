// A whole GGUF file of random blocks of every quantised type, the whole way: import, verify, show,
// and logits against an independent forward pass (tests/data/make_quant_oracles.py).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/local_engine.h"
#include "engine/model/pack.h"
#include "server/tools/import.h"
#include "server/tools/model_show.h"
#include "server/tools/model_verify.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

constexpr char kFolder[] = TEST_DATA_DIR "/quants/";

class QuantisedGgufTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(ImportModel({.source = std::string(kFolder) + "model.gguf", .output = pack()}));
  }
  std::string pack() const { return folder_.path() + "/pack"; }
  // Largest difference of a logit, over all positions of all prompts.
  float WorstLogit(ComputeType compute_type) {
    const auto golden = GoldenTensors(std::string(kFolder) + "golden.safetensors");
    EngineOptions options;
    options.pack_path = pack();
    options.compute_type = compute_type;
    options.memory_budget_bytes = int64_t{64} << 20;
    absl::StatusOr<std::unique_ptr<LocalEngine>> engine = LocalEngine::Create(options);
    EXPECT_OK(engine);
    float worst = 0.0F;
    const nlohmann::json cases = GoldenCases(std::string(kFolder) + "golden.json");
    EXPECT_EQ(cases.size(), 3U);
    for (const nlohmann::json& one : cases) {
      const auto logits = (*engine)->ForwardLogits(one["prompt"].get<std::vector<int32_t>>());
      EXPECT_OK(logits);
      const std::vector<float>& expected = golden.at(one["name"].get<std::string>() + ".logits");
      EXPECT_EQ(logits->size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        worst = std::max(worst, std::abs((*logits)[i] - expected[i]));
      }
    }
    return worst;
  }

  TemporaryFolder folder_;
};

TEST_F(QuantisedGgufTest, LogitsAreWithin1e4InF32) {
  const float worst = WorstLogit(ComputeType::kF32);
  RecordProperty("worst", std::to_string(worst));
  EXPECT_LE(worst, 1e-4F);
}

// Two layers of random weights: transformers' own bf16 runs of the tiny models differ as much.
TEST_F(QuantisedGgufTest, LogitsInBf16DifferByItsRoundingOnly) {
  const float worst = WorstLogit(ComputeType::kBF16);
  EXPECT_LE(worst, 0.25F);
  EXPECT_GT(worst, 1e-3F);
}

TEST_F(QuantisedGgufTest, SuperBlocksStayAndFiveBitBlocksBecomeEightBitGroups) {
  ASSERT_OK_AND_ASSIGN(const auto opened, Pack::Open(pack()));
  EXPECT_EQ(opened->Find("embed")->dtype, DType::kQ6K);
  EXPECT_EQ(opened->Find("layers.0.q.weight")->dtype, DType::kQ2K);
  EXPECT_EQ(opened->Find("layers.0.up.weight")->dtype, DType::kQ3K);
  EXPECT_EQ(opened->Find("layers.0.gate.weight")->dtype, DType::kQ4K);
  EXPECT_EQ(opened->Find("layers.1.down.weight")->dtype, DType::kQ5K);
  EXPECT_EQ(opened->Find("layers.1.gate.weight")->dtype, DType::kI8G32);
  EXPECT_EQ(opened->Find("layers.1.gate.weight")->source_type, "Q5_0");
  EXPECT_EQ(opened->Find("head")->dtype, DType::kU8G32);
  EXPECT_EQ(opened->Find("head")->source_type, "Q5_1");
  EXPECT_EQ(opened->Find("final_norm.weight")->source_type, "");
}

// A panel is [K/256][64] blocks; the 96 tokens are two panels, the second half full.
TEST_F(QuantisedGgufTest, BlocksOfAPanelAreThoseOfTheFileBitForBit) {
  ASSERT_OK_AND_ASSIGN(const auto opened, Pack::Open(pack()));
  const TensorEntry& embed = *opened->Find("embed");
  ASSERT_EQ(embed.shards.size(), 1U);
  ASSERT_EQ(embed.shards[0].bytes, 2 * 64 * 210);
  std::vector<std::byte> shard(static_cast<size_t>(embed.shards[0].bytes));
  ASSERT_OK(opened->ReadShard(embed, 0, shard));
  const std::string rows(reinterpret_cast<const char*>(shard.data()), 96 * 210);
  EXPECT_NE(ReadWholeFile(std::string(kFolder) + "model.gguf").find(rows), std::string::npos);
  EXPECT_TRUE(std::all_of(shard.begin() + 96 * 210, shard.end(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

TEST_F(QuantisedGgufTest, VerifiesAndShowsWhatBecameOfEachType) {
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyModel(pack()));
  EXPECT_TRUE(report.ok());
  ASSERT_OK_AND_ASSIGN(const std::string text, ShowModel(pack(), ShowFormat::kText));
  EXPECT_THAT(text, ::testing::HasSubstr(R"(I8G32 0.1 MiB, from "Q5_0" 0.1 MiB)"));
  EXPECT_THAT(text,
              ::testing::HasSubstr("super-blocks have the source's values; loading expands them"));
  ASSERT_OK_AND_ASSIGN(const std::string json_text, ShowModel(pack(), ShowFormat::kJson));
  const nlohmann::json by_source = nlohmann::json::parse(json_text)["weight_bytes_by_source_type"];
  EXPECT_EQ(by_source["Q2_K"]["Q2_K"], 2 * 256 * 84);
  // Codes of one byte, fp16 scale and minimum for 32 of them; the head has 2 panels.
  EXPECT_EQ(by_source["U8G32"]["Q5_1"], (128 + 64 + 256) * (256 + 256 / 32 * 4));
}

}  // namespace
}  // namespace nightshift
