#include "engine/schedule/sweep_schedule.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/kv_page.h"

namespace nightshift {
namespace {

int64_t PendingTokens(const HeldRequest& request) {
  return request.known_tokens - request.computed_tokens;
}

std::vector<Span> FormSpans(std::span<const HeldRequest> held, const SweepLimits& limits) {
  std::vector<Span> spans;
  int64_t row = 0;
  const auto add = [&](size_t request, int64_t num_tokens) {
    spans.push_back({request, held[request].computed_tokens, num_tokens, row});
    row += num_tokens;
  };
  for (size_t i = 0; i < held.size(); ++i) {
    if (PendingTokens(held[i]) == 1) {
      add(i, 1);
    }
  }
  int64_t chunk =
      limits.prompt_chunk_tokens > 0 ? limits.prompt_chunk_tokens : limits.max_sweep_tokens;
  if (limits.max_batch_pages > 0) {
    chunk = std::min(chunk, limits.max_batch_tokens);
  }
  for (size_t i = 0; i < held.size() && row < limits.max_sweep_tokens; ++i) {
    const int64_t pending = PendingTokens(held[i]);
    if (pending > 1) {
      add(i, std::min({pending, chunk, limits.max_sweep_tokens - row}));
    }
  }
  return spans;
}

// Pages that a span's positions take beyond those of the positions before it.
int64_t PagesToAdd(const Span& span, const SweepLimits& limits) {
  const auto stretches = [](int64_t positions) {
    return RoundUp(positions, kPagePositions) / kPagePositions;
  };
  return (stretches(span.first_position + span.num_tokens) - stretches(span.first_position)) *
         limits.pages_per_stretch;
}

bool Fits(const std::vector<Span>& spans, const SweepLimits& limits, int64_t free_pages) {
  int64_t asked = 0;
  for (const Span& span : spans) {
    asked += PagesToAdd(span, limits);
  }
  return asked <= free_pages;
}

// Whole spans, as many as the staging memory holds.
std::vector<Batch> CutStagedBatches(const std::vector<Span>& spans, const SweepLimits& limits) {
  std::vector<Batch> batches;
  int64_t pages = 0;
  for (const Span& span : spans) {
    const int64_t span_pages =
        RoundUp(span.first_position + span.num_tokens, kPagePositions) / kPagePositions;
    CHECK_LE(span.num_tokens, limits.max_batch_tokens);
    CHECK_LE(span_pages, limits.max_batch_pages);
    if (batches.empty() || batches.back().num_rows + span.num_tokens > limits.max_batch_tokens ||
        pages + span_pages > limits.max_batch_pages) {
      batches.push_back({.first_row = span.first_row, .num_rows = 0, .spans = {}});
      pages = 0;
    }
    batches.back().spans.push_back(span);
    batches.back().num_rows += span.num_tokens;
    pages += span_pages;
  }
  return batches;
}

std::vector<Batch> CutBatches(const std::vector<Span>& spans, int64_t max_batch_tokens) {
  std::vector<Batch> batches;
  for (Span rest : spans) {
    while (rest.num_tokens > 0) {
      if (batches.empty() || batches.back().num_rows == max_batch_tokens) {
        batches.push_back({.first_row = rest.first_row, .num_rows = 0, .spans = {}});
      }
      Batch& batch = batches.back();
      Span part = rest;
      part.num_tokens = std::min(rest.num_tokens, max_batch_tokens - batch.num_rows);
      batch.spans.push_back(part);
      batch.num_rows += part.num_tokens;
      rest.first_row += part.num_tokens;
      rest.first_position += part.num_tokens;
      rest.num_tokens -= part.num_tokens;
    }
  }
  return batches;
}

}  // namespace

const char* ScheduleKindName(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kRow:
      return "row";
    case ScheduleKind::kZigzag:
      return "zigzag";
    case ScheduleKind::kRolling:
      return "rolling";
  }
  return "";
}

SweepSchedule ScheduleSweep(std::span<const HeldRequest> held, const SweepLimits& limits) {
  CHECK_LE(static_cast<int64_t>(held.size()), limits.max_sweep_tokens);
  CHECK_GE(limits.max_batch_tokens, 1);
  SweepSchedule schedule;
  int64_t free_pages = limits.free_pages;
  schedule.spans = FormSpans(held, limits);
  while (!Fits(schedule.spans, limits, free_pages)) {
    CHECK_GT(held.size(), 1U);
    free_pages += held.back().pages;
    held = held.first(held.size() - 1);
    ++schedule.num_evicted;
    schedule.spans = FormSpans(held, limits);
  }
  schedule.batches = limits.max_batch_pages > 0
                         ? CutStagedBatches(schedule.spans, limits)
                         : CutBatches(schedule.spans, limits.max_batch_tokens);
  for (const Span& span : schedule.spans) {
    schedule.num_rows += span.num_tokens;
    if (span.first_position + span.num_tokens == held[span.request].known_tokens) {
      schedule.sampled.push_back({span.request, span.first_row + span.num_tokens - 1});
    }
  }
  return schedule;
}

}  // namespace nightshift
