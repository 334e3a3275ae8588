#include "engine/schedule/sweep_schedule.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/kv_page.h"

namespace nightshift {
namespace {

int64_t CeilDiv(int64_t value, int64_t by) {
  return (value + by - 1) / by;
}

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
    // A batch's share of the tokens before it finds room beside a chunk.
    const int64_t batches = CeilDiv(limits.max_sweep_tokens, limits.max_batch_tokens);
    const int64_t beside = CeilDiv(row, batches);
    chunk = std::clamp(limits.max_batch_tokens - beside, int64_t{1}, chunk);
  }
  for (size_t i = 0; i < held.size() && row < limits.max_sweep_tokens; ++i) {
    const int64_t pending = PendingTokens(held[i]);
    const int64_t room = std::min(chunk, limits.max_sweep_tokens - row);
    if (pending > 1 && (held[i].whole_pages == 0 || pending <= room)) {
      add(i, std::min(pending, room));
    }
  }
  return spans;
}

// Pages that a span's positions take beyond those of the positions before it.
int64_t PagesToAdd(const Span& span, const HeldRequest& request, const SweepLimits& limits) {
  if (request.whole_pages > 0) {
    return request.whole_pages;
  }
  const auto stretches = [](int64_t positions) {
    return RoundUp(positions, kPagePositions) / kPagePositions;
  };
  return (stretches(span.first_position + span.num_tokens) - stretches(span.first_position)) *
         limits.pages_per_stretch;
}

bool Fits(const std::vector<Span>& spans, std::span<const HeldRequest> held,
          const SweepLimits& limits, int64_t free_pages) {
  int64_t asked = 0;
  for (const Span& span : spans) {
    asked += PagesToAdd(span, held[span.request], limits);
  }
  return asked <= free_pages;
}

// Decode tokens have many keys to bring and little to compute, prompts the other way round. Spread
// evenly, the pages of one batch are on their way while the prompts of another are computed.
void Interleave(std::vector<Span>& spans) {
  const auto first_prompt = std::stable_partition(
      spans.begin(), spans.end(), [](const Span& span) { return span.num_tokens == 1; });
  const std::vector<Span> tokens(spans.begin(), first_prompt);
  const std::vector<Span> prompts(first_prompt, spans.end());
  int64_t prompt_rows = 0;
  for (const Span& span : prompts) {
    prompt_rows += span.num_tokens;
  }
  spans.clear();
  int64_t row = 0;
  const auto add = [&](Span span) {
    span.first_row = row;
    row += span.num_tokens;
    spans.push_back(span);
  };
  size_t token = 0;
  int64_t listed = 0;  // rows of prompts
  for (const Span& prompt : prompts) {
    // As large a part of the tokens as of the prompts, up to the middle of this one.
    const double part = (static_cast<double>(listed) + static_cast<double>(prompt.num_tokens) / 2) /
                        static_cast<double>(prompt_rows);
    for (; static_cast<double>(token) < part * static_cast<double>(tokens.size()); ++token) {
      add(tokens[token]);
    }
    add(prompt);
    listed += prompt.num_tokens;
  }
  for (; token < tokens.size(); ++token) {
    add(tokens[token]);
  }
}

int64_t StagedPages(const Span& span) {
  return CeilDiv(span.first_position + span.num_tokens, kPagePositions);
}

// Whole spans, in at least so many batches of about equal parts.
std::vector<Batch> CutStagedBatches(const std::vector<Span>& spans, const SweepLimits& limits,
                                    size_t num_batches) {
  int64_t all_rows = 0;
  int64_t all_pages = 0;
  for (const Span& span : spans) {
    all_rows += span.num_tokens;
    all_pages += StagedPages(span);
  }
  // The part of all that lies before the middle of what comes next.
  const auto middle = [](int64_t before, int64_t next, int64_t all) {
    return (static_cast<double>(before) + static_cast<double>(next) / 2) / static_cast<double>(all);
  };
  std::vector<Batch> batches;
  int64_t pages = 0;  // of the last batch
  int64_t rows_before = 0;
  int64_t pages_before = 0;
  for (const Span& span : spans) {
    const int64_t span_pages = StagedPages(span);
    CHECK_LE(span.num_tokens, limits.max_batch_tokens);
    CHECK_LE(span_pages, limits.max_batch_pages);
    const double place = (middle(rows_before, span.num_tokens, all_rows) +
                          middle(pages_before, span_pages, all_pages)) /
                         2 * static_cast<double>(num_batches);
    if (place >= static_cast<double>(batches.size()) ||
        batches.back().num_rows + span.num_tokens > limits.max_batch_tokens ||
        pages + span_pages > limits.max_batch_pages) {
      batches.push_back({.first_row = span.first_row, .num_rows = 0, .spans = {}});
      pages = 0;
    }
    batches.back().spans.push_back(span);
    batches.back().num_rows += span.num_tokens;
    pages += span_pages;
    rows_before += span.num_tokens;
    pages_before += span_pages;
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
  while (!Fits(schedule.spans, held, limits, free_pages)) {
    CHECK_GT(held.size(), 1U);
    free_pages += held.back().pages;
    held = held.first(held.size() - 1);
    ++schedule.num_evicted;
    schedule.spans = FormSpans(held, limits);
  }
  if (limits.max_batch_pages > 0) {
    Interleave(schedule.spans);
    const size_t num_batches = CutStagedBatches(schedule.spans, limits, 1).size();
    schedule.batches = CutStagedBatches(schedule.spans, limits, num_batches);
  } else {
    schedule.batches = CutBatches(schedule.spans, limits.max_batch_tokens);
  }
  for (const Span& span : schedule.spans) {
    schedule.num_rows += span.num_tokens;
    if (span.first_position + span.num_tokens == held[span.request].known_tokens) {
      schedule.sampled.push_back({span.request, span.first_row + span.num_tokens - 1});
    }
  }
  return schedule;
}

}  // namespace nightshift
