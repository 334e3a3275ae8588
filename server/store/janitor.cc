#include "server/store/janitor.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/failpoint.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

constexpr int64_t kJobsPerRead = 64;

}  // namespace

Janitor::Janitor(JanitorOptions options, StoreActor& store, const Clock& clock)
    : options_(std::move(options)), store_(store), clock_(clock), thread_([this] { Work(); }) {}

Janitor::~Janitor() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void Janitor::Remove(const std::string& input_file) {
  MutexLock lock(mutex_);
  if (!input_file.empty()) {
    files_.push_back(input_file);
  }
  due_ = true;
  changed_.NotifyAll();
}

void Janitor::HoldFiles() {
  MutexLock lock(mutex_);
  ++held_;
  while (removing_) {
    changed_.Wait(mutex_);
  }
}

void Janitor::ReleaseFiles() {
  MutexLock lock(mutex_);
  --held_;
  due_ = true;
  changed_.NotifyAll();
}

bool Janitor::stopping() {
  MutexLock lock(mutex_);
  return stopping_;
}

void Janitor::Work() {
  NameThread("ns-janitor");
  for (;;) {
    {
      MutexLock lock(mutex_);
      bool waited = true;
      while (!due_ && !stopping_ && waited) {
        waited = changed_.WaitFor(mutex_, std::chrono::microseconds(options_.interval_us));
      }
      if (stopping_) {
        return;
      }
      due_ = false;
    }
    Round();
  }
}

void Janitor::Round() {
  EndRetention();
  Purge();
  RemoveFiles();
  options_.on_round();
}

void Janitor::EndRetention() {
  const int64_t now_us = clock_.WallMicros();
  for (const bool purged : {false, true}) {
    const int64_t keep_us = purged ? options_.keep_records_us : options_.keep_results_us;
    bool more = true;
    while (more && !stopping()) {
      const auto due = store_.store().EndedBefore(now_us - keep_us, purged, kJobsPerRead);
      if (!due.ok()) {
        LOG(ERROR) << "retention_unreadable error=\"" << due.status().message() << "\"";
        return;
      }
      for (const std::string& job_id : *due) {
        std::string input_file;
        const absl::Status status =
            store_.WriteAndWait(job_id, [&](JobStore& store) -> absl::Status {
              ASSIGN_OR_RETURN(const JobRecord job, store.GetJob(job_id));
              input_file = job.input_file;
              return purged ? store.DeleteJob(job_id) : store.PurgeResults(job_id);
            });
        LOG(INFO) << (purged ? "record_expired" : "results_expired") << " job=" << job_id
                  << " status=\"" << status.message() << "\"";
        if (!status.ok()) {
          return;  // a record that cannot be read, or a full disk: try again in the next round
        }
        if (!input_file.empty()) {
          MutexLock lock(mutex_);
          files_.push_back(input_file);
        }
      }
      more = static_cast<int64_t>(due->size()) == kJobsPerRead;
    }
  }
}

void Janitor::Purge() {
  bool more = true;
  while (more && !stopping()) {
    const absl::Status status = store_.WriteAndWait("", [&](JobStore& store) -> absl::Status {
      ASSIGN_OR_RETURN(more, store.PurgeDeleted(options_.rows_per_write));
      return absl::OkStatus();
    });
    Failpoint("purge_step");
    if (!status.ok()) {
      LOG(WARNING) << "purge_refused error=\"" << status.message() << "\"";
      return;
    }
  }
}

void Janitor::RemoveFiles() {
  std::vector<std::string> files;
  {
    MutexLock lock(mutex_);
    if (held_ > 0) {
      return;
    }
    files.swap(files_);
    removing_ = true;
  }
  for (const std::string& file : files) {
    const std::string path = absl::StrCat(options_.state_directory, "/", file);
    Failpoint("file_removal");
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      LOG(WARNING) << "file_not_removed path=" << path << " error=\"" << strerror(errno) << "\"";
    }
  }
  MutexLock lock(mutex_);
  removing_ = false;
  changed_.NotifyAll();
}

}  // namespace nightshift
