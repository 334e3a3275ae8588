#include "client/result_stream.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/await.h"
#include "client/rpc_error.h"

namespace nightshift {
namespace {

// Keeps of `batch` what follows last_seq without a gap: a server that repeats itself after a
// reconnect does no harm, and what it skipped is asked for again.
absl::Status KeepNew(int64_t last_seq, v1::ResultOrder order, v1::ResultBatch& batch) {
  auto& results = *batch.mutable_results();
  int num_old = 0;
  while (num_old < results.size() && PositionOf(results[num_old], order) <= last_seq) {
    ++num_old;
  }
  results.DeleteSubrange(0, num_old);
  for (int i = 0; i < results.size(); ++i) {
    const int64_t expected = last_seq + 1 + i;
    const int64_t found = PositionOf(results[i], order);
    if (found != expected) {
      results.DeleteSubrange(i, results.size() - i);
      return absl::UnavailableError(absl::StrCat("result ", found, " came where ", expected,
                                                 " was expected, asking for it again"));
    }
  }
  return absl::OkStatus();
}

// Hands the new results of one message on. The listener's error is final, a gap is not.
void Accept(v1::ResultBatch& batch, v1::ResultOrder order, const ResultListener& listener,
            ResultStreamEnd& end, StreamAttempt& attempt) {
  attempt.progressed = true;
  const absl::Status gap = KeepNew(end.last_seq, order, batch);
  if (batch.results_size() > 0) {
    attempt.status = listener.on_batch(batch);
    attempt.is_final = !attempt.status.ok();
    if (attempt.is_final) {
      return;
    }
    end.last_seq = PositionOf(batch.results(batch.results_size() - 1), order);
  }
  attempt.status = gap;
  if (gap.ok() && batch.has_end()) {
    end.job_ended = HasEnded(batch.end().state());
    end.state = batch.end().state();
    end.counts = batch.end().counts();
  }
}

// What the end of the call means while the job has not ended.
absl::Status Judge(const grpc::Status& status, const ResultStreamOptions& options) {
  if (!status.ok()) {
    return FromRpcStatus(absl::StrCat("read results of ", options.name), status);
  }
  if (options.follow) {
    return absl::UnavailableError(
        absl::StrCat("read results of ", options.name, ": the stream ended before the job"));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t PositionOf(const v1::Result& result, v1::ResultOrder order) {
  return order == v1::RESULT_ORDER_INPUT ? result.index() + 1 : result.seq();
}

bool HasEnded(v1::JobState state) {
  return state >= v1::JOB_STATE_SUCCEEDED;
}

StreamAttempt StreamResultsOnce(v1::JobService::Stub& stub, const ResultStreamOptions& options,
                                absl::Duration silence_limit,
                                const std::function<bool()>& keep_waiting,
                                const ResultListener& listener, ResultStreamEnd& end) {
  v1::StreamResultsRequest request;
  request.set_name(options.name);
  request.set_after_seq(end.last_seq);
  request.set_follow(options.follow);
  request.set_order(options.order);
  const auto idle = [&] {
    listener.on_idle();
    return keep_waiting();
  };

  StreamAttempt attempt;
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto reader = stub.PrepareAsyncStreamResults(&context, request, &queue);
  reader->StartCall(nullptr);
  Awaited awaited = Await(queue, context, absl::Now() + silence_limit, idle);
  while (awaited == Awaited::kDone && attempt.status.ok()) {
    v1::ResultBatch batch;
    reader->Read(&batch, nullptr);
    awaited = Await(queue, context, absl::Now() + silence_limit, idle);
    if (awaited == Awaited::kDone) {
      Accept(batch, options.order, listener, end, attempt);
      listener.on_idle();
    }
  }
  if (!attempt.status.ok()) {
    context.TryCancel();
  }
  grpc::Status status;
  reader->Finish(&status, nullptr);
  Await(queue, context, absl::InfiniteFuture(), keep_waiting);

  if (!attempt.status.ok() || end.job_ended) {
    return attempt;
  }
  if (awaited == Awaited::kStopped) {
    attempt.is_final = true;
    attempt.status =
        absl::CancelledError(absl::StrCat("read results of ", options.name, ": interrupted"));
  } else if (awaited == Awaited::kSilent) {
    attempt.status = absl::UnavailableError(absl::StrCat("read results of ", options.name,
                                                         ": no sign of life from the daemon for ",
                                                         absl::FormatDuration(silence_limit)));
  } else {
    attempt.status = Judge(status, options);
  }
  return attempt;
}

}  // namespace nightshift
