#include "engine/execute/executor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/model/scratch.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// The sequences' spans as the ops see them at one layer: rows counted from the batch's first, pages
// by address. `pages` owns what the spans point to.
struct LayerSpans {
  std::vector<std::byte*> pages;
  std::vector<AttentionSpan> spans;
};

LayerSpans SpansOfLayer(int64_t layer, const Batch& batch,
                        std::span<const std::unique_ptr<Sequence>> sequences) {
  LayerSpans result;
  size_t num_pages = 0;
  for (const Span& span : batch.spans) {
    num_pages += static_cast<size_t>(PagesFor(span.first_position + span.num_tokens));
  }
  result.pages.reserve(num_pages);  // the spans keep addresses in it
  for (const Span& span : batch.spans) {
    const size_t first_page = result.pages.size();
    const PageTable& pages = sequences[span.request]->pages;
    const int64_t count = PagesFor(span.first_position + span.num_tokens);
    CHECK_LE(count, pages.num_stretches());
    for (int64_t stretch = 0; stretch < count; ++stretch) {
      result.pages.push_back(pages.Page(layer, stretch));
    }
    result.spans.push_back(
        {.first_row = span.first_row - batch.first_row,
         .num_rows = span.num_tokens,
         .first_position = span.first_position,
         .pages = {result.pages.data() + first_page, static_cast<size_t>(count)}});
  }
  return result;
}

int64_t HiddenFloats(const ModelConfig& config, const ExecutorLimits& limits) {
  return limits.max_sweep_tokens * RowStride(config.model_width);
}

}  // namespace

int64_t NumScored(const Span& span, const Sequence& sequence) {
  if (!sequence.sampling.prompt_logprobs.has_value()) {
    return 0;
  }
  return std::clamp<int64_t>(sequence.prompt_tokens - 1 - span.first_position, 0, span.num_tokens);
}

int64_t Executor::MemoryBytes(const ModelConfig& config, const ExecutorLimits& limits) {
  const int64_t layer = Forward::ScratchFloats(config, limits.max_batch_tokens);
  const int64_t experts =
      ExpertFeedForward::ScratchFloats(config, limits.max_sweep_tokens, limits.max_batch_tokens);
  const int64_t floats =
      HiddenFloats(config, limits) + std::max({layer, experts, OutputHead::ScratchFloats(config)});
  return floats * FloatBytes(DType::kF32);
}

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const ModelConfig& config,
                                                           const ModelWeights& weights,
                                                           WeightAccess* access,
                                                           const KvCache& cache, Ops& ops,
                                                           const ExecutorLimits& limits,
                                                           Pool& pool) {
  std::unique_ptr<Executor> executor(new Executor(config, weights, access, cache, ops, limits));
  ASSIGN_OR_RETURN(executor->memory_,
                   pool.Reserve(MemoryBytes(config, limits), "activations and scratch"));
  const std::span<std::byte> bytes = executor->memory_.bytes();
  std::span<float> floats(reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float));
  executor->hidden_ = {floats.data(), limits.max_sweep_tokens, config.model_width,
                       RowStride(config.model_width)};
  executor->scratch_ = floats.subspan(static_cast<size_t>(HiddenFloats(config, limits)));
  return executor;
}

Executor::Executor(const ModelConfig& config, const ModelWeights& weights, WeightAccess* access,
                   const KvCache& cache, Ops& ops, const ExecutorLimits& limits)
    : config_(config),
      weights_(weights),
      limits_(limits),
      forward_(config, cache.layout(), ops, access),
      experts_(config, limits.max_batch_tokens, ops, access),
      head_(config, weights, access, forward_, ops) {}

absl::StatusOr<SweepOutput> Executor::Run(const SweepSchedule& schedule,
                                          std::span<const std::unique_ptr<Sequence>> sequences) {
  RunLayers(schedule, sequences);
  std::vector<HeadRow> rows = ScoredRows(schedule, sequences);
  const size_t num_scored = rows.size();
  for (const SampledRow& sampled : schedule.sampled) {
    Sequence& sequence = *sequences[sampled.request];
    if (sequence.sampling.max_output_tokens > 0) {
      rows.push_back({.request_id = sequence.id,
                      .row = sampled.row,
                      .position = sequence.known_tokens(),
                      .sampling = &sequence.sampling,
                      .adjustments = sequence.adjuster.Next(),
                      .known_token = std::nullopt});
    }
  }
  ASSIGN_OR_RETURN(std::vector<TokenLogprob> tokens, head_.Sample(hidden_, rows, scratch_));
  SweepOutput result;
  auto next = tokens.begin() + static_cast<std::ptrdiff_t>(num_scored);
  for (const SampledRow& sampled : schedule.sampled) {
    const bool wanted = sequences[sampled.request]->sampling.max_output_tokens > 0;
    result.sampled.push_back(wanted ? std::optional(std::move(*next++)) : std::nullopt);
  }
  tokens.resize(num_scored);
  result.scored = std::move(tokens);
  return result;
}

std::vector<HeadRow> Executor::ScoredRows(
    const SweepSchedule& schedule, std::span<const std::unique_ptr<Sequence>> sequences) const {
  std::vector<HeadRow> rows;
  for (const Span& span : schedule.spans) {
    const Sequence& sequence = *sequences[span.request];
    for (int64_t i = 0; i < NumScored(span, sequence); ++i) {
      const int64_t position = span.first_position + i + 1;
      rows.push_back({.request_id = sequence.id,
                      .row = span.first_row + i,
                      .position = position,
                      .sampling = &sequence.sampling,
                      .adjustments = {},
                      .known_token = sequence.tokens[static_cast<size_t>(position)]});
    }
  }
  return rows;
}

std::vector<float> Executor::ForwardLogits(const SweepSchedule& schedule,
                                           std::span<const std::unique_ptr<Sequence>> sequences) {
  RunLayers(schedule, sequences);
  std::vector<int64_t> rows(static_cast<size_t>(schedule.num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  return head_.Logits(hidden_, rows, scratch_);
}

void Executor::RunLayers(const SweepSchedule& schedule,
                         std::span<const std::unique_ptr<Sequence>> sequences) {
  CHECK_LE(schedule.num_rows, limits_.max_sweep_tokens);
  GatherTokens(schedule, sequences);
  for (const Batch& batch : schedule.batches) {
    CHECK_LE(batch.num_rows, limits_.max_batch_tokens);
    const size_t first = static_cast<size_t>(batch.first_row);
    const size_t count = static_cast<size_t>(batch.num_rows);
    forward_.Embed(weights_, std::span(ids_).subspan(first, count),
                   std::span(positions_).subspan(first, count), scratch_,
                   hidden_.Rows(batch.first_row, batch.num_rows));
  }
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    for (const Batch& batch : schedule.batches) {
      RunBatch(layer, batch, sequences);
    }
    if (HasExperts(config_, layer)) {
      experts_.Run(weights_.layers[static_cast<size_t>(layer)], scratch_,
                   hidden_.Rows(0, schedule.num_rows));
    }
  }
}

void Executor::GatherTokens(const SweepSchedule& schedule,
                            std::span<const std::unique_ptr<Sequence>> sequences) {
  ids_.clear();
  positions_.clear();
  for (const Span& span : schedule.spans) {
    const auto first = sequences[span.request]->tokens.begin() + span.first_position;
    ids_.insert(ids_.end(), first, first + span.num_tokens);
    for (int64_t i = 0; i < span.num_tokens; ++i) {
      positions_.push_back(static_cast<int32_t>(span.first_position + i));
    }
  }
}

void Executor::RunBatch(int64_t layer, const Batch& batch,
                        std::span<const std::unique_ptr<Sequence>> sequences) {
  const LayerSpans layer_spans = SpansOfLayer(layer, batch, sequences);
  const LayerBatch layer_batch{.slides = IsSliding(config_, layer),
                               .positions = std::span(positions_)
                                                .subspan(static_cast<size_t>(batch.first_row),
                                                         static_cast<size_t>(batch.num_rows)),
                               .spans = layer_spans.spans};
  const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
  forward_.Layer(weights, layer_batch, scratch_, hidden_.Rows(batch.first_row, batch.num_rows));
}

}  // namespace nightshift
