// One StreamResults call: results in order, each once, and a clear word on how the call ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "nightshift/v1/jobs.grpc.pb.h"

namespace nightshift {

// True for the terminal states.
bool HasEnded(v1::JobState state);

struct ResultStreamOptions {
  std::string name;  // "jobs/{id}"
  int64_t after_seq = 0;  // a position of `order`, as all seqs here
  bool follow = false;    // stay until the job has ended
  v1::ResultOrder order = v1::RESULT_ORDER_COMMIT;
};

// The result's position in an order: its seq, or in input order the number of its row from 1.
int64_t PositionOf(const v1::Result& result, v1::ResultOrder order);

struct ResultListener {
  // Given batches that hold only results not given before, in order, never empty. An error ends the
  // stream and is returned.
  std::function<absl::Status(const v1::ResultBatch&)> on_batch;
  // Called between messages and about every 100 ms while none comes.
  std::function<void()> on_idle = [] {};
};

// How far a stream has come.
struct ResultStreamEnd {
  int64_t last_seq = 0;  // of the last result that the listener was given, after_seq for none
  // Without `follow` the stream of a job that still runs ends too.
  bool job_ended = false;
  // As the last message of the stream said.
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
  v1::JobCounts counts;
};

struct StreamAttempt {
  absl::Status status;      // OK: the stream is complete
  bool is_final = false;    // the listener's error or an interrupt: another attempt is no use
  bool progressed = false;  // at least one message came
};

// Streams from end.last_seq on (not options.after_seq) and advances `end`. A connection that
// breaks, skips a result or is silent for silence_limit ends with a transient error (IsTransient).
StreamAttempt StreamResultsOnce(v1::JobService::Stub& stub, const ResultStreamOptions& options,
                                absl::Duration silence_limit,
                                const std::function<bool()>& keep_waiting,
                                const ResultListener& listener, ResultStreamEnd& end);

}  // namespace nightshift
