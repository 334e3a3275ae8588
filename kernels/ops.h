// Ops: what a device can compute. The only seam between the engine and a device's kernels.
//
// Shapes use the letters of tensor_view.h. Activations are f32; the compute type decides how
// matmuls multiply and how KV is stored. Every op is batch-invariant: the bits of a row do not
// depend on which other rows are in the call (design: numbers are part of the contract). Sums over
// k run in one fixed order for every row count and thread count.
// Errors: shapes are the caller's duty (CHECK); a device's own fault is kept and returned by the
// device's next wait.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/kv_page.h"
#include "kernels/tensor_view.h"

namespace nightshift {

enum class Activation : uint8_t { kNone, kRelu, kSilu, kGeluTanh, kGeluErf };

// out[t, n] (+)= sum_k x[t, k] * weight[n, k] + bias[n], for the rows n of one shard.
struct MatMulArgs {
  MatrixView x;                 // [T, K]
  WeightShardView weight;       // some rows of [N, K]
  const float* bias = nullptr;  // [N] of the whole matrix, or none
  MatrixView out;               // [T, N] of the whole matrix; columns of the shard are written
  bool accumulate = false;      // add to `out` instead of overwriting (residual)
  // The matmul before this one read the same x, which has not changed since: what was prepared of
  // it (packed rows) is used again.
  bool same_x = false;
};

// One request's rows in a ragged batch: `num_rows` rows from `first_row`, at consecutive positions
// from `first_position`. `pages` covers positions [0, first_position + num_rows) in order; pages of
// positions that no row sees (behind the window) may be null.
struct AttentionSpan {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_position = 0;
  // Rows at this position and behind it are sparse, where sparse_fraction is below 1.
  int64_t sparse_from = std::numeric_limits<int64_t>::max();
  std::span<std::byte* const> pages;
};

struct AttentionArgs {
  MatrixView q;    // [T, H*D]
  MatrixView out;  // [T, H*D]; must not overlap q
  KvPageLayout layout;
  int64_t num_heads = 0;  // H, a multiple of G; query head h reads kv head h / (H / G)
  float scale = 1.0F;     // multiplies q.k
  float softcap = 0.0F;   // above 0: scaled scores s become softcap * tanh(s / softcap)
  int64_t window = 0;     // above 0: a query sees that many keys, its own the last; 0: all
  // In (0, 1]. Below 1 each query of a sparse row adds up few values: of its own key, and of the n
  // others that it sees the floor(sparse_fraction * n) of the largest weights, of equal ones those
  // at lower positions. Weights are of the softmax over all keys and stay as they are.
  // Source: FlexGen (Sheng et al. 2023), sparse attention.
  double sparse_fraction = 1.0;
  std::span<const AttentionSpan> spans;
};

struct StoreKvArgs {
  MatrixView k;  // [T, G*D]
  MatrixView v;  // [T, G*D]
  KvPageLayout layout;
  std::span<const AttentionSpan> spans;
};

struct RopeArgs {
  MatrixView x;  // [T, heads*D], rotated in place
  int64_t heads = 0;
  int64_t head_width = 0;
  // Angle per position of pair i (dimension i with i + size/2); rotated dimensions = 2 * size.
  std::span<const float> inverse_frequencies;
  float magnitude = 1.0F;              // multiplies cos and sin (yarn); 1 elsewhere
  std::span<const int32_t> positions;  // [T]
};

// How a sampler changes the logit of one token: see AdjustLogit. One that changes nothing only asks
// for the logit.
struct LogitAdjustment {
  int32_t token = 0;
  float bias = 0.0F;        // -infinity bans the token
  float repetition = 1.0F;  // above 0
  float penalty = 0.0F;
};

// The logit after its adjustment, in this order, each step rounded to f32: plus the bias; divided
// by `repetition` where positive, else multiplied by it; minus the penalty.
inline float AdjustLogit(const LogitAdjustment& adjustment, float logit) {
  logit += adjustment.bias;
  logit = logit > 0.0F ? logit / adjustment.repetition : logit * adjustment.repetition;
  return logit - adjustment.penalty;
}

// What the sampler asks of the output head about one row of logits. Several requests may read one
// row.
struct HeadRequest {
  int64_t row = 0;
  float temperature = 0.0F;    // 0: greedy, no noise
  uint64_t noise_key = 0;      // a hash of (seed, request, position); see NoiseAt
  int32_t num_candidates = 1;  // how many of the best logits to keep, >= 1
  // Tokens ascend, none twice. All that the state holds is of the adjusted logits.
  std::span<const LogitAdjustment> adjustments = {};
};

struct Candidate {
  int32_t token = 0;
  float logit = 0.0F;
};

// Running result of one request while the head walks vocabulary shards in ascending order.
struct HeadState {
  float max_logit;  // start at -infinity
  double sum_exp;   // of logits relative to max_logit
  // Of logits / temperature relative to max_logit / temperature; stays 0 when greedy.
  double tempered_sum_exp;
  float best_noisy;          // start at -infinity
  int32_t noisy_winner;      // argmax of logit / temperature + Gumbel noise; -1 at start
  float noisy_winner_logit;  // its logit, before temperature and noise
  // Best first; equal logits: the lower token first. NaN and -infinity never enter, nor do they
  // win; a NaN shows in sum_exp, unless all are.
  std::vector<Candidate> candidates;
  // The logits of the request's adjusted tokens before their adjustment, as far as they came.
  std::vector<float> unadjusted;
};

struct HeadReduceArgs {
  MatrixView logits;  // [T, n] of tokens [first_token, first_token + n)
  int32_t first_token = 0;
  std::span<const HeadRequest> requests;
  std::span<HeadState> states;  // one a request, continued
};

// Gumbel(0, 1) noise of a token: a pure function of its key and the token id, the same on every
// device. Uniform from a counter-based 64-bit hash (SplitMix64 finaliser), never 0 or 1. Keys are
// hashes: two that differ by a multiple of SplitMix64's constant would share noise, shifted.
float NoiseAt(uint64_t noise_key, int32_t token);

class Ops {
 public:
  virtual ~Ops() = default;

  // out[t] = table[ids[t]] (+ out[t] when `accumulate`). table [V, E] in the matmul layout.
  // ids in [0, V); rows whose id no shard of the table has stay as they are. In compute type bf16
  // values are those that a matmul would multiply by: of bf16, also where groups stand for others.
  virtual void EmbeddingGather(const WeightView& table, std::span<const int32_t> ids,
                               bool accumulate, MatrixView out) = 0;
  // out = x / sqrt(mean(x^2) + epsilon) * weight. x, out [T, E]; may be the same.
  virtual void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) = 0;
  // out = (x - mean) / sqrt(variance + epsilon) * weight + bias. x, out [T, E]; may be the same.
  virtual void LayerNorm(MatrixView x, const float* weight, const float* bias, float epsilon,
                         MatrixView out) = 0;
  // RmsNorm in place of each head of every row by one weight [D]. x [T, heads*D].
  virtual void HeadRmsNorm(MatrixView x, int64_t head_width, const float* weight,
                           float epsilon) = 0;
  virtual void MatMul(const MatMulArgs& args) = 0;
  virtual void Rope(const RopeArgs& args) = 0;
  // Writes the rows' keys and values into their pages, rounded to the pages' type.
  virtual void StoreKv(const StoreKvArgs& args) = 0;
  // Causal attention over the pages, those of the call's own rows included (StoreKv goes first),
  // of the last `window` keys where there is one.
  // Key tiles of 64 from position 0, merged in ascending order; never materialises T x T.
  virtual void Attention(const AttentionArgs& args) = 0;
  // x = activation(x) in place. x [T, F].
  virtual void Activate(Activation activation, MatrixView x) = 0;
  // gate = activation(gate) * up in place. gate, up [T, F].
  virtual void GatedActivate(Activation activation, MatrixView gate, MatrixView up) = 0;
  // x = factor * x in place.
  virtual void Scale(float factor, MatrixView x) = 0;
  // out = out + factor * x. x, out [T, E].
  virtual void AddScaled(MatrixView x, float factor, MatrixView out) = 0;
  // x = cap * tanh(x / cap) in place; cap > 0.
  virtual void SoftCap(float cap, MatrixView x) = 0;
  // out[rows[i]] = out[rows[i]] + factors[i] * x[i]. x [n, E], out [T, E]; no row twice.
  virtual void AddScaledRows(MatrixView x, std::span<const int64_t> rows,
                             std::span<const float> factors, MatrixView out) = 0;
  // out[i] = x[rows[i]].
  virtual void GatherRows(MatrixView x, std::span<const int64_t> rows, MatrixView out) = 0;
  // Folds the logits of one vocabulary shard into the requests' states.
  virtual void HeadReduce(const HeadReduceArgs& args) = 0;
  // Copies x to the host's memory, row behind row; returns when it is there, behind all ops before.
  // This one is for devices whose memory the host reads.
  virtual void ReadRows(MatrixView x, std::span<float> to);
};

}  // namespace nightshift
