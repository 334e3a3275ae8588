#include "engine/execute/output_head.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/model/scratch.h"
#include "engine/sampling/sampler.h"
#include "kernels/base/status_macros.h"
#include "kernels/group_format.h"

namespace nightshift {
namespace {

// 32 panels: logits of a group and a chunk (256 x 2048 x 4 bytes = 2 MiB) stay in the cache until
// they are folded, and every chunk is still work enough for all threads.
constexpr int64_t kChunkTokens = 2048;
// Rows whose logits of a chunk are in memory together.
constexpr int64_t kGroupRows = 256;

struct Group {
  int64_t first = 0;
  int64_t rows = 0;

  size_t size() const { return static_cast<size_t>(rows); }
};

std::vector<Group> GroupsOf(int64_t rows) {
  std::vector<Group> groups;
  for (int64_t first = 0; first < rows; first += kGroupRows) {
    groups.push_back({first, std::min(kGroupRows, rows - first)});
  }
  return groups;
}

// What a walk takes at one time beside the rows that it is about: hidden rows of a group, its
// logits of a chunk, or all logits of one row.
int64_t FloatsBesideRows(const ModelConfig& config) {
  return std::max({kGroupRows * RowStride(config.model_width), kGroupRows * RowStride(kChunkTokens),
                   RowStride(config.vocabulary)});
}

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

OutputHead::OutputHead(const ModelConfig& config, const ModelWeights& weights, WeightAccess* access,
                       Forward& forward, Ops& ops)
    : config_(config), weights_(weights), access_(access), forward_(forward), ops_(ops) {}

int64_t OutputHead::ScratchFloats(const ModelConfig& config) {
  return kGroupRows * RowStride(config.embedding_width) + FloatsBesideRows(config);
}

size_t OutputHead::RowsOfWalk(std::span<const float> scratch) const {
  const int64_t room = static_cast<int64_t>(scratch.size()) - FloatsBesideRows(config_);
  return static_cast<size_t>(room / RowStride(config_.embedding_width));
}

absl::StatusOr<std::vector<TokenLogprob>> OutputHead::Sample(const GatherHidden& gather,
                                                             std::span<const HeadRow> rows,
                                                             std::span<float> scratch) {
  std::vector<TokenLogprob> results;
  results.reserve(rows.size());
  if (rows.empty()) {
    // Past what is streamed of the head, so that the next sweep begins at its first layer.
    ForEachChunk(Look::kOfSweep, [](const WeightShardView&, int32_t) {});
  }
  Look look = Look::kOfSweep;
  while (!rows.empty()) {
    const size_t count = std::min(rows.size(), RowsOfWalk(scratch));
    RETURN_IF_ERROR(SampleRows(gather, rows.first(count), look, scratch, results));
    rows = rows.subspan(count);
    look = Look::kFurther;
  }
  return results;
}

absl::Status OutputHead::SampleRows(const GatherHidden& gather, std::span<const HeadRow> rows,
                                    Look look, std::span<float> scratch,
                                    std::vector<TokenLogprob>& results) {
  std::vector<int64_t> hidden_rows;
  for (const HeadRow& row : rows) {
    hidden_rows.push_back(row.row);
  }
  std::span<float> rest;
  const MatrixView finished = FinishRows(gather, hidden_rows, scratch, rest);
  std::vector<Questions> groups;
  for (const Group& group : GroupsOf(finished.rows)) {
    groups.emplace_back(rows.subspan(static_cast<size_t>(group.first), group.size()));
  }
  Ask(finished, look, rest, groups);
  for (const Group& group : GroupsOf(finished.rows)) {
    Questions& questions = groups[static_cast<size_t>(group.first / kGroupRows)];
    const MatrixView group_rows = finished.Rows(group.first, group.rows);
    for (size_t i = 0; i < group.size(); ++i) {
      ASSIGN_OR_RETURN(TokenLogprob token, Answer(rows[static_cast<size_t>(group.first) + i], i,
                                                  group_rows, rest, questions));
      results.push_back(std::move(token));
    }
  }
  return absl::OkStatus();
}

void OutputHead::Ask(MatrixView finished, Look look, std::span<float> scratch,
                     std::span<Questions> groups) {
  ForEachChunk(look, [&](const WeightShardView& chunk, int32_t first_token) {
    for (const Group& group : GroupsOf(finished.rows)) {
      Questions& questions = groups[static_cast<size_t>(group.first / kGroupRows)];
      MatrixView logits = Scratch(scratch).Take(group.rows, chunk.outputs);
      ops_.MatMul({.x = finished.Rows(group.first, group.rows),
                   .weight = chunk,
                   .out = logits,
                   .same_x = groups.size() == 1 && first_token > 0});
      forward_.CapLogits(logits);
      ops_.HeadReduce({.logits = logits,
                       .first_token = first_token,
                       .requests = questions.requests,
                       .states = questions.states});
    }
  });
}

absl::StatusOr<TokenLogprob> OutputHead::Answer(const HeadRow& row, size_t index, MatrixView group,
                                                std::span<float> scratch, Questions& questions) {
  const HeadState& own = questions.states[questions.report[index]];
  const HeadState& drawn_from = questions.states[questions.draw[index]];
  if (!HasFiniteLogits(own) || drawn_from.candidates.empty()) {
    return NotFinite(row);
  }
  if (row.known_token.has_value()) {
    return Report(*row.known_token, own.unadjusted.front(), own,
                  row.sampling->prompt_logprobs.value_or(0));
  }
  const Candidate drawn = DrawToken(row, index, group, scratch, questions);
  const float logit = UnadjustedLogit(drawn.token, drawn.logit,
                                      questions.requests[questions.draw[index]], drawn_from);
  return Report(drawn.token, logit, own, row.sampling->top_logprobs);
}

Candidate OutputHead::DrawToken(const HeadRow& row, size_t index, MatrixView group,
                                std::span<float> scratch, Questions& questions) {
  const HeadRequest& request = questions.requests[questions.draw[index]];
  HeadState& state = questions.states[questions.draw[index]];
  std::optional<Candidate> drawn = Draw(*row.sampling, request, state, config_.vocabulary);
  if (!drawn.has_value()) {
    std::vector<float> logits(static_cast<size_t>(config_.vocabulary));
    ops_.ReadRows(WholeLogits(group.Rows(static_cast<int64_t>(index), 1), Look::kFurther, scratch),
                  logits);
    for (const LogitAdjustment& adjustment : request.adjustments) {
      float& logit = logits[static_cast<size_t>(adjustment.token)];
      logit = AdjustLogit(adjustment, logit);
    }
    state.candidates = SortedCandidates(logits);
    drawn = Draw(*row.sampling, request, state, config_.vocabulary);
  }
  return *drawn;
}

std::vector<float> OutputHead::Logits(const GatherHidden& gather, std::span<const int64_t> rows,
                                      std::span<float> scratch) {
  std::vector<float> all;
  Look look = Look::kOfSweep;
  for (const int64_t row : rows) {
    std::span<float> rest;
    const MatrixView finished = FinishRows(gather, {&row, 1}, scratch, rest);
    const size_t first = all.size();
    all.resize(first + static_cast<size_t>(config_.vocabulary));
    ops_.ReadRows(WholeLogits(finished, look, rest), std::span(all).subspan(first));
    look = Look::kFurther;
  }
  return all;
}

void OutputHead::ForEachChunk(Look look, const UseChunk& use) {
  const auto cut = [&](const WeightShardView& shard) {
    for (int64_t first = 0; first < shard.outputs; first += kChunkTokens) {
      WeightShardView chunk = shard;
      chunk.first_output = 0;
      chunk.outputs = std::min(kChunkTokens, shard.outputs - first);
      chunk.data += first / kPanelOutputs * PanelBytes(shard.dtype, shard.inputs);
      use(chunk, static_cast<int32_t>(shard.first_output + first));
    }
  };
  const std::span<const WeightShardView> shards = weights_.head.matrix.shards;
  std::vector<ShardIndex> aside;
  for (size_t i = 0; i < shards.size() && look == Look::kFurther; ++i) {
    if (shards[i].data == nullptr) {
      aside.push_back({weights_.head.tensor, i});
    }
  }
  size_t next = 0;
  const auto cut_in_memory = [&] {
    for (; next < shards.size() && shards[next].data != nullptr; ++next) {
      cut(shards[next]);
    }
  };
  cut_in_memory();
  if (!aside.empty()) {
    access_->ReadAside(aside, [&](const WeightShardView& shard) {
      cut(shard);
      ++next;
      cut_in_memory();
    });
    return;
  }
  while (next < shards.size()) {
    cut(access_->Acquire({weights_.head.tensor, next}));
    access_->Release();
    ++next;
    cut_in_memory();
  }
}

MatrixView OutputHead::FinishRows(const GatherHidden& gather, std::span<const int64_t> rows,
                                  std::span<float> scratch, std::span<float>& rest) {
  Scratch memory(scratch);
  MatrixView finished = memory.Take(static_cast<int64_t>(rows.size()), config_.embedding_width);
  rest = memory.rest();
  for (const Group& group : GroupsOf(finished.rows)) {
    MatrixView gathered = Scratch(rest).Take(group.rows, config_.model_width);
    gather(rows.subspan(static_cast<size_t>(group.first), group.size()), gathered);
    forward_.Finish(weights_, gathered, finished.Rows(group.first, group.rows));
  }
  return finished;
}

MatrixView OutputHead::WholeLogits(MatrixView finished, Look look, std::span<float> scratch) {
  MatrixView logits = Scratch(scratch).Take(finished.rows, config_.vocabulary);
  ForEachChunk(look, [&](const WeightShardView& chunk, int32_t first_token) {
    ops_.MatMul({.x = finished,
                 .weight = chunk,
                 .out = logits.Columns(first_token, chunk.outputs),
                 .same_x = first_token > 0});
  });
  forward_.CapLogits(logits);
  return logits;
}

}  // namespace nightshift
