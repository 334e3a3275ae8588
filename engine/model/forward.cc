#include "engine/model/forward.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

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

// Pair whose wave turns `turns` times over the original context, as a fraction.
double PairOfTurns(double turns, const RopeConfig& rope) {
  const double context = static_cast<double>(rope.original_context_tokens);
  return static_cast<double>(rope.rotary_width) *
         std::log(context / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(rope.theta));
}

// Fast pairs keep their frequency, slow ones turn `factor` times slower, with a ramp between.
double ScaleYarn(double frequency, size_t pair, const RopeConfig& rope) {
  double first = PairOfTurns(rope.beta_fast, rope);
  double last = PairOfTurns(rope.beta_slow, rope);
  if (rope.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(rope.rotary_width - 1));
  constexpr double kLeastWidth = 0.001;  // of the ramp, as in the reference
  const double ramp =
      (static_cast<double>(pair) - first) / (last == first ? kLeastWidth : last - first);
  const double slow = std::clamp(ramp, 0.0, 1.0);
  return frequency * (1.0 - slow) + frequency / rope.factor * slow;
}

double ScaleFrequency(double frequency, size_t pair, const RopeConfig& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return frequency;
    case RopeScaling::kLinear:
      return frequency / rope.factor;
    case RopeScaling::kLlama3:
      return ScaleLlama3(frequency, rope);
    case RopeScaling::kYarn:
      return ScaleYarn(frequency, pair, rope);
    case RopeScaling::kDivisors:
      CHECK_LT(pair, rope.divisors.size());
      return frequency / static_cast<double>(rope.divisors[pair]);
  }
  return frequency;
}

}  // namespace

KvPageLayout KvLayoutOf(const ModelConfig& config, ComputeType compute_type,
                        std::optional<DType> kv_type) {
  const DType computed = ComputedDType(compute_type);
  return {.dtype = kv_type.value_or(computed),
          .kv_heads = config.num_kv_heads,
          .head_width = config.head_width};
}

double YarnMagnitude(double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0;
}

std::vector<float> InverseFrequencies(const RopeConfig& rope) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < rope.rotary_width / 2; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(rope.rotary_width);
    const double frequency = std::pow(rope.theta, -exponent);
    frequencies.push_back(
        static_cast<float>(ScaleFrequency(frequency, static_cast<size_t>(i), rope)));
  }
  return frequencies;
}

int64_t AttentionRows::Floats(const ModelConfig& config, int64_t rows) {
  const int64_t heads = 2 * RowStride(config.num_heads * config.head_width);
  const int64_t kv_heads = 2 * RowStride(config.num_kv_heads * config.head_width);
  return rows * (heads + kv_heads);
}

AttentionRows AttentionRows::Carve(const ModelConfig& config, int64_t rows,
                                   std::span<float> memory) {
  const int64_t q_width = config.num_heads * config.head_width;
  const int64_t kv_width = config.num_kv_heads * config.head_width;
  Scratch scratch(memory);
  return {.q = scratch.Take(rows, q_width),
          .k = scratch.Take(rows, kv_width),
          .v = scratch.Take(rows, kv_width),
          .mixed = scratch.Take(rows, q_width)};
}

Forward::Forward(const ModelConfig& config, const KvPageLayout& kv_layout, Ops& ops,
                 WeightAccess* access, double sparse_fraction)
    : config_(config),
      kv_layout_(kv_layout),
      ops_(ops),
      access_(access),
      sparse_fraction_(sparse_fraction),
      inverse_frequencies_(InverseFrequencies(config.rope)),
      sliding_inverse_frequencies_(InverseFrequencies(config.sliding_rope.value_or(config.rope))) {}

int64_t Forward::ScratchFloats(const ModelConfig& config, int64_t rows) {
  const bool some_dense =
      !config.experts || config.experts->num_layers_with_experts() < config.num_layers;
  const int64_t ffn = some_dense ? (config.gated_ffn ? 2 : 1) * RowStride(config.ffn_width) : 0;
  const int64_t layer = BranchFloats(config, rows) +
                        std::max(AttentionRows::Floats(config, rows), rows * ffn);
  return std::max(layer, rows * RowStride(config.embedding_width));
}

// The input of a branch and what it adds.
int64_t Forward::BranchFloats(const ModelConfig& config, int64_t rows) {
  return rows * 2 * RowStride(config.model_width);
}

void Forward::Embed(const ModelWeights& weights, std::span<const int32_t> ids,
                    std::span<const int32_t> positions, std::span<float> scratch,
                    MatrixView hidden) {
  if (weights.project_in.exists()) {
    MatrixView embedded = Scratch(scratch).Take(hidden.rows, config_.embedding_width);
    Gather(weights.embed, ids, false, embedded);
    Multiply({{weights.project_in, hidden}}, embedded);
  } else {
    Gather(weights.embed, ids, false, hidden);
  }
  if (config_.embedding_multiplier != 1.0F) {
    ops_.Scale(config_.embedding_multiplier, hidden);
  }
  if (config_.position == PositionKind::kLearned) {
    learned_rows_.assign(positions.begin(), positions.end());
    for (int32_t& row : learned_rows_) {
      row += static_cast<int32_t>(config_.learned_position_offset);
    }
    Gather(weights.positions, learned_rows_, true, hidden);
  }
}

// With attention and feed-forward as f, one after the other:
//   pre-norm             h = h + f(norm(h))
//   branch norm          h = h + norm(f(h)), or h + norm(f(norm(h))) with both
//   neither              h = norm(h + f(h))
// parallel branches:     h = h + attention(norm(h)) + ffn(norm(h))
void Forward::Layer(const LayerWeights& weights, const LayerBatch& batch, std::span<float> scratch,
                    MatrixView hidden) {
  const auto branches = static_cast<size_t>(BranchFloats(config_, hidden.rows));
  const AttentionRows rows =
      AttentionRows::Carve(config_, hidden.rows, scratch.subspan(branches));
  BeginLayer(weights, batch, scratch.first(branches), hidden, rows);
  Mix(batch, rows, ops_);
  FinishLayer(weights, rows.mixed, scratch, hidden);
}

void Forward::BeginLayer(const LayerWeights& weights, const LayerBatch& batch,
                         std::span<float> scratch, MatrixView hidden, const AttentionRows& rows) {
  if (!config_.pre_norm) {
    AttentionInputs(weights, batch, hidden, rows);
    return;
  }
  MatrixView normed = Scratch(scratch).Take(hidden.rows, config_.model_width);
  Norm(weights.attention_norm, hidden, normed);
  AttentionInputs(weights, batch, normed, rows);
}

void Forward::FinishLayer(const LayerWeights& weights, MatrixView mixed, std::span<float> scratch,
                          MatrixView hidden) {
  Scratch memory(scratch);
  if (!weights.experts.empty()) {
    AttentionOutput(weights, mixed, memory.rest(), hidden);
  } else if (config_.parallel_branches) {
    MatrixView ffn_input = memory.Take(hidden.rows, config_.model_width);
    Norm(config_.shared_norm ? weights.attention_norm : weights.ffn_norm, hidden, ffn_input);
    AttentionOutput(weights, mixed, memory.rest(), hidden);
    FeedForward(weights, ffn_input, memory.rest(), hidden);
  } else if (config_.pre_norm) {
    MatrixView normed = memory.Take(hidden.rows, config_.model_width);
    AttentionOutput(weights, mixed, memory.rest(), hidden);
    Norm(weights.ffn_norm, hidden, normed);
    FeedForward(weights, normed, memory.rest(), hidden);
  } else if (config_.branch_norm) {
    AttentionOutput(weights, mixed, memory.rest(), hidden);
    FeedForward(weights, hidden, memory.rest(), hidden);
  } else {
    AttentionOutput(weights, mixed, memory.rest(), hidden);
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
    Multiply({{weights.project_out, out}}, hidden);
  } else if (!config_.final_norm) {
    std::vector<int64_t> rows(static_cast<size_t>(hidden.rows));
    std::iota(rows.begin(), rows.end(), 0);
    ops_.GatherRows(hidden, rows, out);
  }
  if (config_.logit_multiplier != 1.0F) {
    ops_.Scale(config_.logit_multiplier, out);
  }
}

void Forward::CapLogits(MatrixView logits) {
  if (config_.logit_softcap > 0.0F) {
    ops_.SoftCap(config_.logit_softcap, logits);
  }
}

// q(x), k(x) and v(x), q and k normalised where the family does and rotated by their positions.
void Forward::AttentionInputs(const LayerWeights& weights, const LayerBatch& batch, MatrixView x,
                              const AttentionRows& rows) {
  Multiply({{weights.q, rows.q}, {weights.k, rows.k}, {weights.v, rows.v}}, x);
  NormQueriesAndKeys(weights, rows.q, rows.k);
  if (config_.position == PositionKind::kRope) {
    Rotate(batch, rows.q, rows.k);
  }
}

// hidden += o(mixed).
void Forward::AttentionOutput(const LayerWeights& weights, MatrixView mixed,
                              std::span<float> scratch, MatrixView hidden) {
  AddBranch(weights.o, weights.attention_branch_norm, mixed, scratch, hidden);
}

void Forward::NormQueriesAndKeys(const LayerWeights& weights, MatrixView q, MatrixView k) {
  const float epsilon = config_.norm_epsilon;
  if (config_.qk_norm == QkNorm::kHead) {
    ops_.HeadRmsNorm(q, config_.head_width, weights.q_norm, epsilon);
    ops_.HeadRmsNorm(k, config_.head_width, weights.k_norm, epsilon);
  } else if (config_.qk_norm == QkNorm::kRow) {
    ops_.RmsNorm(q, weights.q_norm, epsilon, q);
    ops_.RmsNorm(k, weights.k_norm, epsilon, k);
  }
}

void Forward::Rotate(const LayerBatch& batch, MatrixView q, MatrixView k) {
  const bool own = batch.slides && config_.sliding_rope.has_value();
  const RopeConfig& config = own ? *config_.sliding_rope : config_.rope;
  RopeArgs rope{.x = q,
                .heads = config_.num_heads,
                .head_width = config_.head_width,
                .inverse_frequencies = own ? sliding_inverse_frequencies_ : inverse_frequencies_,
                .magnitude = static_cast<float>(config.magnitude),
                .positions = batch.positions};
  ops_.Rope(rope);
  rope.x = k;
  rope.heads = config_.num_kv_heads;
  ops_.Rope(rope);
}

void Forward::Mix(const LayerBatch& batch, const AttentionRows& rows, Ops& ops) const {
  const float usual_scale = 1.0F / std::sqrt(static_cast<float>(config_.head_width));
  ops.StoreKv({.k = rows.k, .v = rows.v, .layout = kv_layout_, .spans = batch.spans});
  ops.Attention({.q = rows.q,
                 .out = rows.mixed,
                 .layout = kv_layout_,
                 .num_heads = config_.num_heads,
                 .scale = config_.attention_scale > 0.0F ? config_.attention_scale : usual_scale,
                 .softcap = config_.attention_softcap,
                 .window = batch.slides ? config_.sliding_window : 0,
                 .sparse_fraction = sparse_fraction_,
                 .spans = batch.spans});
}

// hidden += down(activation(gate(x)) * up(x)), or down(activation(up(x))) without a gate.
void Forward::FeedForward(const LayerWeights& weights, MatrixView x, std::span<float> scratch,
                          MatrixView hidden) {
  Scratch memory(scratch);
  MatrixView inner = memory.Take(x.rows, config_.ffn_width);
  if (config_.gated_ffn) {
    MatrixView up = memory.Take(x.rows, config_.ffn_width);
    Multiply({{weights.gate, inner}, {weights.up, up}}, x);
    ops_.GatedActivate(config_.activation, inner, up);
  } else {
    Multiply({{weights.up, inner}}, x);
    ops_.Activate(config_.activation, inner);
  }
  AddBranch(weights.down, weights.ffn_branch_norm, inner, memory.rest(), hidden);
}

// hidden += multiplier * norm(projection(x)), each where the family has it.
void Forward::AddBranch(const MatMulWeights& projection, const NormWeights& norm, MatrixView x,
                        std::span<float> scratch, MatrixView hidden) {
  if (!norm.exists() && config_.residual_multiplier == 1.0F) {
    Multiply({{projection, hidden, true}}, x);
    return;
  }
  MatrixView branch = Scratch(scratch).Take(hidden.rows, hidden.columns);
  Multiply({{projection, branch}}, x);
  if (norm.exists()) {
    Norm(norm, branch, branch);
  }
  ops_.AddScaled(branch, config_.residual_multiplier, hidden);
}

void Forward::Norm(const NormWeights& weights, MatrixView x, MatrixView out) {
  if (config_.norm == NormKind::kRms) {
    ops_.RmsNorm(x, weights.weight, config_.norm_epsilon, out);
  } else {
    ops_.LayerNorm(x, weights.weight, weights.bias, config_.norm_epsilon, out);
  }
}

void Forward::Gather(const MatMulWeights& table, std::span<const int32_t> ids, bool accumulate,
                     MatrixView out) {
  std::vector<WeightShardView> in_memory;
  std::vector<ShardIndex> hit;
  for (size_t i = 0; i < table.matrix.shards.size(); ++i) {
    const WeightShardView& shard = table.matrix.shards[i];
    if (shard.data != nullptr) {
      in_memory.push_back(shard);
    } else if (std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return shard.Has(id); })) {
      hit.push_back({table.tensor, i});
    }
  }
  const auto gather = [&](std::span<const WeightShardView> shards) {
    ops_.EmbeddingGather({table.matrix.outputs, table.matrix.inputs, shards}, ids, accumulate, out);
  };
  gather(in_memory);
  if (!hit.empty()) {
    access_->ReadAside(hit, [&](const WeightShardView& shard) { gather({&shard, 1}); });
  }
}

void Forward::Multiply(std::initializer_list<Product> products, MatrixView x) {
  MultiplyInOrder(products, x, access_, ops_);
}

}  // namespace nightshift
