// QueueWorkload: what the queue asks of a model, as the plan sees it. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "engine/policy/workload_profile.h"

namespace nightshift {

// What is known of the lengths of one job's rows.
struct QueuedJob {
  int64_t rows = 0;       // that have no result
  int64_t choices = 1;    // of each
  int64_t row_bytes = 0;  // of the input on average; 0: not known
  // Of rows that were checked, those included that have a result.
  int64_t checked_rows = 0;
  int64_t checked_tokens = 0;
  int64_t longest_prompt = 0;
  bool all_checked = false;
  // Of rows that were prepared to run: their own limits of outputs.
  int64_t limited_rows = 0;
  int64_t limit_tokens = 0;
  int64_t longest_limit = 0;
  // Of rows that have a result.
  int64_t finished_rows = 0;
  int64_t finished_prompt_tokens = 0;
  int64_t finished_output_tokens = 0;
  int64_t max_output_tokens = 0;  // of rows that have no limit of their own
  bool may_end_early = true;      // completions may be shorter than that
};

// One class a job that has rows, each within a context of `context_tokens`. Prompts are as long as
// those that were checked, or that have finished, or a quarter of the row's bytes; outputs as
// long as those that have finished once there are a few of them, before that as long as they may
// get: by the limits of the rows that were prepared, else of the job.
WorkloadProfile WorkloadOf(std::span<const QueuedJob> jobs, int64_t context_tokens);

// Tokens that are left of a job, of which some are computed already.
struct TokensLeft {
  double prompt = 0.0;
  double output = 0.0;        // as predicted
  double least_output = 0.0;  // that is likely
};
TokensLeft TokensLeftOf(const QueuedJob& job, int64_t done_prompt_tokens,
                        int64_t done_output_tokens, int64_t context_tokens);

// Tokens of the largest request that is to be expected, outputs included.
int64_t LongestRequestTokens(std::span<const QueuedJob> jobs, int64_t context_tokens);

// Whether lengths of every job that has rows are known by tokens and limits: of its rows, or of some.
bool IsExact(std::span<const QueuedJob> jobs);

// Whether another plan may be due: twice as many requests, or a mean length that has moved by a
// quarter. A queue that only drains is what was planned for.
bool HasChanged(const WorkloadProfile& planned, const WorkloadProfile& now);

}  // namespace nightshift
