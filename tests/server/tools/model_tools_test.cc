#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/model/pack.h"
#include "server/tools/import.h"
#include "server/tools/model_show.h"
#include "server/tools/model_verify.h"
#include "tests/support/file_bytes.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_gguf.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

class ModelToolsTest : public ::testing::Test {
 protected:
  void ImportLlama() {
    const std::string data = TEST_DATA_DIR;
    fs::copy(data + "/tiny/llama", source());
    fs::copy(data + "/tokenizers/gpt2/tokenizer.json", source());
    WriteFileBytes(source() + "/chat_template.jinja", "{{ messages[0]['content'] }}");
    ASSERT_OK(ImportModel({.source = source(), .output = pack(), .name = "tiny\x1b[31m"}));
  }
  void ImportGguf() {
    TinyGguf gguf;
    gguf.AddTensors();
    WriteFileBytes(source(), gguf.writer.bytes());
    ASSERT_OK(ImportModel({.source = source(), .output = pack()}));
  }
  // Flips one bit of a tensor's first shard.
  void Damage(const std::string& tensor) {
    ASSERT_OK_AND_ASSIGN(const auto opened, Pack::Open(pack()));
    const int64_t offset = opened->Find(tensor)->shards[0].offset;
    std::string bytes = ReadWholeFile(pack() + "/weights.extent");
    bytes[static_cast<size_t>(offset)] ^= 4;
    WriteFileBytes(pack() + "/weights.extent", bytes);
  }
  std::string source() const { return folder_.path() + "/source"; }
  std::string pack() const { return folder_.path() + "/pack"; }

  TemporaryFolder folder_;
};

TEST_F(ModelToolsTest, ShowsTheModelAsJson) {
  ImportLlama();
  ASSERT_OK_AND_ASSIGN(const std::string text, ShowModel(pack(), ShowFormat::kJson));
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(json["parameters"], 178752);  // total_parameters of the source's index
  EXPECT_EQ(json["context_tokens"], 256);
  EXPECT_TRUE(json["window"].is_null());
  EXPECT_EQ(json["second_rounding_in_bf16"], false);
  EXPECT_EQ(json["chat_template_bytes"], 28);
  EXPECT_EQ(json["sources"].size(), 5U);
  EXPECT_EQ(json["tokenizer"]["model"], "byte_bpe");
  EXPECT_TRUE(json["weight_bytes_by_type"].contains("BF16"));
  EXPECT_EQ(json["digest"].get<std::string>().size(), 16U);
}

TEST_F(ModelToolsTest, ShowsTheModelToPeopleWithoutControlCharacters) {
  ImportLlama();
  ASSERT_OK_AND_ASSIGN(const std::string text, ShowModel(pack(), ShowFormat::kText));
  EXPECT_THAT(text, ::testing::HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(text, ::testing::HasSubstr("178752"));
  EXPECT_THAT(text, ::testing::HasSubstr("256 tokens"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("second time")));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST_F(ModelToolsTest, SaysThatQuantisedWeightsAreRoundedTwiceInBf16) {
  ImportGguf();
  ASSERT_OK_AND_ASSIGN(const std::string text, ShowModel(pack(), ShowFormat::kText));
  EXPECT_THAT(text, ::testing::HasSubstr("rounded a second time, to bf16"));
  EXPECT_THAT(text, ::testing::HasSubstr("takes token ids only"));
  EXPECT_THAT(text, ::testing::HasSubstr("U4G32"));
}

TEST_F(ModelToolsTest, TellsTheWindowAndWhichLayersHaveIt) {
  ASSERT_OK(ImportModel({.source = TEST_DATA_DIR "/tiny/gemma3", .output = pack()}));
  ASSERT_OK_AND_ASSIGN(const std::string text, ShowModel(pack(), ShowFormat::kText));
  EXPECT_THAT(text, ::testing::HasSubstr("256 tokens, a window of 8 in 3 of the layers"));
}

TEST_F(ModelToolsTest, TellsHowManyParametersOfAMixtureATokenUses) {
  ASSERT_OK(ImportModel({.source = TEST_DATA_DIR "/tiny/mixtral", .output = pack()}));
  ASSERT_OK_AND_ASSIGN(const std::string text, ShowModel(pack(), ShowFormat::kText));
  EXPECT_THAT(text,
              ::testing::HasSubstr("2 of 4 for each token, ffn width 96, in 2 of the layers"));
  ASSERT_OK_AND_ASSIGN(const std::string json_text, ShowModel(pack(), ShowFormat::kJson));
  const nlohmann::json json = nlohmann::json::parse(json_text);
  // Two tables of 331 x 64, two layers, the final norm.
  constexpr int64_t kExpert = 3 * 96 * 64;
  constexpr int64_t kLayerBesideExperts = (64 + 32 + 32 + 64) * 64 + 2 * 64 + 4 * 64;
  constexpr int64_t kBesideExperts = 2 * 331 * 64 + 2 * kLayerBesideExperts + 64;
  EXPECT_EQ(json["parameters"], kBesideExperts + 2 * 4 * kExpert);
  EXPECT_EQ(json["active_parameters"], kBesideExperts + 2 * 2 * kExpert);
  EXPECT_EQ(json["experts"]["count"], 4);
  EXPECT_EQ(json["experts"]["layers"], 2);
  // Each expert is one piece: its shards follow one another.
  ASSERT_OK_AND_ASSIGN(const auto opened, Pack::Open(pack()));
  const ShardEntry& gate = opened->Find("layers.1.experts.2.gate.weight")->shards.front();
  const ShardEntry& up = opened->Find("layers.1.experts.2.up.weight")->shards.front();
  const ShardEntry& down = opened->Find("layers.1.experts.2.down.weight")->shards.front();
  EXPECT_EQ(up.offset, gate.offset + gate.bytes);
  EXPECT_EQ(down.offset, up.offset + up.bytes);
}

TEST_F(ModelToolsTest, VerifyReadsEverything) {
  ImportLlama();
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyModel(pack()));
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.shards, 30);
  EXPECT_GT(report.bytes, 178752 * 2);
}

TEST_F(ModelToolsTest, VerifyNamesAllThatIsBroken) {
  ImportLlama();
  Damage("embed");
  Damage("layers.2.down.weight");
  WriteFileBytes(pack() + "/chat_template.jinja", "{{ evil }}");
  ASSERT_OK_AND_ASSIGN(const VerifyReport report, VerifyModel(pack()));
  EXPECT_EQ(report.num_problems, 3);
  EXPECT_THAT(report.problems,
              ::testing::ElementsAre(::testing::HasSubstr("tensor embed shard 0"),
                                     ::testing::HasSubstr("tensor layers.2.down.weight shard 0"),
                                     ::testing::HasSubstr("chat_template.jinja")));
}

TEST_F(ModelToolsTest, WhatIsNoPackIsNotFound) {
  EXPECT_THAT(VerifyModel(folder_.path()), StatusIs(absl::StatusCode::kNotFound, "manifest.json"));
  EXPECT_THAT(ShowModel(folder_.path(), ShowFormat::kText),
              StatusIs(absl::StatusCode::kNotFound, "manifest.json"));
}

}  // namespace
}  // namespace nightshift
