// ExpertFeedForward: the feed-forward branch of layers with experts.
//
// It runs over all rows of a sweep at once, not batch by batch, so that a sweep reads each expert's
// weights once, whatever the block: rows are routed, listed by expert, and each expert computes its
// rows. A row's experts add to it in ascending order, so its bits do not depend on the others.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/linear.h"
#include "engine/model/router.h"
#include "engine/model/weights.h"
#include "kernels/ops.h"

namespace nightshift {

class ExpertFeedForward {
 public:
  // References must outlive this. Rows are routed and computed at most `piece_rows` at a time,
  // which bounds scratch. `access` brings the shards that have no data; null when all have.
  ExpertFeedForward(const ModelConfig& config, int64_t piece_rows, Ops& ops,
                    WeightAccess* access = nullptr);

  // Floats of scratch that a call with `rows` rows needs; 0 for models without experts.
  static int64_t ScratchFloats(const ModelConfig& config, int64_t rows, int64_t piece_rows);

  // hidden [T, E] += for each row the weighted sum of its experts of norm(hidden). An expert is
  // down(activation(gate(x)) * up(x)).
  void Run(const LayerWeights& weights, std::span<float> scratch, MatrixView hidden);

 private:
  void Route(const MatMulWeights& router, MatrixView x, std::span<float> scratch);
  void ListRowsByExpert();
  // Tells `access_` what will be used of experts that some row chose.
  void BeginExperts(std::span<const ExpertWeights> experts);
  void RunExpert(const ExpertWeights& weights, std::span<const int64_t> rows,
                 std::span<const float> factors, MatrixView x, std::span<float> scratch,
                 MatrixView hidden);
  // As MultiplyInOrder; an expert's shards that are not in memory are acquired as such.
  void Multiply(std::initializer_list<Product> products, MatrixView x);

  const ModelConfig& config_;
  int64_t piece_rows_;
  Ops& ops_;
  WeightAccess* access_;
  // Reused from layer to layer.
  std::vector<float> logits_;             // of the router, on the host
  std::vector<ExpertChoice> choices_;     // [T, per_token]
  std::vector<int64_t> first_of_expert_;  // [X + 1] where an expert's rows begin in the next two
  std::vector<int64_t> rows_;             // by expert, ascending in each
  std::vector<float> factors_;            // of the expert's output for that row
  std::vector<size_t> hit_;               // experts that some row chose
  std::vector<ShardIndex> streamed_;      // their shards that are not in memory, in order of use
  size_t next_streamed_ = 0;              // of these
};

}  // namespace nightshift
