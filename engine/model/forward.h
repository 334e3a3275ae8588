// Forward: the transformer as the papers write it, for every family of the table (families.h).
//
// A family is data (ModelConfig): which norms and where, which positions, which activation. One
// sweep is Embed, then Layer for each layer, then Finish; the caller decides which rows go in a
// call and where the weights come from. Every call is batch-invariant like the ops it uses.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/config.h"
#include "engine/model/linear.h"
#include "engine/model/weights.h"
#include "kernels/kv_page.h"
#include "kernels/ops.h"

namespace nightshift {

// The layout of the model's KV pages.
KvPageLayout KvLayoutOf(const ModelConfig& config, ComputeType compute_type,
                        std::optional<DType> kv_type);

// The magnitude of yarn where a source gives none. factor > 0.
// Source: YaRN (Peng et al. 2023) eq. 22.
double YarnMagnitude(double factor);

// Angle per position of each rotated pair, with the configuration's scaling.
// Source: RoFormer (Su et al. 2021) section 3.4; llama3 scaling as in the Llama 3.1 release; YaRN
// section 3.2.
std::vector<float> InverseFrequencies(const RopeConfig& rope);

// One batch at one layer.
struct LayerBatch {
  bool slides = false;                   // queries see the window only
  std::span<const int32_t> positions;    // [T]
  std::span<const AttentionSpan> spans;  // the rows by sequence, pages of this layer
};

// What crosses between the parts of a layer, for the rows of one batch: projections and what
// attention makes of them.
struct AttentionRows {
  MatrixView q;      // [T, H*D]
  MatrixView k;      // [T, G*D]
  MatrixView v;      // [T, G*D]
  MatrixView mixed;  // [T, H*D]

  // Floats that Carve takes.
  static int64_t Floats(const ModelConfig& config, int64_t rows);
  // In this order, without gaps, so that q, k and v of all rows are one stretch of memory.
  static AttentionRows Carve(const ModelConfig& config, int64_t rows, std::span<float> memory);
};

class Forward {
 public:
  // References must outlive this; `ops` decides the compute type. `access` brings the shards that
  // have no data; null when all have. `sparse_fraction` as AttentionArgs has it.
  Forward(const ModelConfig& config, const KvPageLayout& kv_layout, Ops& ops,
          WeightAccess* access = nullptr, double sparse_fraction = 1.0);

  // Floats of scratch that a call with `rows` rows needs.
  static int64_t ScratchFloats(const ModelConfig& config, int64_t rows);

  // hidden [T, E] = token embeddings (projected, multiplied), with learned positions added.
  void Embed(const ModelWeights& weights, std::span<const int32_t> ids,
             std::span<const int32_t> positions, std::span<float> scratch, MatrixView hidden);

  // Advances hidden [T, E] by one layer and stores the rows' keys and values in their pages: the
  // three parts below one after the other. Of a layer with experts only the attention branch;
  // expert_ffn.h has the other one.
  void Layer(const LayerWeights& weights, const LayerBatch& batch, std::span<float> scratch,
             MatrixView hidden);

  // The parts of a layer. Between BeginLayer and FinishLayer of a batch others may be computed, and
  // `hidden` stays as it is.
  //
  // q, k and v of the rows, normalised and rotated where the family does.
  void BeginLayer(const LayerWeights& weights, const LayerBatch& batch, std::span<float> scratch,
                  MatrixView hidden, const AttentionRows& rows);
  // Stores k and v of the rows of batch.spans in their pages; mixed = attention of their q over
  // them. Spans may be some of the batch's, others being mixed elsewhere.
  // Threads: may run beside the other calls, with another Ops than this one's: the host's.
  void Mix(const LayerBatch& batch, const AttentionRows& rows, Ops& ops) const;
  // Adds the attention branch, from mixed [T, H*D], to hidden; then the feed-forward branch, unless
  // the layer has experts.
  // Aliasing: mixed may lie in scratch, behind its first BranchFloats.
  void FinishLayer(const LayerWeights& weights, MatrixView mixed, std::span<float> scratch,
                   MatrixView hidden);
  static int64_t BranchFloats(const ModelConfig& config, int64_t rows);

  // out [T, W]: hidden [T, E] normalised, projected and multiplied, ready for the head. Overwrites
  // hidden.
  void Finish(const ModelWeights& weights, MatrixView hidden, MatrixView out);

  // Logits of the model from the products of finished rows and the head, in place.
  void CapLogits(MatrixView logits);

 private:
  void Norm(const NormWeights& weights, MatrixView x, MatrixView out);
  // out (+)= rows of `table` by `ids`.
  void Gather(const MatMulWeights& table, std::span<const int32_t> ids, bool accumulate,
              MatrixView out);
  void Multiply(std::initializer_list<Product> products, MatrixView x);
  void AttentionInputs(const LayerWeights& weights, const LayerBatch& batch, MatrixView x,
                       const AttentionRows& rows);
  void AttentionOutput(const LayerWeights& weights, MatrixView mixed, std::span<float> scratch,
                       MatrixView hidden);
  void NormQueriesAndKeys(const LayerWeights& weights, MatrixView q, MatrixView k);
  void Rotate(const LayerBatch& batch, MatrixView q, MatrixView k);
  void FeedForward(const LayerWeights& weights, MatrixView x, std::span<float> scratch,
                   MatrixView hidden);
  void AddBranch(const MatMulWeights& projection, const NormWeights& norm, MatrixView x,
                 std::span<float> scratch, MatrixView hidden);

  const ModelConfig& config_;
  KvPageLayout kv_layout_;
  Ops& ops_;
  WeightAccess* access_;
  double sparse_fraction_;
  std::vector<float> inverse_frequencies_;
  std::vector<float> sliding_inverse_frequencies_;
  std::vector<int32_t> learned_rows_;  // reused: positions + offset
};

}  // namespace nightshift
