// OutputHead: from the last hidden rows of requests to sampled tokens.
//
// Walks the vocabulary in chunks that depend on the model alone and folds each chunk's logits into
// a small state or two a row, so the logits of all rows are never in memory together. As many rows
// as scratch holds share one walk, so that scoring a sweep's prompts reads a streamed head once.
// Rows whose cuts (min-p, top-k, top-p) need more than the kept candidates take a second pass with
// their whole row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/config.h"
#include "engine/model/forward.h"
#include "engine/model/weights.h"
#include "engine/sampling/sampling_params.h"
#include "kernels/ops.h"

namespace nightshift {

// One row and the token that follows it: one to draw, or a known one to report.
struct HeadRow {
  uint64_t request_id = 0;  // for messages
  int64_t row = 0;          // of the sweep
  int64_t position = 0;     // of the token in its sequence
  const SamplingParams* sampling = nullptr;
  std::span<const LogitAdjustment> adjustments;  // for a draw, as LogitAdjuster gives them
  std::optional<int32_t> known_token;  // with as many alternatives as prompt_logprobs says
};

class OutputHead {
 public:
  // Gives the hidden rows [R, E] of the given indices of the sweep, in order.
  using GatherHidden = std::function<void(std::span<const int64_t>, MatrixView)>;

  // References must outlive this. `access` brings the shards that are not in memory; null when all
  // are.
  OutputHead(const ModelConfig& config, const ModelWeights& weights, WeightAccess* access,
             Forward& forward, Ops& ops);

  // Floats of scratch that Sample and Logits need, whatever the number of rows. More of it saves
  // walks.
  static int64_t ScratchFloats(const ModelConfig& config);

  // Gives one token a row. Errors: INTERNAL naming the request whose logits are not finite.
  absl::StatusOr<std::vector<TokenLogprob>> Sample(const GatherHidden& gather,
                                                   std::span<const HeadRow> rows,
                                                   std::span<float> scratch);

  // All logits of the given rows: [rows, V] in order, for tests.
  std::vector<float> Logits(const GatherHidden& gather, std::span<const int64_t> rows,
                            std::span<float> scratch);

 private:
  // Which look at the head: the one that every sweep takes, or one more.
  enum class Look : uint8_t { kOfSweep, kFurther };
  // A chunk of the head, its outputs counted from 0, and the token of its first.
  using UseChunk = std::function<void(const WeightShardView&, int32_t)>;

  // Walks the whole head in ascending order of tokens.
  void ForEachChunk(Look look, const UseChunk& use);

  // What the head is asked about a group of rows.
  struct Questions;

  // Rows that one walk has room for.
  size_t RowsOfWalk(std::span<const float> scratch) const;
  absl::Status SampleRows(const GatherHidden& gather, std::span<const HeadRow> rows, Look look,
                          std::span<float> scratch, std::vector<TokenLogprob>& results);
  // Folds all logits of `finished`, cut into groups, into the questions' states.
  void Ask(MatrixView finished, Look look, std::span<float> scratch, std::span<Questions> groups);
  absl::StatusOr<TokenLogprob> Answer(const HeadRow& row, size_t index, MatrixView group,
                                      std::span<float> scratch, Questions& questions);
  // Draws the token of row `index` of the group, whose finished rows are given.
  Candidate DrawToken(const HeadRow& row, size_t index, MatrixView group, std::span<float> scratch,
                      Questions& questions);
  // The rows ready for the head, in the front of scratch; `rest` is what is left of it.
  MatrixView FinishRows(const GatherHidden& gather, std::span<const int64_t> rows,
                        std::span<float> scratch, std::span<float>& rest);
  // Whole logits of finished rows, [R, V], in the front of scratch, which bounds R.
  MatrixView WholeLogits(MatrixView finished, Look look, std::span<float> scratch);

  const ModelConfig& config_;
  const ModelWeights& weights_;
  WeightAccess* access_;
  Forward& forward_;
  Ops& ops_;
};

}  // namespace nightshift
