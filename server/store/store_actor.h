// StoreActor: the one thread that writes. Groups queued writes into one transaction (group commit)
// and answers each after the commit; reads run on a few threads of their own.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/metrics/metrics.h"
#include "server/store/job_events.h"
#include "server/store/job_store.h"

namespace nightshift {

struct StoreActorOptions {
  int64_t max_queued_writes = 4096;  // beyond it Write answers RESOURCE_EXHAUSTED
  int64_t max_queued_reads = 4096;
  int64_t max_writes_per_commit = 256;
  int num_readers = 2;
  // Called once, on the store thread, when a commit fails with an I/O error: the daemon must stop
  // accepting and exit, a failed sync is never retried.
  std::function<void(const absl::Status&)> on_fatal;
  // Called on the store thread when a write found no room (RESOURCE_EXHAUSTED without a
  // payload: with one it is the operation's own refusal). True: there is room now, and the write is
  // tried once more.
  std::function<bool()> on_full = [] { return false; };
  // Shared with all parts of the daemon; by itself the actor counts for nobody.
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();
};

class StoreActor {
 public:
  // A unit of change: runs inside the open transaction; a failing one is undone alone. It may run
  // again when a commit that held it failed for want of disk space: it must not consume what it
  // captured, and what it leaves behind is of its last run.
  using WriteOperation = std::function<absl::Status(JobStore&)>;
  using ReadOperation = std::function<void(JobStore&)>;
  using Done = std::function<void(const absl::Status&)>;

  StoreActor(std::unique_ptr<JobStore> store, StoreActorOptions options);
  // Finishes what is queued, then stops and closes the store.
  ~StoreActor();
  StoreActor(const StoreActor&) = delete;
  StoreActor& operator=(const StoreActor&) = delete;

  // Queues a write. `done` (may be empty) runs on the store thread after the commit that holds it,
  // or with the error, in the order of the calls. `job_id` (may be empty) is notified in events()
  // after a successful commit, before done.
  // RESOURCE_EXHAUSTED at once when the queue is full: then done is not called.
  absl::Status Write(const std::string& job_id, WriteOperation operation, Done done);
  // As Write, and waits, also for a place in the queue. For threads that may block (runner, main),
  // never for gRPC reactions or the store thread itself.
  absl::Status WriteAndWait(const std::string& job_id, WriteOperation operation);
  // Queues a read for a reader thread. RESOURCE_EXHAUSTED when the queue is full.
  absl::Status Read(ReadOperation operation);

  JobEvents& events() { return events_; }
  JobStore& store() { return *store_; }  // reading methods only
  // Not OK once nothing more is made durable: what on_fatal was told. Any thread.
  absl::Status health() const;

 private:
  struct PendingWrite {
    std::string job_id;
    WriteOperation operation;
    Done done;
    absl::Status status;
  };
  using Group = std::vector<PendingWrite>;

  void WriteLoop();
  void ReadLoop();
  // The next writes in order, at most max_writes_per_commit; empty when stopping.
  Group TakeGroup();
  // Gives each write of the group its status; those that are OK are durable.
  void CommitGroup(Group& group);
  // One transaction for all, measured. An error: nothing of it was kept.
  absl::Status CommitTogether(Group& group);
  absl::Status RunTransaction(Group& group);
  absl::Status RunMarked(PendingWrite& write);
  // Whether a write that ended so is worth another try.
  bool HasRoomAfter(const absl::Status& status);
  // One transaction for each.
  void CommitAlone(Group& group);
  void Answer(Group& group);
  void Fail(const absl::Status& status);

  std::unique_ptr<JobStore> store_;
  const StoreActorOptions options_;
  JobEvents events_;
  absl::Status fatal_;  // store thread only
  RealClock clock_;
  mutable Mutex mutex_;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);
  CondVar writes_ready_;
  CondVar writes_taken_;
  CondVar reads_ready_;
  std::deque<PendingWrite> writes_ ABSL_GUARDED_BY(mutex_);
  std::deque<ReadOperation> reads_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> readers_;
  std::thread writer_;
};

}  // namespace nightshift
