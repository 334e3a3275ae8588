// RequestPreparer: stored rows to requests that an engine can take: read, parse, render, tokenize.
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
#include "server/scheduling/model_session.h"
#include "server/store/job_store.h"

namespace nightshift {

// A claimed row on its way.
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
  std::optional<std::string> echoed_prompt;  // text that the result begins with
  // OK, or the row's error: INVALID_ARGUMENT for rows that can never run, DATA_LOSS for input that
  // cannot be read.
  absl::Status status;
};

// The row as a request, or why not. Pure but for the reading of the row.
PreparedRow PrepareRow(const RowTask& task, const ParseLimits& limits);

// What a row's result tells of its request, for rows that never run.
absl::StatusOr<ResultHeader> ReadResultHeader(const JobContext& job, const ClaimedRow& row,
                                              const ParseLimits& limits);

struct RequestPreparerOptions {
  int num_threads = 1;
  // Threads rest while this many prepared tokens wait to be taken; each may finish one row more.
  int64_t max_ready_tokens = 4 << 20;
  ParseLimits limits;
  std::function<void()> on_ready;  // called by the pool after each row; short, must not block
};

// A pool of threads at low priority: the engine's threads go first. Thread-safe.
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

 private:
  void Work();

  const RequestPreparerOptions options_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<RowTask> queued_ ABSL_GUARDED_BY(mutex_);
  std::vector<PreparedRow> ready_ ABSL_GUARDED_BY(mutex_);
  int64_t ready_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t working_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace nightshift
