// ServiceWorld: a whole Server with the fake engine behind a Unix socket, and a client's verbs.
#pragma once

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/checksum.h"
#include "server/security/digest.h"
#include "server/security/identifiers.h"
#include "server/server.h"
#include "tests/support/fake_engine.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "nightshift/v1/jobs.grpc.pb.h"
#include "nightshift/v1/server.grpc.pb.h"

namespace nightshift {

// What an error says to programs.
struct ErrorDetails {
  std::string reason;
  std::map<std::string, std::string> metadata;
  std::vector<std::string> violations;  // fields of BadRequest
  bool has_retry = false;
  std::string resource;
};

inline ErrorDetails DetailsOf(const grpc::Status& status) {
  google::rpc::Status wire;
  CHECK(wire.ParseFromString(status.error_details()));
  CHECK_EQ(wire.code(), static_cast<int>(status.error_code()));
  ErrorDetails details;
  for (const auto& any : wire.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::ResourceInfo resource;
    if (any.UnpackTo(&info)) {
      CHECK_EQ(info.domain(), "nightshift.v1");
      details.reason = info.reason();
      details.metadata = {info.metadata().begin(), info.metadata().end()};
    } else if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        details.violations.push_back(violation.field());
      }
    } else if (any.UnpackTo(&resource)) {
      details.resource = resource.resource_name();
    } else {
      details.has_retry = details.has_retry || any.Is<google::rpc::RetryInfo>();
    }
  }
  return details;
}

// A call with this code and reason.
MATCHER_P2(Refuses, code, reason, "has the code and the reason") {
  *result_listener << "code " << arg.error_code() << ", " << arg.error_message();
  if (arg.error_code() != code || arg.error_details().size() > 4096) {
    return false;
  }
  const std::string found = DetailsOf(arg).reason;
  *result_listener << ", reason " << found;
  return found == reason;
}

struct ResultsRead {
  grpc::Status status;
  std::vector<v1::Result> results;
  bool ended = false;
  v1::ResultBatch::End end;
  int num_batches = 0;
};

class ServiceWorld : public ::testing::Test {
 protected:
  ServiceWorld() {
    // What somebody has measured of this machine is planned with by who asks for it.
    ::setenv("NIGHTSHIFT_CACHE", folder_.path().c_str(), 1);
    options_.state_directory = folder_.path() + "/state";
    options_.listen = {"unix:" + folder_.path() + "/socket"};
    options_.models = {TinyPack("llama")};
    options_.memory_budget_bytes = 64 << 20;
    options_.max_block_requests = 8;
    options_.disk_ballast_bytes = 1 << 16;
    Start();
  }
  ~ServiceWorld() override {
    control_.ReleaseSweeps();
    server_.reset();
  }

  void Start() {
    ServerParts parts;
    parts.engine_factory = [this](const EngineOptions& engine) {
      return FakeEngine::Create(engine, fake_engine_, &control_);
    };
    parts.on_fatal = on_fatal_;
    parts.heartbeat_interval_us = heartbeat_interval_us_;
    parts.stalled_reader_us = stalled_reader_us_;
    auto server = Server::Start(options_, std::move(parts));
    if (!server.ok()) {
      CheckFailed(__FILE__, __LINE__, "start", server.status().ToString());
    }
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
    jobs_ = v1::JobService::NewStub(channel_);
    info_ = v1::ServerService::NewStub(channel_);
  }
  void Restart() {
    server_.reset();
    Start();
  }

  // A job of token prompts, one row each.
  static v1::SubmitJobRequest TokenJob(int num_rows, const std::string& job_id = "") {
    v1::SubmitJobRequest request;
    request.set_job_id(job_id);
    request.mutable_spec()->mutable_sampling()->set_max_output_tokens(4);
    for (int i = 0; i < num_rows; ++i) {
      v1::InferenceRequest& row = *request.add_requests();
      row.set_custom_id(absl::StrCat("row-", i));
      for (int token = 0; token < 3; ++token) {
        row.mutable_tokens()->add_ids(20 + i % 200 + token);
      }
    }
    return request;
  }

  grpc::Status Submit(const v1::SubmitJobRequest& request, v1::Job& job) {
    grpc::ClientContext context;
    return jobs_->SubmitJob(&context, request, &job);
  }
  v1::Job Submit(const v1::SubmitJobRequest& request) {
    v1::Job job;
    const grpc::Status status = Submit(request, job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  grpc::Status Get(const std::string& name, v1::Job& job) {
    v1::GetJobRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    return jobs_->GetJob(&context, request, &job);
  }
  v1::ListJobsResponse List(const v1::ListJobsRequest& request) {
    grpc::ClientContext context;
    v1::ListJobsResponse response;
    const grpc::Status status = jobs_->ListJobs(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  grpc::Status Wait(const v1::WaitJobRequest& request, v1::Job& job) {
    grpc::ClientContext context;
    return jobs_->WaitJob(&context, request, &job);
  }
  v1::Job WaitForEnd(const std::string& name) {
    v1::WaitJobRequest request;
    request.set_name(name);
    v1::Job job;
    const grpc::Status status = Wait(request, job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  grpc::Status Cancel(const std::string& name, v1::Job& job, const std::string& etag = "") {
    v1::CancelJobRequest request;
    request.set_name(name);
    request.set_etag(etag);
    grpc::ClientContext context;
    return jobs_->CancelJob(&context, request, &job);
  }
  ResultsRead Stream(const v1::StreamResultsRequest& request) {
    grpc::ClientContext context;
    const auto reader = jobs_->StreamResults(&context, request);
    ResultsRead read;
    v1::ResultBatch batch;
    while (reader->Read(&batch)) {
      ++read.num_batches;
      read.results.insert(read.results.end(), batch.results().begin(), batch.results().end());
      if (batch.has_end()) {
        EXPECT_FALSE(read.ended);
        read.ended = true;
        read.end = batch.end();
      }
    }
    read.status = reader->Finish();
    return read;
  }
  ResultsRead Stream(const std::string& name, int64_t after_seq = 0, bool follow = true) {
    v1::StreamResultsRequest request;
    request.set_name(name);
    request.set_after_seq(after_seq);
    request.set_follow(follow);
    return Stream(request);
  }

  // The parts of an upload, to be bent before they are sent.
  static std::vector<v1::SubmitJobStreamRequest> UploadParts(const std::string& input,
                                                             size_t chunk_bytes = 64) {
    std::vector<v1::SubmitJobStreamRequest> parts(1);
    v1::SubmitJobStreamRequest::Header& header = *parts[0].mutable_header();
    header.set_request_id(MakeUuid(1));
    header.set_format(v1::INPUT_FORMAT_JSONL);
    header.mutable_spec()->mutable_sampling()->set_max_output_tokens(4);
    Sha256 digest;
    digest.Update(input);
    for (size_t offset = 0; offset < input.size(); offset += chunk_bytes) {
      v1::SubmitJobStreamRequest::Chunk& chunk = *parts.emplace_back().mutable_chunk();
      chunk.set_offset(static_cast<int64_t>(offset));
      chunk.set_data(input.substr(offset, chunk_bytes));
      chunk.set_crc32c(Crc32c(std::as_bytes(std::span(chunk.data()))));
    }
    v1::SubmitJobStreamRequest::Finish& finish = *parts.emplace_back().mutable_finish();
    finish.set_total_bytes(static_cast<int64_t>(input.size()));
    finish.set_sha256(digest.Finish());
    return parts;
  }
  grpc::Status Upload(const std::vector<v1::SubmitJobStreamRequest>& parts, v1::Job& job) {
    grpc::ClientContext context;
    const auto writer = jobs_->SubmitJobStream(&context, &job);
    for (const v1::SubmitJobStreamRequest& part : parts) {
      if (!writer->Write(part)) {
        break;
      }
    }
    writer->WritesDone();
    return writer->Finish();
  }
  v1::Job Upload(const std::string& input) {
    v1::Job job;
    const grpc::Status status = Upload(UploadParts(input), job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  TemporaryFolder folder_;
  Options options_;
  std::function<void(const absl::Status&)> on_fatal_ = [](const absl::Status& status) {
    ADD_FAILURE() << "store failed: " << status;
  };
  int64_t heartbeat_interval_us_ = 15'000'000;  // from the next Start on
  int64_t stalled_reader_us_ = 300'000'000;     // likewise
  FakeEngineOptions fake_engine_;
  FakeEngineControl control_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ServerService::Stub> info_;
};

}  // namespace nightshift
