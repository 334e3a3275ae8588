// RequestPreparer: stored rows to requests that an engine can take: read, parse, render, tokenize.
// Rows go this way twice: when they are checked, and when they run, by then with their ids kept.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "kernels/base/mutex.h"
#include "server/input/parse_limits.h"
#include "server/input/result_builder.h"
#include "server/scheduling/job_context.h"
#include "server/scheduling/kept_prompts.h"
#include "server/scheduling/model_text.h"
#include "server/scheduling/scored_choices.h"
#include "server/store/job_store.h"

namespace nightshift {

// A row on its way.
struct RowTask {
  JobContextPtr job;
  ModelTextPtr text;
  ClaimedRow row;
  double share_tag = 0;  // of FairShare
};

struct PreparedRow {
  JobContextPtr job;
  ClaimedRow row;
  double share_tag = 0;
  ResultHeader header;
  EngineRequest request;  // without id and what was generated before; of the first choice
  int32_t num_choices = 1;
  std::vector<ScoredContinuation> scored;    // one a choice, or none: choices are completions
  std::optional<std::string> echoed_prompt;  // text that the result begins with
  // OK, or the row's error: INVALID_ARGUMENT for rows that can never run, DATA_LOSS for input that
  // is gone or damaged. UNAVAILABLE is none: input that cannot be read at present.
  absl::Status status;
};

// What is left of a row that was only checked.
struct CheckedRow {
  ResultHeader header;
  int64_t prompt_tokens = 0;  // and those of scored choices
  absl::Status status;        // as PreparedRow::status
};

// The row as a request, or why not. Takes the ids of its prompt from `kept`, or leaves them there;
// nullptr for none. Pure but for that and the reading of the row.
PreparedRow PrepareRow(const RowTask& task, const ParseLimits& limits, KeptPrompts* kept);

// What a row's result tells of its request, for rows that never run.
absl::StatusOr<ResultHeader> ReadResultHeader(const JobContext& job, const ClaimedRow& row,
                                              const ParseLimits& limits);

struct RequestPreparerOptions {
  int num_threads = 1;
  // Threads rest while this many prepared tokens wait to be taken; each may finish one row more.
  int64_t max_ready_tokens = 4 << 20;
  ParseLimits limits;
  KeptPrompts* kept = nullptr;     // must outlive the pool; none: every prompt is tokenized
  std::function<void()> on_ready;  // called by the pool after each row; short, must not block
};

// A pool of threads at low priority: the engine's threads go first. Claimed rows go before those
// that are checked. Thread-safe, but for Check.
class RequestPreparer {
 public:
  explicit RequestPreparer(RequestPreparerOptions options);
  // Rows that are still queued are dropped.
  ~RequestPreparer();
  RequestPreparer(const RequestPreparer&) = delete;
  RequestPreparer& operator=(const RequestPreparer&) = delete;

  void Push(std::vector<RowTask> tasks);
  // What is done, in no particular order.
  std::vector<PreparedRow> TakeReady();
  // Takes back the rows that no thread has begun.
  std::vector<RowTask> TakeQueued();
  // Waits until no thread is at work on a row; for after TakeQueued.
  void WaitUntilIdle();
  // Rows pushed and not taken yet.
  int64_t num_rows();
  // Prepares the rows beside those that were pushed and keeps nothing but what they are: one entry
  // each, in order. Waits; empty when StopChecks came first. One caller at a time.
  std::vector<CheckedRow> Check(const std::vector<RowTask>& tasks);
  // Ends the check that is on its way, and all later ones, after the rows that were begun.
  void StopChecks();

 private:
  // A check on its way; its caller's.
  struct Batch {
    const std::vector<RowTask>& tasks;
    std::vector<CheckedRow> rows;
    size_t next = 0;
    size_t working = 0;
  };

  void Work();
  bool HasClaimed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasUnchecked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PrepareNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RequestPreparerOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<RowTask> queued_ ABSL_GUARDED_BY(mutex_);
  std::vector<PreparedRow> ready_ ABSL_GUARDED_BY(mutex_);
  int64_t ready_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t working_ ABSL_GUARDED_BY(mutex_) = 0;
  Batch* batch_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool checks_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nightshift
