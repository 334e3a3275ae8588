// StreamResults: a job's results in the order of their commits or of their rows, from where the
// client left off.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>

#include "kernels/base/mutex.h"
#include "server/rpc/call.h"
#include "server/rpc/open_calls.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// One batch is in memory at a time: the next is read from the store when gRPC has taken the last,
// so a slow reader costs nothing but its connection. Batches are put together from the stored bytes
// of their results: to parse and to serialise them again takes longer than all else that is done.
class ResultsCall : public Call<grpc::ServerWriteReactor<grpc::ByteBuffer>>,
                    public OpenCalls::Waiting {
 public:
  ResultsCall(grpc::CallbackServerContext* context, v1::StreamResultsRequest request,
              RpcContext& rpc)
      : Call(context), request_(std::move(request)), rpc_(rpc) {}

  void Start();
  // There may be something to send.
  void Wake() override;

 private:
  // What the call is doing; every change is under state_mutex_.
  enum class Phase {
    kIdle,     // all that there is was sent; waits to be woken
    kReading,  // a store read is queued or runs
    kWriting,  // message_ is with gRPC
    kEnding,   // the last batch is with gRPC
  };
  // What a look into the store gave.
  struct Look {
    absl::Status status;
    std::vector<StoredResult> results;
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    v1::JobCounts counts;
    bool complete = false;  // nothing will come after these
  };

  void OnWriteDone(bool ok) override;
  void Ended() override;
  void ReadStore();
  // On a reader thread.
  Look LookInto(JobStore& store);
  bool in_input_order() const { return request_.order() == v1::RESULT_ORDER_INPUT; }
  // Where a stream goes on behind this result.
  int64_t PositionAfter(const StoredResult& result) const;
  // OUT_OF_RANGE when the position that was asked for is beyond what there is.
  absl::Status CheckPosition(JobStore& store, const JobRecord& job);
  void Answer(Look look);
  // Puts results into batch_.
  void FillBatch(const std::vector<StoredResult>& results);
  // Begins to write batch_ and the rest of the message behind it.
  bool StartBatch(const v1::ResultBatch& rest);
  void Send();
  void SendEnd(const Look& look);
  void SetAlarm();
  void Beat();
  std::shared_ptr<ResultsCall> Self() {
    return std::static_pointer_cast<ResultsCall>(shared_from_this());
  }

  const v1::StreamResultsRequest request_;
  RpcContext& rpc_;
  TenantLimits::Place place_;
  std::string job_id_;
  int64_t max_batch_bytes_ = 0;
  int64_t subscription_ = 0;
  int64_t open_call_ = 0;

  // Of the thread whose turn it is: the reader in kReading, gRPC in kWriting.
  std::string job_uid_;         // empty until the store is read
  int64_t next_after_seq_ = 0;  // a position of the order that was asked for
  std::string batch_;         // as ResultBatch goes over the wire, without next_seq and end
  grpc::ByteBuffer message_;  // with them

  Mutex state_mutex_;
  Phase phase_ ABSL_GUARDED_BY(state_mutex_) = Phase::kIdle;
  bool woken_ ABSL_GUARDED_BY(state_mutex_) = false;  // while reading or writing
  int64_t last_write_us_ ABSL_GUARDED_BY(state_mutex_) = 0;
  bool cut_ ABSL_GUARDED_BY(state_mutex_) = false;  // for a reader that takes nothing
  // One for each beat: an alarm must not be set again by its own callback. Empty after the end.
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(state_mutex_);
  bool ended_ ABSL_GUARDED_BY(state_mutex_) = false;
};

}  // namespace nightshift
