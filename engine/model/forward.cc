#include "engine/model/forward.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/model/scratch.h"
#include "kernels/base/check.h"

namespace nightshift {
namespace {

// Long waves turn `factor` times slower, short ones as before, those between by interpolation.
double ScaleLlama3(double frequency, const RopeConfig& rope) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double context = static_cast<double>(rope.original_context_tokens);
  if (wavelength < context / rope.high_freq_factor) {
    return frequency;
  }
  if (wavelength > context / rope.low_freq_factor) {
    return frequency / rope.factor;
  }
  const double blend = (context / wavelength - rope.low_freq_factor) /
                       (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - blend) * frequency / rope.factor + blend * frequency;
}

double ScaleFrequency(double frequency, size_t pair, const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return frequency;
    case RopeScaling::kLinear:
      return frequency / rope.factor;
    case RopeScaling::kLlama3:
      return ScaleLlama3(frequency, rope);
    case RopeScaling::kDivisors:
      CHECK_LT(pair, rope.divisors.size());
      return frequency / static_cast<double>(rope.divisors[pair]);
  }
  return frequency;
}

}  // namespace

KvPageLayout KvLayoutOf(const ModelConfig& config, ComputeType compute_type) {
  return {.dtype = compute_type == ComputeType::kF32 ? DType::kF32 : DType::kBF16,
          .kv_heads = config.num_kv_heads,
          .head_width = config.head_width};
}

std::vector<float> InverseFrequencies(const ModelConfig& config) {
  std::vector<float> frequencies;
  if (config.position != PositionKind::kRope) {
    return frequencies;
  }
  const RopeConfig& rope = config.rope;
  for (int64_t i = 0; i < rope.rotary_width / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rope.rotary_width);
    const double frequency = std::pow(rope.theta, -exponent);
    frequencies.push_back(
        static_cast<float>(ScaleFrequency(frequency, static_cast<size_t>(i), rope)));
  }
  return frequencies;
}

Forward::Forward(const ModelConfig& config, const KvPageLayout& kv_layout, Ops& ops)
    : config_(config),
      kv_layout_(kv_layout),
      ops_(ops),
      inverse_frequencies_(InverseFrequencies(config)) {}

int64_t Forward::ScratchFloats(const ModelConfig& config, int64_t rows) {
  const int64_t q = RowStride(config.num_heads * config.head_width);
  const int64_t kv = RowStride(config.num_kv_heads * config.head_width);
  const int64_t attention = 2 * q + 2 * kv;
  const int64_t ffn = (config.gated_ffn ? 2 : 1) * RowStride(config.ffn_width);
  const int64_t layer = RowStride(config.model_width) + std::max(attention, ffn);
  return rows * std::max(layer, RowStride(config.embedding_width));
}

void Forward::Embed(const ModelWeights& weights, std::span<const int32_t> ids,
                    std::span<const int32_t> positions, std::span<float> scratch,
                    MatrixView hidden) {
  if (weights.project_in.exists()) {
    MatrixView embedded = Scratch(scratch).Take(hidden.rows, config_.embedding_width);
    ops_.EmbeddingGather(weights.embed.matrix, ids, false, embedded);
    Linear(weights.project_in, embedded, hidden);
  } else {
    ops_.EmbeddingGather(weights.embed.matrix, ids, false, hidden);
  }
  if (config_.position == PositionKind::kLearned) {
    learned_rows_.assign(positions.begin(), positions.end());
    for (int32_t& row : learned_rows_) {
      row += static_cast<int32_t>(config_.learned_position_offset);
    }
    ops_.EmbeddingGather(weights.positions.matrix, learned_rows_, true, hidden);
  }
}

// pre-norm:  h = h + attention(norm(h));  h = h + ffn(norm(h))
// post-norm: h = norm(h + attention(h));  h = norm(h + ffn(h))
void Forward::Layer(const LayerWeights& weights, const LayerBatch& batch, std::span<float> scratch,
                    MatrixView hidden) {
  Scratch memory(scratch);
  if (config_.pre_norm) {
    MatrixView normed = memory.Take(hidden.rows, config_.model_width);
    Norm(weights.attention_norm, hidden, normed);
    Attention(weights, batch, normed, memory.rest(), hidden);
    Norm(weights.ffn_norm, hidden, normed);
    FeedForward(weights, normed, memory.rest(), hidden);
  } else {
    Attention(weights, batch, hidden, memory.rest(), hidden);
    Norm(weights.attention_norm, hidden, hidden);
    FeedForward(weights, hidden, memory.rest(), hidden);
    Norm(weights.ffn_norm, hidden, hidden);
  }
}

void Forward::Finish(const ModelWeights& weights, MatrixView hidden, MatrixView out) {
  const bool projects = weights.project_out.exists();
  if (config_.final_norm) {
    Norm(weights.final_norm, hidden, projects ? hidden : out);
  }
  if (projects) {
    Linear(weights.project_out, hidden, out);
  } else if (!config_.final_norm) {
    for (int64_t row = 0; row < hidden.rows; ++row) {
      std::copy_n(hidden.row(row), hidden.columns, out.row(row));
    }
  }
}

// hidden += o(attention(q(x), k(x), v(x))), q and k rotated by their positions.
void Forward::Attention(const LayerWeights& weights, const LayerBatch& batch, MatrixView x,
                        std::span<float> scratch, MatrixView hidden) {
  const int64_t q_width = config_.num_heads * config_.head_width;
  const int64_t kv_width = config_.num_kv_heads * config_.head_width;
  Scratch memory(scratch);
  MatrixView q = memory.Take(x.rows, q_width);
  MatrixView k = memory.Take(x.rows, kv_width);
  MatrixView v = memory.Take(x.rows, kv_width);
  MatrixView mixed = memory.Take(x.rows, q_width);
  Linear(weights.q, x, q);
  Linear(weights.k, x, k);
  Linear(weights.v, x, v);
  if (config_.position == PositionKind::kRope) {
    RopeArgs rope{.x = q,
                  .heads = config_.num_heads,
                  .head_width = config_.head_width,
                  .inverse_frequencies = inverse_frequencies_,
                  .positions = batch.positions};
    ops_.Rope(rope);
    rope.x = k;
    rope.heads = config_.num_kv_heads;
    ops_.Rope(rope);
  }
  ops_.StoreKv({.k = k, .v = v, .layout = kv_layout_, .spans = batch.spans});
  ops_.Attention({.q = q,
                  .out = mixed,
                  .layout = kv_layout_,
                  .num_heads = config_.num_heads,
                  .scale = 1.0F / std::sqrt(static_cast<float>(config_.head_width)),
                  .spans = batch.spans});
  AddLinear(weights.o, mixed, hidden);
}

// hidden += down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.
void Forward::FeedForward(const LayerWeights& weights, MatrixView x, std::span<float> scratch,
                          MatrixView hidden) {
  Scratch memory(scratch);
  MatrixView up = memory.Take(x.rows, config_.ffn_width);
  Linear(weights.up, x, up);
  if (!config_.gated_ffn) {
    ops_.Activate(config_.activation, up);
    AddLinear(weights.down, up, hidden);
    return;
  }
  MatrixView gate = memory.Take(x.rows, config_.ffn_width);
  Linear(weights.gate, x, gate);
  ops_.GatedActivate(config_.activation, gate, up);
  AddLinear(weights.down, gate, hidden);
}

void Forward::Norm(const NormWeights& weights, MatrixView x, MatrixView out) {
  if (config_.norm == NormKind::kRms) {
    ops_.RmsNorm(x, weights.weight, config_.norm_epsilon, out);
  } else {
    ops_.LayerNorm(x, weights.weight, weights.bias, config_.norm_epsilon, out);
  }
}

void Forward::Linear(const MatMulWeights& weights, MatrixView x, MatrixView out) {
  for (const WeightShardView& shard : weights.matrix.shards) {
    ops_.MatMul({.x = x, .weight = shard, .bias = weights.bias, .out = out});
  }
}

void Forward::AddLinear(const MatMulWeights& weights, MatrixView x, MatrixView out) {
  for (const WeightShardView& shard : weights.matrix.shards) {
    ops_.MatMul({.x = x, .weight = shard, .bias = weights.bias, .out = out, .accumulate = true});
  }
}

}  // namespace nightshift
