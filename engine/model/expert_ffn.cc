#include "engine/model/expert_ffn.h"

#include <algorithm>
#include <numeric>

#include "engine/model/scratch.h"
#include "kernels/base/check.h"

namespace nightshift {

ExpertFeedForward::ExpertFeedForward(const ModelConfig& config, int64_t piece_rows, Ops& ops,
                                     WeightAccess* access)
    : config_(config), piece_rows_(piece_rows), ops_(ops), access_(access) {}

int64_t ExpertFeedForward::ScratchFloats(const ModelConfig& config, int64_t rows,
                                         int64_t piece_rows) {
  if (!config.experts) {
    return 0;
  }
  const int64_t width = RowStride(config.model_width);
  const int64_t expert = 2 * width + 2 * RowStride(config.experts->ffn_width);
  return rows * width + piece_rows * std::max(expert, RowStride(config.experts->count));
}

void ExpertFeedForward::Run(const LayerWeights& weights, std::span<float> scratch,
                            MatrixView hidden) {
  Scratch memory(scratch);
  // What the experts read must not change while they add to `hidden`.
  MatrixView x = memory.Take(hidden.rows, config_.model_width);
  ops_.RmsNorm(hidden, weights.ffn_norm.weight, config_.norm_epsilon, x);
  Route(weights.router, x, memory.rest());
  ListRowsByExpert();
  if (access_ != nullptr) {
    BeginExperts(weights.experts);
  }
  for (size_t expert = 0; expert < weights.experts.size(); ++expert) {
    const size_t first = static_cast<size_t>(first_of_expert_[expert]);
    const size_t count = static_cast<size_t>(first_of_expert_[expert + 1]) - first;
    RunExpert(weights.experts[expert], std::span(rows_).subspan(first, count),
              std::span(factors_).subspan(first, count), x, memory.rest(), hidden);
  }
}

void ExpertFeedForward::Route(const MatMulWeights& router, MatrixView x, std::span<float> scratch) {
  const ExpertConfig& experts = *config_.experts;
  const size_t per_token = static_cast<size_t>(experts.per_token);
  choices_.resize(static_cast<size_t>(x.rows) * per_token);
  for (int64_t first = 0; first < x.rows; first += piece_rows_) {
    const int64_t count = std::min(piece_rows_, x.rows - first);
    MatrixView logits = Scratch(scratch).Take(count, experts.count);
    const Product product{router, logits};
    MultiplyInOrder({&product, 1}, x.Rows(first, count), access_, ops_);
    const auto num_experts = static_cast<size_t>(experts.count);
    logits_.resize(static_cast<size_t>(count) * num_experts);
    ops_.ReadRows(logits, logits_);
    for (int64_t row = 0; row < count; ++row) {
      ChooseExperts(
          std::span(logits_).subspan(static_cast<size_t>(row) * num_experts, num_experts),
          experts.normalise,
          std::span(choices_).subspan(static_cast<size_t>(first + row) * per_token, per_token));
    }
  }
}

// A counting sort, so that rows stay in order.
void ExpertFeedForward::ListRowsByExpert() {
  const ExpertConfig& experts = *config_.experts;
  first_of_expert_.assign(static_cast<size_t>(experts.count) + 1, 0);
  for (const ExpertChoice& choice : choices_) {
    ++first_of_expert_[static_cast<size_t>(choice.expert) + 1];
  }
  std::partial_sum(first_of_expert_.begin(), first_of_expert_.end(), first_of_expert_.begin());
  std::vector<int64_t> next(first_of_expert_.begin(), first_of_expert_.end() - 1);
  rows_.resize(choices_.size());
  factors_.resize(choices_.size());
  for (size_t i = 0; i < choices_.size(); ++i) {
    const size_t place = static_cast<size_t>(next[static_cast<size_t>(choices_[i].expert)]++);
    rows_[place] = static_cast<int64_t>(i) / experts.per_token;
    factors_[place] = choices_[i].weight;
  }
}

void ExpertFeedForward::BeginExperts(std::span<const ExpertWeights> experts) {
  hit_.clear();
  streamed_.clear();
  next_streamed_ = 0;
  const auto add = [&](const MatMulWeights& weights) {
    for (size_t i = 0; i < weights.matrix.shards.size(); ++i) {
      if (weights.matrix.shards[i].data == nullptr) {
        streamed_.push_back({weights.tensor, i});
      }
    }
  };
  for (size_t expert = 0; expert < experts.size(); ++expert) {
    const int64_t rows = first_of_expert_[expert + 1] - first_of_expert_[expert];
    if (rows > 0) {
      hit_.push_back(expert);
    }
    for (int64_t first = 0; first < rows; first += piece_rows_) {
      add(experts[expert].gate);
      add(experts[expert].up);
      add(experts[expert].down);
    }
  }
  access_->BeginExperts({.experts = experts, .hit = hit_, .streamed = streamed_});
}

void ExpertFeedForward::RunExpert(const ExpertWeights& weights, std::span<const int64_t> rows,
                                  std::span<const float> factors, MatrixView x,
                                  std::span<float> scratch, MatrixView hidden) {
  const size_t piece = static_cast<size_t>(piece_rows_);
  for (size_t first = 0; first < rows.size(); first += piece) {
    const size_t count = std::min(piece, rows.size() - first);
    const std::span<const int64_t> piece_rows = rows.subspan(first, count);
    const int64_t num_rows = static_cast<int64_t>(count);
    Scratch memory(scratch);
    MatrixView input = memory.Take(num_rows, config_.model_width);
    MatrixView gate = memory.Take(num_rows, config_.experts->ffn_width);
    MatrixView up = memory.Take(num_rows, config_.experts->ffn_width);
    MatrixView output = memory.Take(num_rows, config_.model_width);
    ops_.GatherRows(x, piece_rows, input);
    Multiply({{weights.gate, gate}, {weights.up, up}}, input);
    ops_.GatedActivate(config_.activation, gate, up);
    Multiply({{weights.down, output}}, gate);
    ops_.AddScaledRows(output, piece_rows, factors.subspan(first, count), hidden);
  }
}

void ExpertFeedForward::Multiply(std::initializer_list<Product> products, MatrixView x) {
  bool same_x = false;
  for (const auto& [weights, out, accumulate] : products) {
    for (size_t i = 0; i < weights.matrix.shards.size(); ++i) {
      const ShardIndex shard{weights.tensor, i};
      const bool is_streamed =
          next_streamed_ < streamed_.size() && streamed_[next_streamed_] == shard;
      ops_.MatMul({.x = x,
                   .weight = is_streamed ? access_->AcquireOfExpert(shard) : weights.matrix.shards[i],
                   .bias = weights.bias,
                   .out = out,
                   .accumulate = accumulate,
                   .same_x = same_x});
      same_x = true;
      if (is_streamed) {
        ++next_streamed_;
        access_->ReleaseOfExpert();
      }
    }
  }
}

}  // namespace nightshift
