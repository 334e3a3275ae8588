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

absl::Status NotFinite(const HeadRow& row) {
  return absl::InternalError(absl::StrCat("sample request ", row.request_id, " at position ",
                                          row.position,
                                          ": the model gives logits that are not finite"));
}

}  // namespace

// One request a row, two for a draw from adjusted logits.
struct OutputHead::Questions {
  explicit Questions(std::span<const HeadRow> rows);

  std::vector<LogitAdjustment> known_tokens;
  std::vector<HeadRequest> requests;
  std::vector<HeadState> states;  // one a request
  // Indices of requests, for each row: whose own logits a token is reported from, and the one that
  // draws it. The same where nothing is adjusted.
  std::vector<size_t> report;
  std::vector<size_t> draw;
};

OutputHead::Questions::Questions(std::span<const HeadRow> rows) {
  known_tokens.reserve(rows.size());  // requests keep addresses in it
  for (size_t i = 0; i < rows.size(); ++i) {
    const HeadRow& row = rows[i];
    const auto ask = [&](HeadRequest request, std::span<const LogitAdjustment> adjustments) {
      request.row = static_cast<int64_t>(i);
      request.adjustments = adjustments;
      requests.push_back(request);
    };
    report.push_back(requests.size());
    if (row.known_token.has_value()) {
      known_tokens.push_back({.token = *row.known_token});
      ask(MakeReportRequest(row.sampling->prompt_logprobs.value_or(0)), {&known_tokens.back(), 1});
    } else {
      if (!row.adjustments.empty()) {
        ask(MakeReportRequest(row.sampling->top_logprobs), {});
      }
      ask(MakeDrawRequest(*row.sampling, row.position), row.adjustments);
    }
    draw.push_back(requests.size() - 1);
  }
  states.assign(requests.size(), InitialHeadState());
}

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
  for (const HeadRow& row : rows) {
    hidden_rows.push_back(row.row);
  }
  std::span<float> rest;
  const MatrixView finished = FinishRows(hidden, hidden_rows, scratch, rest);
  Questions questions(rows);
  Ask(finished, rest, questions);
  for (size_t i = 0; i < rows.size(); ++i) {
    const HeadRow& row = rows[i];
    const HeadState& own = questions.states[questions.report[i]];
    const HeadState& drawn_from = questions.states[questions.draw[i]];
    if (!HasFiniteLogits(own) || drawn_from.candidates.empty()) {
      return NotFinite(row);
    }
    if (row.known_token.has_value()) {
      results.push_back(Report(*row.known_token, own.unadjusted.front(), own,
                               row.sampling->prompt_logprobs.value_or(0)));
      continue;
    }
    const Candidate drawn = DrawToken(row, i, finished, rest, questions);
    const float logit = UnadjustedLogit(drawn.token, drawn.logit,
                                        questions.requests[questions.draw[i]], drawn_from);
    results.push_back(Report(drawn.token, logit, own, row.sampling->top_logprobs));
  }
  return absl::OkStatus();
}

void OutputHead::Ask(MatrixView finished, std::span<float> scratch, Questions& questions) {
  for (const Chunk& chunk : chunks_) {
    MatrixView logits = Scratch(scratch).Take(finished.rows, chunk.weight.outputs);
    ops_.MatMul({.x = finished, .weight = chunk.weight, .out = logits});
    forward_.CapLogits(logits);
    ops_.HeadReduce({.logits = logits,
                     .first_token = chunk.first_token,
                     .requests = questions.requests,
                     .states = questions.states});
  }
}

Candidate OutputHead::DrawToken(const HeadRow& row, size_t index, MatrixView finished,
                                std::span<float> scratch, Questions& questions) {
  const HeadRequest& request = questions.requests[questions.draw[index]];
  HeadState& state = questions.states[questions.draw[index]];
  std::optional<Candidate> drawn = Draw(*row.sampling, request, state, config_.vocabulary);
  if (!drawn.has_value()) {
    const std::span<float> logits =
        RowLogits(finished.Rows(static_cast<int64_t>(index), 1), scratch);
    for (const LogitAdjustment& adjustment : request.adjustments) {
      float& logit = logits[static_cast<size_t>(adjustment.token)];
      logit = AdjustLogit(adjustment, logit);
    }
    state.candidates = SortedCandidates(logits);
    drawn = Draw(*row.sampling, request, state, config_.vocabulary);
  }
  return *drawn;
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

std::span<float> OutputHead::RowLogits(MatrixView finished_row, std::span<float> scratch) {
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
