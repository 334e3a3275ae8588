#include "engine/model/pack.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

#include "engine/model/pack_import.h"
#include "kernels/base/checksum.h"
#include "tests/support/file_bytes.h"
#include "tests/support/golden.h"
#include "tests/support/load_shard.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kLost = absl::StatusCode::kDataLoss;

class PackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint,
                         OpenCheckpoint(std::string(TEST_DATA_DIR) + "/tiny/llama"));
    ASSERT_OK(ImportPack(checkpoint, {.output = path(),
                                      .tokenizer_json = std::string("{}"),
                                      .chat_template = std::string("{{ messages }}")}));
  }
  std::string path() const { return folder_.path() + "/pack"; }
  std::string File(const char* name) const { return path() + "/" + name; }
  Json ReadManifest() const { return Json::parse(ReadWholeFile(File(kManifestFile))); }
  // Writes a manifest with the digest that fits it, so that the checks behind the digest are
  // reached.
  void WriteManifest(Json manifest) {
    manifest.erase("digest");
    const std::string text = manifest.dump(-1, ' ', true);
    manifest["digest"] = absl::StrFormat("%016x", Xxh3(std::as_bytes(std::span(text))));
    WriteFileBytes(File(kManifestFile), manifest.dump(-1, ' ', true));
  }

  TemporaryFolder folder_;
};

TEST_F(PackTest, TextsComeBack) {
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(path()));
  ASSERT_OK_AND_ASSIGN(const std::string tokenizer, pack->ReadTokenizerJson());
  EXPECT_EQ(tokenizer, "{}");
  ASSERT_OK_AND_ASSIGN(const std::string chat_template, pack->ReadChatTemplate());
  EXPECT_EQ(chat_template, "{{ messages }}");
}

TEST_F(PackTest, ShardsAreAlignedAndOrdered) {
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(path()));
  int64_t end = 0;
  for (const TensorEntry& tensor : pack->manifest().tensors) {
    for (const ShardEntry& shard : tensor.shards) {
      EXPECT_EQ(shard.offset % 4096, 0);
      EXPECT_GE(shard.offset, end);
      end = shard.offset + shard.bytes;
    }
  }
  EXPECT_EQ(std::filesystem::file_size(File(kExtentFile)) % 4096, 0U);
}

TEST_F(PackTest, FlippedBitOfAShardIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(path()));
  const TensorEntry& tensor = *pack->Find("layers.1.gate.weight");
  std::string bytes = ReadWholeFile(File(kExtentFile));
  bytes[static_cast<size_t>(tensor.shards[0].offset) + 5] ^= 1;
  WriteFileBytes(File(kExtentFile), bytes);
  std::vector<std::byte> target(
      static_cast<size_t>(LoadedShardBytes(tensor, 0, ComputeType::kF32)));
  EXPECT_THAT(LoadShard(*pack, tensor, 0, ComputeType::kF32, target),
              StatusIs(kLost, "tensor layers.1.gate.weight shard 0"));
}

TEST_F(PackTest, ChangedTextsAreRefused) {
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(path()));
  WriteFileBytes(File(kTokenizerFile), "[]");
  WriteFileBytes(File(kChatTemplateFile), "{{ messages }}x");
  EXPECT_THAT(pack->ReadTokenizerJson(), StatusIs(kLost, "tokenizer.json"));
  EXPECT_THAT(pack->ReadChatTemplate(), StatusIs(kLost, "chat_template.jinja"));
}

TEST_F(PackTest, ExtentOfAnotherLengthIsRefused) {
  std::filesystem::resize_file(File(kExtentFile),
                               std::filesystem::file_size(File(kExtentFile)) - 4096);
  EXPECT_THAT(Pack::Open(path()), StatusIs(kLost, "the manifest says"));
}

TEST_F(PackTest, ExtentThatShrinksWhileOpenIsAnError) {
  ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(path()));
  std::filesystem::resize_file(File(kExtentFile), 100);
  const TensorEntry& tensor = *pack->Find("embed");
  std::vector<std::byte> target(
      static_cast<size_t>(LoadedShardBytes(tensor, 0, ComputeType::kF32)));
  EXPECT_THAT(LoadShard(*pack, tensor, 0, ComputeType::kF32, target),
              StatusIs(kLost, "the file ends after"));
}

TEST_F(PackTest, LinksAreNotFollowed) {
  std::filesystem::rename(File(kExtentFile), folder_.path() + "/elsewhere");
  std::filesystem::create_symlink(folder_.path() + "/elsewhere", File(kExtentFile));
  EXPECT_THAT(Pack::Open(path()), StatusIs(kInvalid, "symbolic links are not followed"));
}

TEST_F(PackTest, UnfinishedImportIsNoPack) {
  const std::string partial = path() + ".partial-77";
  std::filesystem::rename(path(), partial);
  EXPECT_THAT(Pack::Open(partial), StatusIs(kInvalid, "unfinished import"));
  EXPECT_THAT(Pack::Open(partial + "/"), StatusIs(kInvalid, "unfinished import"));
}

TEST_F(PackTest, MissingPackIsNotFound) {
  EXPECT_THAT(Pack::Open(folder_.path()), StatusIs(absl::StatusCode::kNotFound, "manifest.json"));
}

TEST_F(PackTest, EveryTruncationOfTheManifestIsRefused) {
  const std::string text = ReadWholeFile(File(kManifestFile));
  for (size_t length = 0; length < text.size(); length += 13) {
    WriteFileBytes(File(kManifestFile), text.substr(0, length));
    ASSERT_FALSE(Pack::Open(path()).ok()) << length;
  }
}

TEST_F(PackTest, EditedManifestIsNoticedByItsDigest) {
  Json manifest = ReadManifest();
  manifest["model_name"] = "another";
  WriteFileBytes(File(kManifestFile), manifest.dump());
  EXPECT_THAT(Pack::Open(path()), StatusIs(kLost, "the digest of its content"));
}

struct ManifestCase {
  const char* name;
  void (*change)(Json& manifest);
  absl::StatusCode code;
  const char* message;
};

class MalformedManifestTest : public PackTest,
                              public ::testing::WithParamInterface<ManifestCase> {};

TEST_P(MalformedManifestTest, IsRefused) {
  Json manifest = ReadManifest();
  GetParam().change(manifest);
  WriteManifest(manifest);
  EXPECT_THAT(Pack::Open(path()), StatusIs(GetParam().code, GetParam().message));
}

// The first shard of the first tensor: [first_output, outputs, offset, bytes, xxh3].
Json& FirstShard(Json& manifest) {
  return manifest["tensors"][0]["shards"][0];
}

const ManifestCase kManifests[] = {
    {"AnotherFormat", [](Json& m) { m["format"] = "zip"; }, kInvalid, "not the manifest of a pack"},
    {"NewerVersion", [](Json& m) { m["format_version"] = 2; }, kInvalid,
     "format version 2; this program reads version 1"},
    {"VersionIsText", [](Json& m) { m["format_version"] = "1"; }, kInvalid, "format_version"},
    {"NoConfig", [](Json& m) { m.erase("config"); }, kLost, "model config: not a JSON object"},
    {"ConfigOutOfRange", [](Json& m) { m["config"]["num_heads"] = 0; }, kLost, "num_heads"},
    {"NegativeExtent", [](Json& m) { m["extent_bytes"] = -1; }, kLost, "extent_bytes"},
    {"TensorsAreObject", [](Json& m) { m["tensors"] = Json::object(); }, kLost, "not an array"},
    {"TensorIsNumber", [](Json& m) { m["tensors"][3] = 1; }, kLost, "not an object"},
    {"SourceIsText", [](Json& m) { m["sources"][0] = "x"; }, kLost, "sources is not an object"},
    {"SourceHashTooShort", [](Json& m) { m["sources"][0]["xxh3"] = "12"; }, kLost, "sources lacks"},
    {"MissingTensor", [](Json& m) { m["tensors"].erase(4); }, kLost, "is missing or out of order"},
    {"SwappedTensors", [](Json& m) { std::swap(m["tensors"][2], m["tensors"][3]); }, kLost,
     "is missing or out of order"},
    {"RepeatedTensor", [](Json& m) { m["tensors"].push_back(m["tensors"][0]); }, kLost,
     "tensor embed occurs twice"},
    {"UnknownTensor",
     [](Json& m) {
       m["tensors"].push_back(m["tensors"][0]);
       m["tensors"].back()["name"] = "extra";
     },
     kLost, "tensor extra occurs twice or does not belong"},
    {"FreeTypeNumber", [](Json& m) { m["tensors"][0]["type"] = 37; }, kInvalid,
     "type 37, which this version cannot read"},
    {"RowsThatDoNotFillSuperBlocks", [](Json& m) { m["tensors"][0]["type"] = 34; }, kLost,
     "embed has type Q4_K and 64 inputs, which do not fill its blocks"},
    {"UnknownType", [](Json& m) { m["tensors"][0]["type"] = 200; }, kInvalid, "type 200"},
    {"LayoutUnknown", [](Json& m) { m["tensors"][0]["layout"] = 3; }, kLost, "lacks a field"},
    {"VectorLayoutForAMatrix", [](Json& m) { m["tensors"][0]["layout"] = 2; }, kLost,
     "the model asks for layout 1"},
    {"VectorOfBf16", [](Json& m) { m["tensors"][1]["type"] = 3; }, kLost,
     "layers.0.attention_norm.weight has layout 2"},
    {"OutputsDiffer", [](Json& m) { m["tensors"][0]["outputs"] = 332; }, kLost, "shape [332, 64]"},
    {"InputsHuge", [](Json& m) { m["tensors"][0]["inputs"] = INT64_MAX; }, kLost,
     "the model asks for"},
    {"AnotherTypeOfTheSameTensor", [](Json& m) { m["tensors"][0]["type"] = 1; }, kLost,
     "its shape and type make"},
    {"ShardsMissing", [](Json& m) { m["tensors"][0].erase("shards"); }, kLost, "lacks a field"},
    {"NoShards", [](Json& m) { m["tensors"][0]["shards"] = Json::array(); }, kLost,
     "has shards for 0 of 331"},
    {"ShardIsShort", [](Json& m) { FirstShard(m).erase(4); }, kLost, "four numbers and a hash"},
    {"ShardHashIsNumber", [](Json& m) { FirstShard(m)[4] = 5; }, kLost, "four numbers and a hash"},
    {"ShardNegative", [](Json& m) { FirstShard(m)[2] = -4096; }, kLost, "four numbers and a hash"},
    {"ShardHuge", [](Json& m) { FirstShard(m)[3] = UINT64_MAX; }, kLost, "four numbers and a hash"},
    {"ShardStartsLate", [](Json& m) { FirstShard(m)[0] = 64; }, kLost, "where 0 comes next"},
    {"ShardTooLong", [](Json& m) { FirstShard(m)[1] = 400; }, kLost, "has outputs 0 + 400"},
    {"ShardWithoutOutputs", [](Json& m) { FirstShard(m)[1] = 0; }, kLost, "has outputs 0 + 0"},
    {"ShardTooShort",
     [](Json& m) {
       FirstShard(m)[1] = 64;
       FirstShard(m)[3] = 64 * 64 * 2;
     },
     kLost, "has shards for 64 of 331"},
    {"ShardRepeated", [](Json& m) { m["tensors"][0]["shards"].push_back(FirstShard(m)); }, kLost,
     "embed shard 0 has outputs"},
    {"ShardBytesWrong", [](Json& m) { FirstShard(m)[3] = 100; }, kLost, "has 100 bytes"},
    {"ShardNotAligned", [](Json& m) { FirstShard(m)[2] = 64; }, kLost, "lies at 64"},
    {"ShardBeyondTheExtent", [](Json& m) { FirstShard(m)[2] = int64_t{1} << 50; }, kLost,
     "of an extent of"},
    {"ShardsOverlap", [](Json& m) { m["tensors"][1]["shards"][0][2] = 0; }, kLost,
     "layers.0.attention_norm.weight shard 0 lies at 0"},
    {"TokenizerIsText", [](Json& m) { m["tokenizer"] = "tokenizer.json"; }, kLost,
     "tokenizer is not an object"},
    {"TokenizerWithoutHash", [](Json& m) { m["tokenizer"].erase("xxh3"); }, kLost,
     "tokenizer lacks"},
};

INSTANTIATE_TEST_SUITE_P(All, MalformedManifestTest, ::testing::ValuesIn(kManifests),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace nightshift
