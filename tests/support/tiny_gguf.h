// A GGUF file of a Llama with one layer, small and of mixed types, with values from a fixed
// sequence.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/convert.h"
#include "tests/support/file_bytes.h"
#include "tests/support/gguf_writer.h"

namespace nightshift {

inline constexpr int64_t kTinyGgufWidth = 64;
inline constexpr int64_t kTinyGgufHeads = 2;
inline constexpr int64_t kTinyGgufHeadWidth = 32;
inline constexpr int64_t kTinyGgufVocabulary = 70;
inline constexpr int64_t kTinyGgufFfn = 96;

// Tensor data and what it stands for.
struct TinyGgufTensor {
  std::string bytes;
  std::vector<double> values;  // row-major, exact
};

class TinyGguf {
 public:
  TinyGguf() {
    writer.Text("general.architecture", "llama");
    writer.Integer("llama.block_count", 1);
    writer.Integer("llama.embedding_length", kTinyGgufWidth);
    writer.Integer("llama.feed_forward_length", kTinyGgufFfn);
    writer.Integer("llama.attention.head_count", kTinyGgufHeads);
    writer.Integer("llama.context_length", 128);
    writer.Number("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  }
  // All tensors that the model needs.
  void AddTensors() {
    AddAttentionTensors();
    Add("blk.0.ffn_gate.weight", kTinyGgufFfn, kTinyGgufWidth, kGgufQ4_0);
    Add("blk.0.ffn_up.weight", kTinyGgufFfn, kTinyGgufWidth, kGgufQ4_1);
    Add("blk.0.ffn_down.weight", kTinyGgufWidth, kTinyGgufFfn, kGgufF32);
  }
  // The same for a Mixtral with this many experts, two of them for each token.
  void AddExpertTensors(int64_t experts) {
    writer.Integer("llama.expert_count", static_cast<uint32_t>(experts));
    writer.Integer("llama.expert_used_count", 2);
    AddAttentionTensors();
    Add("blk.0.ffn_gate_inp.weight", experts, kTinyGgufWidth, kGgufF32);
    Add("blk.0.ffn_gate_exps.weight", experts * kTinyGgufFfn, kTinyGgufWidth, kGgufQ4_0, experts);
    Add("blk.0.ffn_up_exps.weight", experts * kTinyGgufFfn, kTinyGgufWidth, kGgufQ4_1, experts);
    Add("blk.0.ffn_down_exps.weight", experts * kTinyGgufWidth, kTinyGgufFfn, kGgufQ8_0, experts);
  }
  // What the two have in common.
  void AddAttentionTensors() {
    Add("token_embd.weight", kTinyGgufVocabulary, kTinyGgufWidth, kGgufQ8_0);
    Add("output_norm.weight", 1, kTinyGgufWidth, kGgufF32);
    Add("blk.0.attn_norm.weight", 1, kTinyGgufWidth, kGgufF32);
    Add("blk.0.attn_q.weight", kTinyGgufWidth, kTinyGgufWidth, kGgufQ4_1);
    Add("blk.0.attn_k.weight", kTinyGgufWidth, kTinyGgufWidth, kGgufQ4_0);
    Add("blk.0.attn_v.weight", kTinyGgufWidth, kTinyGgufWidth, kGgufQ8_0);
    Add("blk.0.attn_output.weight", kTinyGgufWidth, kTinyGgufWidth, kGgufF16);
    Add("blk.0.ffn_norm.weight", 1, kTinyGgufWidth, kGgufF32);
  }
  // One row means a vector; `stacked` above 0 a tensor [stacked, rows / stacked, columns].
  void Add(const std::string& name, int64_t rows, int64_t columns, uint32_t type,
           int64_t stacked = 0) {
    TinyGgufTensor tensor;
    const int64_t block = type == kGgufF32 || type == kGgufF16 ? 1 : 32;
    for (int64_t i = 0; i < rows * columns / block; ++i) {
      AppendBlock(type, tensor);
    }
    std::vector<uint64_t> dimensions = {static_cast<uint64_t>(columns)};
    if (stacked > 0) {
      dimensions.push_back(static_cast<uint64_t>(rows / stacked));
      dimensions.push_back(static_cast<uint64_t>(stacked));
    } else if (rows > 1) {
      dimensions.push_back(static_cast<uint64_t>(rows));
    }
    writer.Tensor(name, dimensions, type, tensor.bytes);
    tensors[name] = tensor;
  }

  GgufWriter writer;
  std::map<std::string, TinyGgufTensor> tensors;

 private:
  uint32_t Random() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<uint32_t>(state_ >> 33);
  }
  // A half-precision number of magnitude 2^-6 to 2^1, of either sign.
  uint16_t RandomHalf() {
    return static_cast<uint16_t>((Random() & 0x83ffU) | ((9U + Random() % 8U) << 10));
  }
  void AppendBlock(uint32_t type, TinyGgufTensor& tensor) {
    if (type == kGgufF32) {
      const float value = F16ToF32(RandomHalf()) / 3.0F;
      AppendNumber(tensor.bytes, value);
      tensor.values.push_back(static_cast<double>(value));
      return;
    }
    const uint16_t scale_bits = RandomHalf();
    const double scale = static_cast<double>(F16ToF32(scale_bits));
    AppendNumber(tensor.bytes, scale_bits);
    if (type == kGgufF16) {
      tensor.values.push_back(scale);
      return;
    }
    double minimum = 0.0;
    if (type == kGgufQ4_1) {
      const uint16_t bits = RandomHalf();
      AppendNumber(tensor.bytes, bits);
      minimum = static_cast<double>(F16ToF32(bits));
    }
    if (type == kGgufQ8_0) {
      for (int i = 0; i < 32; ++i) {
        const int8_t code = static_cast<int8_t>(Random() & 0xffU);
        AppendNumber(tensor.bytes, code);
        tensor.values.push_back(scale * code);
      }
      return;
    }
    // Values 0 to 15 are the low halves of the 16 bytes, 16 to 31 the high ones.
    std::vector<double> high;
    for (int i = 0; i < 16; ++i) {
      const uint8_t pair = static_cast<uint8_t>(Random() & 0xffU);
      AppendNumber(tensor.bytes, pair);
      const int zero = type == kGgufQ4_0 ? 8 : 0;
      tensor.values.push_back(scale * ((pair & 15) - zero) + minimum);
      high.push_back(scale * ((pair >> 4) - zero) + minimum);
    }
    tensor.values.insert(tensor.values.end(), high.begin(), high.end());
  }

  uint64_t state_ = 1;
};

}  // namespace nightshift
