#include "engine/execute/output_head.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"

#include "engine/model/scratch.h"
#include "engine/sampling/sampler.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// 32 panels: logits of a group and a chunk (256 x 2048 x 4 bytes = 2 MiB) stay in the cache until
// they are folded, and every chunk is still work enough for all threads.
constexpr int64_t kChunkTokens = 2048;
// Rows that go through the head together; the head's weights are read once a group.
constexpr int64_t kGroupRows = 256;

}  // namespace

OutputHead::OutputHead(const ModelConfig& config, const ModelWeights& weights, Forward& forward,
                       Ops& ops)
    : config_(config), weights_(weights), forward_(forward), ops_(ops) {
  for (const WeightShardView& shard : weights.head.matrix.shards) {
    for (int64_t first = 0; first < shard.outputs; first += kChunkTokens) {
      Chunk chunk{shard, static_cast<int32_t>(shard.first_output + first)};
      chunk.weight.first_output = 0;
      chunk.weight.outputs = std::min(kChunkTokens, shard.outputs - first);
      chunk.weight.data += first / kPanelOutputs * shard.panel_elements() * FloatBytes(shard.dtype);
      chunks_.push_back(chunk);
    }
  }
}

int64_t OutputHead::ScratchFloats(const ModelConfig& config) {
  const int64_t finished = RowStride(config.model_width) + RowStride(config.embedding_width);
  return kGroupRows * finished + std::max(kGroupRows * kChunkTokens, RowStride(config.vocabulary));
}

absl::StatusOr<std::vector<TokenLogprob>> OutputHead::Sample(MatrixView hidden,
                                                             std::span<const HeadRow> rows,
                                                             std::span<float> scratch) {
  std::vector<TokenLogprob> results;
  results.reserve(rows.size());
  while (!rows.empty()) {
    const size_t count = std::min(rows.size(), static_cast<size_t>(kGroupRows));
    RETURN_IF_ERROR(SampleGroup(hidden, rows.first(count), scratch, results));
    rows = rows.subspan(count);
  }
  return results;
}

absl::Status OutputHead::SampleGroup(MatrixView hidden, std::span<const HeadRow> rows,
                                     std::span<float> scratch, std::vector<TokenLogprob>& results) {
  std::vector<int64_t> hidden_rows;
  std::vector<HeadRequest> requests;
  for (const HeadRow& row : rows) {
    hidden_rows.push_back(row.row);
    requests.push_back(MakeHeadRequest(*row.sampling, row.position));
  }
  std::span<float> rest;
  MatrixView finished = FinishRows(hidden, hidden_rows, scratch, rest);
  std::vector<HeadState> states(rows.size(), InitialHeadState());
  for (const Chunk& chunk : chunks_) {
    MatrixView logits = Scratch(rest).Take(finished.rows, chunk.weight.outputs);
    ops_.MatMul({.x = finished, .weight = chunk.weight, .out = logits});
    forward_.CapLogits(logits);
    ops_.HeadReduce({.logits = logits,
                     .first_token = chunk.first_token,
                     .requests = requests,
                     .states = states});
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!HasFiniteLogits(states[i])) {
      return absl::InternalError(absl::StrCat("sample request ", rows[i].request_id,
                                              " at position ", rows[i].position,
                                              ": the model gives logits that are not finite"));
    }
    const SamplingParams& sampling = *rows[i].sampling;
    std::optional<TokenLogprob> token =
        nightshift::Sample(sampling, requests[i], states[i], config_.vocabulary);
    if (!token.has_value()) {
      states[i].candidates =
          SortedCandidates(RowLogits(finished.Rows(static_cast<int64_t>(i), 1), rest));
      token = nightshift::Sample(sampling, requests[i], states[i], config_.vocabulary);
    }
    results.push_back(*std::move(token));
  }
  return absl::OkStatus();
}

std::vector<float> OutputHead::Logits(MatrixView hidden, std::span<const int64_t> rows,
                                      std::span<float> scratch) {
  std::vector<float> all;
  for (const int64_t row : rows) {
    std::span<float> rest;
    MatrixView finished = FinishRows(hidden, {&row, 1}, scratch, rest);
    const std::span<const float> logits = RowLogits(finished, rest);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

MatrixView OutputHead::FinishRows(MatrixView hidden, std::span<const int64_t> rows,
                                  std::span<float> scratch, std::span<float>& rest) {
  const int64_t count = static_cast<int64_t>(rows.size());
  Scratch memory(scratch);
  MatrixView finished = memory.Take(count, config_.embedding_width);
  MatrixView gathered = memory.Take(count, config_.model_width);
  ops_.GatherRows(hidden, rows, gathered);
  forward_.Finish(weights_, gathered, finished);
  rest = memory.rest();
  return finished;
}

std::span<const float> OutputHead::RowLogits(MatrixView finished_row, std::span<float> scratch) {
  MatrixView logits = Scratch(scratch).Take(1, config_.vocabulary);
  for (const Chunk& chunk : chunks_) {
    ops_.MatMul({.x = finished_row,
                 .weight = chunk.weight,
                 .out = logits.Columns(chunk.first_token, chunk.weight.outputs)});
  }
  forward_.CapLogits(logits);
  return {logits.data, static_cast<size_t>(config_.vocabulary)};
}

}  // namespace nightshift
