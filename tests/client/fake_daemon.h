// A daemon of the client tests: JobService on a Unix socket of a scratch folder, whose streams
// break, repeat and fall silent as a script says.
#pragma once

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "client/rpc_error.h"
#include "kernels/base/checksum.h"
#include "kernels/base/mutex.h"

#include "google/rpc/error_details.pb.h"
#include "nightshift/v1/jobs.grpc.pb.h"
#include "nightshift/v1/server.grpc.pb.h"

namespace nightshift {

inline constexpr char kFakeJob[] = "jobs/fake";
inline constexpr char kFakeUid[] = "0198c0de-0000-7000-8000-0000000000aa";

// A status with ErrorInfo, as the server sends it.
inline grpc::Status RpcError(grpc::StatusCode code, const std::string& reason,
                             const std::string& message) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  google::rpc::Status status;
  status.set_code(code);
  status.add_details()->PackFrom(info);
  return {code, message, status.SerializeAsString()};
}

// What one StreamResults call does instead of sending all that follows after_seq.
struct StreamScript {
  int64_t num_results = INT64_MAX;  // then `status`
  grpc::Status status = grpc::Status::OK;
  bool then_silent = false;  // no status either, until the call is cancelled
  int64_t repeat = 0;        // starts so many results before what was asked for
  bool skip_one = false;     // leaves the first result out
};

class FakeServerService : public v1::ServerService::Service {
 public:
  std::vector<v1::Model> models;

  grpc::Status ListModels(grpc::ServerContext* /*context*/,
                          const v1::ListModelsRequest* /*request*/,
                          v1::ListModelsResponse* response) override {
    response->mutable_models()->Assign(models.begin(), models.end());
    return grpc::Status::OK;
  }
};

class FakeDaemon : public v1::JobService::Service {
 public:
  explicit FakeDaemon(int64_t num_results)
      : folder_(std::filesystem::path(testing::TempDir()) /
                ("fake-" + std::to_string(getpid()) + "-" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
    for (int64_t seq = 1; seq <= num_results; ++seq) {
      results_.push_back(MakeResult(seq));
    }
    Start();
  }
  ~FakeDaemon() override {
    Stop();
    std::filesystem::remove_all(folder_);
  }

  // As a crash and a restart: every connection breaks.
  void Restart() {
    Stop();
    Start();
  }
  void Stop() {
    {
      const MutexLock lock(mutex_);
      released_ = true;
    }
    wake_.NotifyAll();
    if (server_ != nullptr) {
      server_->Shutdown(std::chrono::system_clock::now());
      server_->Wait();
      server_.reset();
    }
  }

  std::string address() const { return "unix:" + (folder_ / "s").string(); }
  std::string PathOf(const std::string& name) const { return (folder_ / name).string(); }

  // Scripts of the next calls, first come first served; calls without one are plain.
  std::deque<StreamScript> streams;
  std::deque<grpc::Status> submit_errors;
  v1::JobState final_state = v1::JOB_STATE_SUCCEEDED;
  int64_t missing_results = 0;  // the job claims so many more requests than it has results
  bool knows_job = true;
  std::function<void()> on_silent = [] {};  // when a stream falls silent

  FakeServerService server_service;

  // What was asked for.
  std::vector<int64_t> asked_after;
  std::vector<std::string> request_ids;
  std::string uploaded;
  int num_cancels = 0;

  v1::Job MakeJob() const {
    v1::Job job;
    job.set_name(kFakeJob);
    job.set_uid(kFakeUid);
    job.set_state(final_state);
    job.mutable_create_time()->set_seconds(1'750'000'000);
    *job.mutable_counts() = Counts();
    return job;
  }

  grpc::Status GetJob(grpc::ServerContext* /*context*/, const v1::GetJobRequest* request,
                      v1::Job* response) override {
    if (!knows_job || request->name() != kFakeJob) {
      return RpcError(grpc::StatusCode::NOT_FOUND, "JOB_NOT_FOUND", "no job " + request->name());
    }
    *response = MakeJob();
    return grpc::Status::OK;
  }

  grpc::Status WaitJob(grpc::ServerContext* /*context*/, const v1::WaitJobRequest* /*request*/,
                       v1::Job* response) override {
    *response = MakeJob();
    return grpc::Status::OK;
  }

  grpc::Status CancelJob(grpc::ServerContext* /*context*/, const v1::CancelJobRequest* /*request*/,
                         v1::Job* response) override {
    ++num_cancels;
    final_state = v1::JOB_STATE_CANCELLED;
    *response = MakeJob();
    return grpc::Status::OK;
  }

  grpc::Status SubmitJobStream(grpc::ServerContext* /*context*/,
                               grpc::ServerReader<v1::SubmitJobStreamRequest>* reader,
                               v1::Job* response) override {
    uploaded.clear();
    bool finished = false;
    for (v1::SubmitJobStreamRequest part; reader->Read(&part);) {
      if (part.has_header()) {
        request_ids.push_back(part.header().request_id());
        if (!submit_errors.empty()) {
          const grpc::Status error = submit_errors.front();
          submit_errors.pop_front();
          return error;
        }
      } else if (part.has_chunk()) {
        EXPECT_EQ(part.chunk().offset(), static_cast<int64_t>(uploaded.size()));
        EXPECT_EQ(part.chunk().crc32c(), Crc32c(std::as_bytes(std::span(part.chunk().data()))));
        EXPECT_LE(part.chunk().data().size(), 256U << 10);
        uploaded += part.chunk().data();
      } else {
        finished = true;
        EXPECT_EQ(part.finish().total_bytes(), static_cast<int64_t>(uploaded.size()));
        EXPECT_EQ(part.finish().sha256().size(), 32U);
      }
    }
    if (!finished) {
      return RpcError(grpc::StatusCode::ABORTED, "UPLOAD_INCOMPLETE", "no finish");
    }
    *response = MakeJob();
    return grpc::Status::OK;
  }

  grpc::Status StreamResults(grpc::ServerContext* context, const v1::StreamResultsRequest* request,
                             grpc::ServerWriter<v1::ResultBatch>* writer) override {
    asked_after.push_back(request->after_seq());
    StreamScript script;
    if (!streams.empty()) {
      script = streams.front();
      streams.pop_front();
    }
    const int64_t first = std::max<int64_t>(0, request->after_seq() - script.repeat);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(results_.size()),
                                          first + std::min<int64_t>(script.num_results, 1 << 20));
    for (int64_t i = first + (script.skip_one ? 1 : 0); i < end; ++i) {
      v1::ResultBatch batch;
      *batch.add_results() = results_[static_cast<size_t>(i)];
      writer->Write(batch);
    }
    if (script.then_silent) {
      on_silent();
      WaitUntilReleased();
      return grpc::Status::CANCELLED;
    }
    if (script.status.ok() && end == static_cast<int64_t>(results_.size()) &&
        !context->IsCancelled()) {
      v1::ResultBatch batch;
      batch.mutable_end()->set_state(final_state);
      *batch.mutable_end()->mutable_counts() = Counts();
      writer->Write(batch);
    }
    return script.status;
  }

 private:
  static v1::Result MakeResult(int64_t seq) {
    v1::Result result;
    result.set_seq(seq);
    result.set_index(seq - 1);
    result.set_custom_id("row-" + std::to_string(seq));
    result.set_form(v1::REQUEST_FORM_PLAIN);
    result.mutable_completion()->set_text("text of " + std::to_string(seq));
    return result;
  }

  v1::JobCounts Counts() const {
    v1::JobCounts counts;
    counts.set_total(static_cast<int64_t>(results_.size()) + missing_results);
    counts.set_succeeded(static_cast<int64_t>(results_.size()));
    return counts;
  }

  void Start() {
    {
      const MutexLock lock(mutex_);
      released_ = false;
    }
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    builder.RegisterService(&server_service);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr) << address();
  }

  void WaitUntilReleased() {
    const MutexLock lock(mutex_);
    while (!released_) {
      wake_.Wait(mutex_);
    }
  }

  const std::filesystem::path folder_;
  std::vector<v1::Result> results_;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  CondVar wake_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace nightshift
