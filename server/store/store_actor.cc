#include "server/store/store_actor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "kernels/base/check.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

// Errors after which the store still answers for what it holds. Every other error of a transaction
// as a whole (not of an operation) means that the file's state is unknown.
bool IsSurvivable(const absl::Status& status) {
  return status.ok() || absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

// A refusal of the operation's own, such as of a quota, tells its reason in a payload.
bool IsFullDisk(const absl::Status& status) {
  bool has_reason = false;
  status.ForEachPayload([&](absl::string_view, const absl::Cord&) { has_reason = true; });
  return absl::IsResourceExhausted(status) && !has_reason;
}

const char* ErrorKind(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    return "full";
  }
  return absl::IsUnavailable(status) ? "busy" : "fatal";
}

}  // namespace

StoreActor::StoreActor(std::unique_ptr<JobStore> store, StoreActorOptions options)
    : store_(std::move(store)), options_(std::move(options)) {
  for (int i = 0; i < options_.num_readers; ++i) {
    readers_.emplace_back([this] { ReadLoop(); });
  }
  writer_ = std::thread([this] { WriteLoop(); });
}

StoreActor::~StoreActor() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    writes_ready_.NotifyAll();
    reads_ready_.NotifyAll();
  }
  writer_.join();
  for (std::thread& reader : readers_) {
    reader.join();
  }
}

absl::Status StoreActor::Write(const std::string& job_id, WriteOperation operation, Done done) {
  MutexLock lock(mutex_);
  const int64_t queued = static_cast<int64_t>(writes_.size());
  if (queued >= options_.max_queued_writes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store has ", queued, " writes queued, its most; come again later"));
  }
  writes_.push_back({.job_id = job_id,
                     .operation = std::move(operation),
                     .done = std::move(done),
                     .status = absl::OkStatus()});
  writes_ready_.NotifyOne();
  return absl::OkStatus();
}

absl::Status StoreActor::WriteAndWait(const std::string& job_id, WriteOperation operation) {
  CHECK(std::this_thread::get_id() != writer_.get_id());
  struct Answer {
    Mutex mutex;
    CondVar ready;
    bool answered ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
  } answer;
  PendingWrite write = {.job_id = job_id,
                        .operation = std::move(operation),
                        .done =
                            [&answer](const absl::Status& status) {
                              MutexLock lock(answer.mutex);
                              answer.status = status;
                              answer.answered = true;
                              answer.ready.NotifyOne();
                            },
                        .status = absl::OkStatus()};
  {
    MutexLock lock(mutex_);
    while (static_cast<int64_t>(writes_.size()) >= options_.max_queued_writes) {
      writes_taken_.Wait(mutex_);
    }
    writes_.push_back(std::move(write));
    writes_ready_.NotifyOne();
  }
  MutexLock lock(answer.mutex);
  while (!answer.answered) {
    answer.ready.Wait(answer.mutex);
  }
  return answer.status;
}

absl::Status StoreActor::Read(ReadOperation operation) {
  MutexLock lock(mutex_);
  const int64_t queued = static_cast<int64_t>(reads_.size());
  if (queued >= options_.max_queued_reads) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store has ", queued, " reads queued, its most; come again later"));
  }
  reads_.push_back(std::move(operation));
  reads_ready_.NotifyOne();
  return absl::OkStatus();
}

absl::Status StoreActor::health() const {
  MutexLock lock(mutex_);
  return health_;
}

void StoreActor::ReadLoop() {
  NameThread("ns-read");
  for (;;) {
    ReadOperation operation;
    {
      MutexLock lock(mutex_);
      while (reads_.empty() && !stopping_) {
        reads_ready_.Wait(mutex_);
      }
      if (reads_.empty()) {
        return;
      }
      operation = std::move(reads_.front());
      reads_.pop_front();
    }
    operation(*store_);
  }
}

void StoreActor::WriteLoop() {
  NameThread("ns-store");
  for (Group group = TakeGroup(); !group.empty(); group = TakeGroup()) {
    CommitGroup(group);
    Answer(group);
    if (fatal_.ok()) {
      const absl::Status status = store_->Checkpoint();
      if (!IsSurvivable(status)) {
        Fail(status);
      }
    }
  }
}

StoreActor::Group StoreActor::TakeGroup() {
  MutexLock lock(mutex_);
  while (writes_.empty() && !stopping_) {
    writes_ready_.Wait(mutex_);
  }
  Group group;
  const int64_t count =
      std::min(static_cast<int64_t>(writes_.size()), options_.max_writes_per_commit);
  for (int64_t i = 0; i < count; ++i) {
    group.push_back(std::move(writes_.front()));
    writes_.pop_front();
  }
  writes_taken_.NotifyAll();
  return group;
}

void StoreActor::CommitGroup(Group& group) {
  if (!fatal_.ok()) {
    for (PendingWrite& write : group) {
      write.status = fatal_;
    }
    return;
  }
  absl::Status status = CommitTogether(group);
  if (HasRoomAfter(status)) {
    // What was given up makes room for moving the log, which makes more. An error of it shows
    // again.
    if (const absl::Status emptied = store_->EmptyLog(); !emptied.ok()) {
      LOG(WARNING) << "log_not_emptied error=\"" << emptied.message() << "\"";
    }
    status = CommitTogether(group);
  }
  if (absl::IsResourceExhausted(status) && group.size() > 1) {
    // One of them does not fit: whoever does goes on.
    CommitAlone(group);
    return;
  }
  if (status.ok()) {
    return;
  }
  if (!IsSurvivable(status)) {
    Fail(status);
  }
  for (PendingWrite& write : group) {
    write.status = status;
  }
}

absl::Status StoreActor::CommitTogether(Group& group) {
  constexpr double kSecondsPerMicro = 1e-6;
  Metrics& metrics = *options_.metrics;
  const int64_t start_us = clock_.MonotonicMicros();
  absl::Status status = RunTransaction(group);
  metrics.commit_seconds.Observe(kSecondsPerMicro *
                                 static_cast<double>(clock_.MonotonicMicros() - start_us));
  metrics.commit_writes.Observe(static_cast<double>(group.size()));
  if (!status.ok()) {
    metrics.StoreErrors(ErrorKind(status)).Increment();
  }
  return status;
}

absl::Status StoreActor::RunTransaction(Group& group) {
  RETURN_IF_ERROR(store_->Begin());
  for (PendingWrite& write : group) {
    if (absl::Status status = RunMarked(write); !status.ok()) {
      store_->Rollback();
      return status;
    }
  }
  return store_->Commit();
}

absl::Status StoreActor::RunMarked(PendingWrite& write) {
  RETURN_IF_ERROR(store_->SetMark());
  write.status = write.operation(*store_);
  if (write.status.ok()) {
    return store_->ReleaseMark();
  }
  const absl::Status undone = store_->RollbackToMark();
  if (undone.ok() && HasRoomAfter(write.status)) {
    return RunMarked(write);
  }
  // SQLite gives a whole transaction up when the disk is full: what the operation met tells why.
  return undone.ok() ? undone : write.status;
}

bool StoreActor::HasRoomAfter(const absl::Status& status) {
  return IsFullDisk(status) && options_.on_full();
}

void StoreActor::CommitAlone(Group& group) {
  for (PendingWrite& write : group) {
    Group alone;
    alone.push_back({.job_id = {},
                     .operation = std::move(write.operation),
                     .done = {},
                     .status = absl::OkStatus()});
    CommitGroup(alone);
    write.status = alone[0].status;
  }
}

void StoreActor::Answer(Group& group) {
  std::set<std::string> notified;
  for (const PendingWrite& write : group) {
    if (write.status.ok() && !write.job_id.empty() && notified.insert(write.job_id).second) {
      events_.Notify(write.job_id);
    }
  }
  for (PendingWrite& write : group) {
    if (write.done) {
      write.done(write.status);
    }
  }
}

void StoreActor::Fail(const absl::Status& status) {
  if (!fatal_.ok()) {
    return;
  }
  fatal_ = status;
  {
    MutexLock lock(mutex_);
    health_ = status;
  }
  LOG(ERROR) << "store_fatal error=\"" << status.message() << "\"";
  if (options_.on_fatal) {
    options_.on_fatal(status);
  }
}

}  // namespace nightshift
