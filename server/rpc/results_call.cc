#include "server/rpc/results_call.h"

#include <algorithm>
#include <chrono>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"

namespace nightshift {
namespace {

constexpr int64_t kDefaultBatchBytes = 64 << 10;
constexpr int64_t kMaxBatchBytes = 1 << 20;

absl::Status CheckRequest(const v1::StreamResultsRequest& request) {
  if (request.after_seq() < 0) {
    return MakeFieldError(
        reason::kFieldInvalid,
        {{"after_seq", absl::StrCat("is ", request.after_seq(), ", must be 0 or more")}});
  }
  if (request.max_batch_bytes() < 0) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"max_batch_bytes", absl::StrCat("is ", request.max_batch_bytes(),
                                                            ", must be 0 or more")}});
  }
  if (!v1::ResultOrder_IsValid(request.order())) {
    return MakeFieldError(
        reason::kFieldInvalid,
        {{"order", absl::StrCat("has the unknown number ", static_cast<int>(request.order()))}});
  }
  return absl::OkStatus();
}

absl::Status AheadOf(int64_t after_seq, int64_t last) {
  return MakeError(absl::StatusCode::kOutOfRange, reason::kSeqAhead,
                   absl::StrCat("after_seq is ", after_seq, ", there are ", last, " results"),
                   {{"after_seq", absl::StrCat(after_seq)}, {"last_seq", absl::StrCat(last)}});
}

// Appends the tag of a field and the number behind it: its value, or the length of what follows.
void AppendField(int field, google::protobuf::internal::WireFormatLite::WireType type,
                 uint64_t number, std::string& message) {
  using google::protobuf::io::CodedOutputStream;
  constexpr size_t kMostBytes = 5 + 10;
  uint8_t bytes[kMostBytes];
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(
      google::protobuf::internal::WireFormatLite::MakeTag(field, type), bytes);
  end = CodedOutputStream::WriteVarint64ToArray(number, end);
  message.append(bytes, end);
}

absl::Status NotKept(const std::string& job_id) {
  return MakeError(absl::StatusCode::kFailedPrecondition, reason::kResultsExpired,
                   absl::StrCat("results of job ", JobName(job_id), " are not kept any more"),
                   {{"job", JobName(job_id)}});
}

}  // namespace

void ResultsCall::Start() {
  if (rpc_.calls.draining()) {
    return FinishOnce(Draining());
  }
  if (const absl::Status checked = CheckRequest(request_); !checked.ok()) {
    return FinishOnce(checked);
  }
  const auto id = ParseJobName(caller().tenant, request_.name());
  if (!id.ok()) {
    return FinishOnce(id.status());
  }
  absl::StatusOr<TenantLimits::Place> place = rpc_.tenants.OpenStream(caller().tenant);
  if (!place.ok()) {
    return FinishOnce(place.status());
  }
  place_ = *std::move(place);
  job_id_ = *id;
  next_after_seq_ = request_.after_seq();
  max_batch_bytes_ = request_.max_batch_bytes() == 0
                         ? kDefaultBatchBytes
                         : std::min<int64_t>(request_.max_batch_bytes(), kMaxBatchBytes);
  const std::weak_ptr<ResultsCall> weak = Self();
  if (request_.follow()) {
    subscription_ = rpc_.store.events().Subscribe(job_id_, [weak] {
      if (const auto self = weak.lock()) {
        self->Wake();
      }
    });
  }
  open_call_ = rpc_.calls.Add(weak);
  {
    MutexLock lock(state_mutex_);
    last_write_us_ = rpc_.clock.MonotonicMicros();
  }
  // The client learns at once that the stream is open, however long the first result takes.
  Operate([this] { StartSendInitialMetadata(); });
  SetAlarm();
  Wake();
}

void ResultsCall::Wake() {
  {
    MutexLock lock(state_mutex_);
    if (phase_ != Phase::kIdle) {
      woken_ = true;
      return;
    }
    phase_ = Phase::kReading;
  }
  ReadStore();
}

void ResultsCall::ReadStore() {
  const absl::Status queued =
      rpc_.store.Read([self = Self()](JobStore& store) { self->Answer(self->LookInto(store)); });
  if (!queued.ok()) {
    FinishOnce(queued);
  }
}

ResultsCall::Look ResultsCall::LookInto(JobStore& store) {
  {
    MutexLock lock(state_mutex_);
    woken_ = false;
  }
  Look look;
  // The job first: results that it counts are there when they are read after it.
  const auto record = store.GetJob(job_id_);
  if (!record.ok()) {
    look.status = JobError(record.status(), job_id_);
    return look;
  }
  if (job_uid_.empty()) {
    job_uid_ = record->uid;
  }
  if (job_uid_ != record->uid) {
    look.status = JobError(absl::NotFoundError("its id is another job's now"), job_id_);
    return look;
  }
  look.status = record->purged ? NotKept(job_id_) : CheckPosition(store, *record);
  if (!look.status.ok()) {
    return look;
  }
  auto results = in_input_order()
                     ? store.ReadResultsInInputOrder(job_id_, next_after_seq_, max_batch_bytes_)
                     : store.ReadResults(job_id_, next_after_seq_, max_batch_bytes_);
  look.status = results.status();
  if (!results.ok()) {
    return look;
  }
  look.results = *std::move(results);
  look.state = WireState(record->state);
  look.counts = MakeCounts(record->counts);
  const int64_t reached =
      look.results.empty() ? next_after_seq_ : PositionAfter(look.results.back());
  // In input order the end of what there is shows itself only by a read that finds nothing more.
  const bool at_end = in_input_order()
                          ? look.results.empty() || reached >= record->counts.total
                          : reached >= record->last_seq;
  look.complete = at_end && (IsTerminal(record->state) || !request_.follow());
  return look;
}

int64_t ResultsCall::PositionAfter(const StoredResult& result) const {
  return in_input_order() ? result.index + 1 : result.seq;
}

absl::Status ResultsCall::CheckPosition(JobStore& store, const JobRecord& job) {
  const int64_t last = in_input_order() ? job.counts.total : job.last_seq;
  if (next_after_seq_ > last) {
    return AheadOf(next_after_seq_, last);
  }
  if (!in_input_order() || next_after_seq_ == 0 || next_after_seq_ != request_.after_seq()) {
    return absl::OkStatus();
  }
  // Who has processed so many rows has seen the last of them.
  const auto seen = store.ReadResultsInInputOrder(job_id_, next_after_seq_ - 1, 1);
  return seen.ok() && seen->empty() ? AheadOf(next_after_seq_, next_after_seq_ - 1)
                                    : absl::OkStatus();
}

void ResultsCall::Answer(Look look) {
  if (!look.status.ok()) {
    return FinishOnce(look.status);
  }
  FillBatch(look.results);
  if (look.complete) {
    return SendEnd(look);
  }
  if (rpc_.calls.draining()) {
    return FinishOnce(Draining());
  }
  if (!look.results.empty()) {
    return Send();
  }
  bool again = false;
  {
    MutexLock lock(state_mutex_);
    again = woken_;
    phase_ = again ? Phase::kReading : Phase::kIdle;
  }
  if (again) {
    ReadStore();
  }
}

void ResultsCall::FillBatch(const std::vector<StoredResult>& results) {
  using google::protobuf::internal::WireFormatLite;
  batch_.clear();
  std::string seq;
  for (const StoredResult& stored : results) {
    // A message's fields may come in any order: the number goes behind what is stored.
    seq.clear();
    AppendField(v1::Result::kSeqFieldNumber, WireFormatLite::WIRETYPE_VARINT,
                static_cast<uint64_t>(stored.seq), seq);
    AppendField(v1::ResultBatch::kResultsFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED,
                stored.body.size() + seq.size(), batch_);
    batch_ += stored.body;
    batch_ += seq;
    next_after_seq_ = PositionAfter(stored);
  }
}

bool ResultsCall::StartBatch(const v1::ResultBatch& rest) {
  rest.AppendToString(&batch_);
  const grpc::Slice slice(batch_);
  message_ = grpc::ByteBuffer(&slice, 1);
  return Operate([this] { StartWrite(&message_); });
}

void ResultsCall::Send() {
  {
    MutexLock lock(state_mutex_);
    phase_ = Phase::kWriting;
    last_write_us_ = rpc_.clock.MonotonicMicros();
  }
  v1::ResultBatch rest;
  rest.set_next_seq(next_after_seq_);
  StartBatch(rest);
}

void ResultsCall::SendEnd(const Look& look) {
  v1::ResultBatch rest;
  rest.set_next_seq(next_after_seq_);
  rest.mutable_end()->set_state(look.state);
  *rest.mutable_end()->mutable_counts() = look.counts;
  {
    MutexLock lock(state_mutex_);
    phase_ = Phase::kEnding;
  }
  // The write and the end go together; the end waits for the write.
  if (StartBatch(rest)) {
    FinishOnce(absl::OkStatus());
  }
}

void ResultsCall::OnWriteDone(bool ok) {
  if (!ok) {
    return FinishOnce(absl::CancelledError("the client left"));
  }
  {
    MutexLock lock(state_mutex_);
    if (phase_ == Phase::kEnding) {
      return;
    }
    phase_ = Phase::kReading;
  }
  ReadStore();
}

void ResultsCall::SetAlarm() {
  const auto deadline = std::chrono::system_clock::now() +
                        std::chrono::microseconds(rpc_.limits.heartbeat_interval_us);
  MutexLock lock(state_mutex_);
  if (ended_) {
    return;
  }
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(deadline, [weak = std::weak_ptr<ResultsCall>(Self())](bool expired) {
    const auto self = weak.lock();
    if (expired && self != nullptr) {
      self->Beat();
    }
  });
}

void ResultsCall::Beat() {
  bool beats = false;
  bool stalled = false;
  {
    MutexLock lock(state_mutex_);
    const int64_t silent_us = rpc_.clock.MonotonicMicros() - last_write_us_;
    stalled = phase_ == Phase::kWriting && silent_us > rpc_.limits.stalled_reader_us;
    if (stalled && cut_ && !ended_) {
      // The end waits behind what the reader does not take. Under the lock: Ended waits for it.
      context().TryCancel();
      return;
    }
    beats = phase_ == Phase::kIdle;
    if (beats || stalled) {
      phase_ = Phase::kWriting;
      last_write_us_ += silent_us;
      cut_ = stalled;
    }
  }
  if (stalled) {
    FinishOnce(MakeError(
        absl::StatusCode::kAborted, reason::kReaderStalled,
        absl::StrCat("the reader took nothing for ", rpc_.limits.stalled_reader_us / 1'000'000,
                     " s; reopen after seq ", request_.after_seq())));
  }
  if (beats) {
    batch_.clear();
    v1::ResultBatch rest;
    rest.set_next_seq(next_after_seq_);
    StartBatch(rest);
  }
  SetAlarm();
}

void ResultsCall::Ended() {
  {
    MutexLock lock(state_mutex_);
    ended_ = true;
    alarm_.reset();
  }
  rpc_.store.events().Unsubscribe(subscription_);
  rpc_.calls.Remove(open_call_);
}

}  // namespace nightshift
