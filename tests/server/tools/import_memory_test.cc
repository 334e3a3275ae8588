#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/tools/import.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr int64_t kWidth = 4096;
constexpr int64_t kFfn = 14336;
constexpr int64_t kVocabulary = 1000;

// One layer of the shape of an 8B Llama, all zeros: a sparse file of half a GiB.
int64_t WriteModel(const std::string& folder) {
  Json header;
  int64_t bytes = 0;
  const auto add = [&header, &bytes](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t size = 2;
    for (const int64_t dimension : shape) {
      size *= dimension;
    }
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {bytes, bytes + size}}};
    bytes += size;
  };
  const std::string layer = "model.layers.0.";
  add("model.embed_tokens.weight", {kVocabulary, kWidth});
  add("model.norm.weight", {kWidth});
  add(layer + "input_layernorm.weight", {kWidth});
  add(layer + "post_attention_layernorm.weight", {kWidth});
  for (const char* name : {"q", "k", "v", "o"}) {
    add(layer + "self_attn." + name + "_proj.weight", {kWidth, kWidth});
  }
  add(layer + "mlp.gate_proj.weight", {kFfn, kWidth});
  add(layer + "mlp.up_proj.weight", {kFfn, kWidth});
  add(layer + "mlp.down_proj.weight", {kWidth, kFfn});
  const std::string head = SafetensorsBytes(header.dump(), "");
  WriteFileBytes(folder + "/model.safetensors", head);
  std::filesystem::resize_file(folder + "/model.safetensors",
                               head.size() + static_cast<size_t>(bytes));
  const Json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"hidden_size", kWidth},
                       {"intermediate_size", kFfn},
                       {"vocab_size", kVocabulary},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 32},
                       {"max_position_embeddings", 8192}};
  WriteFileBytes(folder + "/config.json", config.dump());
  return bytes;
}

TEST(ImportMemoryTest, PeakStaysFarBelowTheModel) {
  const TemporaryFolder folder;
  const std::string source = folder.path() + "/source";
  std::filesystem::create_directory(source);
  const int64_t model_bytes = WriteModel(source);
  const pid_t child = fork();
  if (child == 0) {
    const auto summary = ImportModel({.source = source, .output = folder.path() + "/pack"});
    std::_Exit(summary.ok() ? 0 : 1);
  }
  int state = 0;
  rusage usage{};
  ASSERT_EQ(wait4(child, &state, 0, &usage), child);
  ASSERT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
  const int64_t peak_bytes = usage.ru_maxrss * 1024;
  EXPECT_GT(model_bytes, int64_t{450} << 20);
  EXPECT_LT(peak_bytes, int64_t{100} << 20);
}

}  // namespace
}  // namespace nightshift
