// SweepSchedule: what one sweep computes, as plain data. Pure: values in, values out.
//
// The rolling schedule: every held request contributes one span, either its one decode token or the
// next chunk of its prompt; the rows of all spans lie ragged one after another and are cut into
// batches of at most a token budget. A span may be cut by a batch border: its second part reads the
// first part's keys from their pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace nightshift {

// Which requests share sweeps.
enum class ScheduleKind : uint8_t {
  // One batch, from its first token to its last: what other offloading systems run.
  kRow,
  // A closed block of several batches (FlexGen, Sheng et al. 2023, Algorithm 1): none joins before
  // all have ended.
  kZigzag,
  // Places that are free are filled again at each sweep, prompts enter in chunks beside decode
  // tokens (the diagonal schedule of the same paper, appendix A.2).
  kRolling,
};
const char* ScheduleKindName(ScheduleKind kind);  // "row", "zigzag", "rolling"

// A held request as the schedule sees it.
struct HeldRequest {
  int64_t computed_tokens = 0;  // whose keys and values are in its pages
  // Prompt and generated; more than computed_tokens, but for one that sits this sweep out.
  int64_t known_tokens = 0;
  int64_t pages = 0;  // that become free, in all layers, when it and all younger ones leave
  // Above 0: all of its pending tokens are in one sweep, in which they take so many pages.
  int64_t whole_pages = 0;
};

struct SweepLimits {
  int64_t max_sweep_tokens = 0;     // at least the number of held requests
  int64_t prompt_chunk_tokens = 0;  // 0: no limit but the sweep's
  int64_t max_batch_tokens = 0;
  // Above 0: keys and values pass through staging memory of so many pages, of one layer. A batch
  // needs no more than that, and no span is cut.
  int64_t max_batch_pages = 0;
  int64_t free_pages = 0;
  int64_t pages_per_stretch = 1;  // that 32 positions take in all layers
};

// `num_tokens` tokens of one request from `first_position`, in rows from `first_row` of the sweep.
struct Span {
  size_t request = 0;  // index among the held requests
  int64_t first_position = 0;
  int64_t num_tokens = 0;
  int64_t first_row = 0;
};

struct Batch {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  std::vector<Span> spans;  // parts of the sweep's spans; rows ascend
};

// The last row of a request whose known tokens are all computed: its next token is sampled there.
struct SampledRow {
  size_t request = 0;
  int64_t row = 0;
};

struct SweepSchedule {
  std::vector<Span> spans;
  std::vector<Batch> batches;  // in the order in which each layer visits them
  std::vector<SampledRow> sampled;
  int64_t num_rows = 0;
  // The last so many held requests have to leave before the sweep because pages run out.
  size_t num_evicted = 0;
};

// Schedules one sweep over `held`, which is in order of admission. Spans of one token have their
// place first (so that no prompt delays a decoding request), then prompts in order of admission as
// far as the token budget goes, past those that must be whole and have no room; in rows they lie in
// this order, or spread among each other where keys and values pass through staging memory. When
// the pages that the spans need are not free, the youngest requests are evicted until they are; the
// oldest one alone must fit.
SweepSchedule ScheduleSweep(std::span<const HeldRequest> held, const SweepLimits& limits);

}  // namespace nightshift
