// RunnerWorld: a store, a fake engine and a runner, started and stopped like a daemon.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/check.h"
#include "kernels/base/mutex.h"
#include "server/scheduling/runner.h"
#include "server/store/recovery.h"
#include "server/store/sqlite_job_store.h"
#include "server/store/state_directory.h"
#include "server/store/store_actor.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_engine.h"
#include "tests/support/memory_job_store.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

enum class StoreKind { kMemory, kSqlite };

// One row of input.
struct InputRow {
  std::string line;
  std::vector<int32_t> prompt;  // what the line holds, for rows that can run
};

// A row of token ids, and options as further JSON members (", \"max_tokens\": 4").
inline InputRow TokenRow(const std::string& id, std::vector<int32_t> prompt,
                         const std::string& options = "") {
  InputRow row;
  row.line = absl::StrCat("{\"id\": \"", id, "\", \"prompt\": [", absl::StrJoin(prompt, ", "), "]",
                          options, "}");
  row.prompt = std::move(prompt);
  return row;
}

class RunnerWorld {
 public:
  explicit RunnerWorld(StoreKind kind) : kind_(kind) {
    auto directory = StateDirectory::Open(folder_.path() + "/state");
    CHECK(directory.ok());
    directory_ = *std::move(directory);
    options.state_directory = directory_->path();
    options.engine.max_block_requests = 8;
    options.store_retry_interval_us = 1000;
    options.load_retry_interval_us = 1000;
    options.input_retry_interval_us = 1000;
  }
  ~RunnerWorld() {
    control.ReleaseSweeps();
    Stop();
  }
  RunnerWorld(const RunnerWorld&) = delete;
  RunnerWorld& operator=(const RunnerWorld&) = delete;

  void Start() {
    StartStore();
    catalog_ = std::make_unique<ModelCatalog>(models, "");
    runner_ = std::make_unique<Runner>(
        options, *actor_, *catalog_,
        [this](const EngineOptions& engine) {
          return FakeEngine::Create(engine, fake_engine, &control);
        },
        clock);
    runner_->Start();
  }
  // The store alone, so that jobs can be submitted before anything runs.
  void StartStore() {
    if (actor_ != nullptr) {
      return;
    }
    actor_ = std::make_unique<StoreActor>(OpenStore(), StoreActorOptions{.on_fatal = {}});
    CHECK(RecoverState(*actor_, *directory_).ok());
  }
  void Stop() {
    runner_.reset();
    actor_.reset();
  }

  void Submit(const std::string& job_id, const std::vector<InputRow>& rows,
              const v1::JobSpec& spec = {}, const std::string& model = "llama") {
    JobRecord job;
    job.id = job_id;
    job.uid = absl::StrCat("uid-", job_id, "-", last_create_time_us_ + 1);
    job.model = model;
    job.priority = spec.priority() == 0 ? 2 : spec.priority();
    job.spec = spec.SerializeAsString();
    job.input_format = v1::INPUT_FORMAT_JSONL;
    job.input_file = "jobs/" + job_id;
    job.create_time_us = ++last_create_time_us_;
    job.expire_time_us = expire_after_us == 0 ? 0 : clock.WallMicros() + expire_after_us;
    std::vector<NewRow> stored;
    std::string input;
    for (const InputRow& row : rows) {
      const int64_t index = static_cast<int64_t>(stored.size());
      stored.push_back({.index = index,
                        .offset = static_cast<int64_t>(input.size()),
                        .length = static_cast<int64_t>(row.line.size()),
                        .line = index + 1,
                        .error_body = {}});
      input += row.line + "\n";
    }
    WriteFile(job.input_file, input);
    Write(job_id, [&](JobStore& store) -> absl::Status {
      RETURN_IF_ERROR(store.InsertJob(job));
      RETURN_IF_ERROR(store.InsertRows(job_id, stored));
      return store.FinishReceiving(job_id, 0);
    });
  }
  void Cancel(const std::string& job_id) {
    Write(job_id, [&](JobStore& store) { return store.RequestCancel(job_id); });
  }
  void Write(const std::string& job_id, const StoreActor::WriteOperation& operation) {
    const absl::Status status = actor_->WriteAndWait(job_id, operation);
    if (!status.ok()) {
      CheckFailed(__FILE__, __LINE__, "write", status.ToString());
    }
  }
  // Waits until everything that was written before is durable.
  void Settle() {
    Write("", [](JobStore&) { return absl::OkStatus(); });
  }
  // What a restart would find: rows without a result, with their progress.
  std::vector<ClaimedRow> UnfinishedAfterCrash(const std::string& job_id) {
    std::vector<ClaimedRow> rows;
    const absl::Status undone = actor_->WriteAndWait("", [&](JobStore& store) -> absl::Status {
      RETURN_IF_ERROR(store.Recover().status());
      ASSIGN_OR_RETURN(rows, store.NextUnfinished(job_id, 1 << 20));
      return absl::AbortedError("only looking");
    });
    CHECK(absl::IsAborted(undone));
    return rows;
  }
  JobRecord Job(const std::string& job_id) {
    auto job = actor_->store().GetJob(job_id);
    CHECK(job.ok());
    return *job;
  }
  JobRecord WaitForEnd(const std::string& job_id) {
    return WaitUntil(job_id, [](const JobRecord& job) { return IsTerminal(job.state); });
  }
  JobRecord WaitUntil(const std::string& job_id,
                      const std::function<bool(const JobRecord&)>& reached) {
    Mutex mutex;
    CondVar changed;
    int64_t changes = 1;
    const int64_t subscription = actor_->events().Subscribe(job_id, [&] {
      MutexLock lock(mutex);
      ++changes;
      changed.NotifyAll();
    });
    JobRecord job = Job(job_id);
    while (!reached(job)) {
      {
        MutexLock lock(mutex);
        while (changes == 0) {
          changed.Wait(mutex);
        }
        changes = 0;
      }
      job = Job(job_id);
    }
    actor_->events().Unsubscribe(subscription);
    return job;
  }
  // By index; CHECKs that sequence numbers are dense and every row has exactly one result.
  std::vector<v1::Result> Results(const std::string& job_id) {
    const JobRecord job = Job(job_id);
    std::vector<v1::Result> by_index(static_cast<size_t>(job.counts.total));
    std::vector<bool> seen(by_index.size(), false);
    int64_t after_seq = 0;
    for (;;) {
      auto results = actor_->store().ReadResults(job_id, after_seq, 1 << 20);
      CHECK(results.ok());
      if (results->empty()) {
        break;
      }
      for (const StoredResult& stored : *results) {
        CHECK_EQ(stored.seq, ++after_seq);
        v1::Result result;
        CHECK(result.ParseFromString(stored.body));
        const size_t index = static_cast<size_t>(result.index());
        CHECK(index < seen.size() && !seen[index]);
        seen[index] = true;
        by_index[index] = std::move(result);
      }
    }
    CHECK_EQ(after_seq, job.last_seq);
    for (size_t i = 0; i < seen.size(); ++i) {
      CHECK(!IsTerminal(job.state) || seen[i]);
    }
    return by_index;
  }
  void WriteFile(const std::string& name, const std::string& bytes) {
    FILE* file = fopen((directory_->path() + "/" + name).c_str(), "wb");
    CHECK(file != nullptr);
    CHECK_EQ(fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
    CHECK_EQ(fclose(file), 0);
  }

  // Until RestoreInput the input of a job cannot be opened, though it is there.
  void BlockInput(const std::string& job_id) {
    const std::string path = directory_->path() + "/jobs/" + job_id;
    std::filesystem::rename(path, path + ".away");
    std::filesystem::create_symlink(path + ".away", path);
  }
  void RestoreInput(const std::string& job_id) {
    const std::string path = directory_->path() + "/jobs/" + job_id;
    std::filesystem::rename(path + ".away", path);
  }

  Runner& runner() { return *runner_; }
  StoreActor& actor() { return *actor_; }
  // Of the running store; nullptr for SQLite.
  MemoryJobStore* memory_store() { return memory_store_; }

  std::vector<std::string> models = {TinyPack("llama"), TinyPack("llama_tied")};
  RunnerOptions options;
  FakeEngineOptions fake_engine;
  FakeEngineControl control;
  FakeClock clock;
  int64_t expire_after_us = 0;  // of jobs that are submitted; 0: never

 private:
  std::unique_ptr<JobStore> OpenStore() {
    if (kind_ == StoreKind::kMemory) {
      auto store = std::make_unique<MemoryJobStore>(disk_);
      memory_store_ = store.get();
      return store;
    }
    auto store = SqliteJobStore::Open({.path = directory_->database_path()});
    CHECK(store.ok());
    return *std::move(store);
  }

  const StoreKind kind_;
  TemporaryFolder folder_;
  MemoryDisk disk_;
  MemoryJobStore* memory_store_ = nullptr;
  int64_t last_create_time_us_ = 0;
  std::unique_ptr<StateDirectory> directory_;
  std::unique_ptr<StoreActor> actor_;
  std::unique_ptr<ModelCatalog> catalog_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace nightshift
