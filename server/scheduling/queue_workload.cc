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
  const int64_t most = job.limited_rows > 0 ? DivideUp(job.limit_tokens, job.limited_rows)
                                            : job.max_output_tokens;
  return job.finished_rows >= kFewFinished
             ? std::min(DivideUp(job.finished_output_tokens, job.finished_rows), most)
             : most;
}

// Of outputs as predicted: what they may well turn out to be.
double LeastShare(const QueuedJob& job) {
  constexpr double kOfLearned = 0.85;
  constexpr double kOfMost = 0.25;
  if (job.finished_rows >= kFewFinished) {
    return kOfLearned;
  }
  return job.may_end_early ? kOfMost : 1.0;
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

TokensLeft TokensLeftOf(const QueuedJob& job, int64_t done_prompt_tokens,
                        int64_t done_output_tokens, int64_t context_tokens) {
  const WorkloadProfile workload = WorkloadOf(std::span(&job, 1), context_tokens);
  if (workload.classes.empty()) {
    return {};
  }
  const WorkloadClass& all = workload.classes.front();
  const double requests = static_cast<double>(all.requests);
  const double prompt = requests * static_cast<double>(all.prompt_tokens);
  const double output = requests * static_cast<double>(all.output_tokens);
  const double done = static_cast<double>(done_output_tokens);
  return {.prompt = std::max(0.0, prompt - static_cast<double>(done_prompt_tokens)),
          .output = std::max(0.0, output - done),
          .least_output = std::max(0.0, LeastShare(job) * output - done)};
}

int64_t LongestRequestTokens(std::span<const QueuedJob> jobs, int64_t context_tokens) {
  int64_t longest = 1;
  for (const QueuedJob& job : jobs) {
    if (job.rows > 0) {
      const int64_t prompt = job.all_checked
                                 ? job.longest_prompt
                                 : std::max(job.longest_prompt, kTail * MeanPrompt(job));
      const int64_t output = job.limited_rows > 0 ? job.longest_limit : job.max_output_tokens;
      longest = std::max(longest, prompt + output);
    }
  }
  return std::min(longest, context_tokens);
}

bool IsExact(std::span<const QueuedJob> jobs) {
  return std::all_of(jobs.begin(), jobs.end(), [](const QueuedJob& job) {
    const int64_t few = std::min(job.rows, kFewFinished);
    return job.rows <= 0 || job.finished_rows >= kFewFinished ||
           (job.limited_rows >= few && (job.all_checked || job.checked_rows >= few));
  });
}

bool HasChanged(const WorkloadProfile& planned, const WorkloadProfile& now) {
  return now.requests() >= 2 * planned.requests() ||
         HasMoved(planned.mean_prompt_tokens(), now.mean_prompt_tokens()) ||
         HasMoved(planned.mean_output_tokens(), now.mean_output_tokens());
}

}  // namespace nightshift
