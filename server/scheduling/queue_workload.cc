#include "server/scheduling/queue_workload.h"

#include <algorithm>
#include <cmath>

namespace nightshift {
namespace {

constexpr int64_t kBytesPerToken = 4;
// Of a job whose rows are not known at all.
constexpr int64_t kUnknownPromptTokens = 512;
// Fewer say little: the first to finish are the shortest.
constexpr int64_t kFewFinished = 32;
// The longest of prompts that are not checked yet, beside the mean.
constexpr int64_t kTail = 4;

int64_t DivideUp(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t MeanPrompt(const QueuedJob& job) {
  if (job.checked_rows > 0) {
    return DivideUp(job.checked_tokens, job.checked_rows);
  }
  if (job.finished_rows > 0) {
    return DivideUp(job.finished_prompt_tokens, job.finished_rows);
  }
  return job.row_bytes > 0 ? DivideUp(job.row_bytes, kBytesPerToken) : kUnknownPromptTokens;
}

int64_t MeanOutput(const QueuedJob& job) {
  return job.finished_rows >= kFewFinished
             ? std::min(DivideUp(job.finished_output_tokens, job.finished_rows),
                        job.max_output_tokens)
             : job.max_output_tokens;
}

bool HasMoved(double before, double now) {
  constexpr double kMove = 1.25;
  return now > kMove * before + 1.0 || before > kMove * now + 1.0;
}

}  // namespace

WorkloadProfile WorkloadOf(std::span<const QueuedJob> jobs, int64_t context_tokens) {
  WorkloadProfile workload;
  for (const QueuedJob& job : jobs) {
    if (job.rows <= 0) {
      continue;
    }
    const int64_t prompt = std::clamp<int64_t>(MeanPrompt(job), 1, context_tokens - 1);
    workload.classes.push_back(
        {.prompt_tokens = prompt,
         .output_tokens = std::clamp<int64_t>(MeanOutput(job), 0, context_tokens - prompt),
         .requests = job.rows * std::max<int64_t>(1, job.choices)});
  }
  return workload;
}

int64_t LongestRequestTokens(std::span<const QueuedJob> jobs, int64_t context_tokens) {
  int64_t longest = 1;
  for (const QueuedJob& job : jobs) {
    if (job.rows > 0) {
      const int64_t prompt = job.all_checked
                                 ? job.longest_prompt
                                 : std::max(job.longest_prompt, kTail * MeanPrompt(job));
      longest = std::max(longest, prompt + job.max_output_tokens);
    }
  }
  return std::min(longest, context_tokens);
}

bool HasChanged(const WorkloadProfile& planned, const WorkloadProfile& now) {
  return now.requests() >= 2 * planned.requests() ||
         HasMoved(planned.mean_prompt_tokens(), now.mean_prompt_tokens()) ||
         HasMoved(planned.mean_output_tokens(), now.mean_output_tokens());
}

}  // namespace nightshift
