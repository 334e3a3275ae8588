// Input: a byte that chooses a method, and the messages of one call of it. The daemon answers each
// call, with a status that says why where it refuses, and never with an error of its own.
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_server.h"

#include "google/rpc/status.pb.h"

namespace nightshift {
namespace {

// Not among them: SetDrain, which would end all others, and Backup, which writes where it is told.
// The order is that of make_seeds.py.
constexpr const char* kMethods[] = {
    "JobService/SubmitJob",     "JobService/SubmitJobStream", "JobService/GetUploadStatus",
    "JobService/GetJob",        "JobService/ListJobs",        "JobService/WaitJob",
    "JobService/CancelJob",     "JobService/PauseJob",        "JobService/ResumeJob",
    "JobService/RetryFailed",   "JobService/DeleteJob",       "JobService/StreamResults",
    "ServerService/ListModels", "ServerService/GetModel",     "ServerService/DumpTimeline",
    "JobService/CutDocument",   "JobService/GetPolicy",       "JobService/ExplainPolicy",
    "ServerService/GetServerInfo",
};
constexpr size_t kMaxMessages = 8;

struct Answer {
  grpc::Status status;
  std::vector<std::string> messages;
};

// One event of the only operation that is on its way; false when it came to nothing.
bool Await(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  CHECK(queue.Next(&tag, &ok));
  return ok;
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  CHECK(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

Answer Ask(const std::string& method, const std::vector<std::string>& messages) {
  FuzzServer& server = FuzzServer::Get();
  grpc::GenericStub stub(server.channel());
  grpc::ClientContext context;
  // What waits for a job, or follows it, is cut off.
  FuzzServer::SetDeadline(context, std::chrono::milliseconds(500));
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/nightshift.v1." + method, &queue);
  call->StartCall(nullptr);
  bool open = Await(queue);
  for (size_t i = 0; i < messages.size() && open; ++i) {
    const grpc::Slice slice(messages[i]);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    open = Await(queue);
  }
  if (open) {
    call->WritesDone(nullptr);
    Await(queue);
  }
  Answer answer;
  for (open = true; open;) {
    grpc::ByteBuffer response;
    call->Read(&response, nullptr);
    open = Await(queue);
    if (open) {
      answer.messages.push_back(BytesOf(response));
    }
  }
  call->Finish(&answer.status, nullptr);
  CHECK(Await(queue));
  return answer;
}

void CheckStatus(const std::string& method, const grpc::Status& status) {
  constexpr size_t kMostDetailBytes = 4096;
  CHECK_LE(status.error_details().size(), kMostDetailBytes);
  if (status.error_details().empty()) {
    return;  // gRPC's own: a message that does not parse, a deadline
  }
  google::rpc::Status details;
  CHECK(details.ParseFromString(status.error_details()));
  CHECK_EQ(details.code(), static_cast<int>(status.error_code()));
  if (status.error_code() == grpc::StatusCode::INTERNAL ||
      status.error_code() == grpc::StatusCode::UNKNOWN ||
      status.error_code() == grpc::StatusCode::DATA_LOSS) {
    CheckFailed(__FILE__, __LINE__, method.c_str(), status.error_message());
  }
}

void Delete(const std::string& name) {
  grpc::ClientContext context;
  FuzzServer::SetDeadline(context, std::chrono::seconds(60));
  v1::DeleteJobRequest request;
  request.set_name(name);
  request.set_force(true);
  request.set_allow_missing(true);
  google::protobuf::Empty response;
  FuzzServer::Get().jobs().DeleteJob(&context, request, &response);
}

// The jobs that seeds name: one that ends, one that waits.
void MakeJobs() {
  for (const char* id : {"done", "held"}) {
    v1::SubmitJobRequest request;
    request.set_job_id(id);
    request.mutable_spec()->mutable_sampling()->set_max_output_tokens(2);
    if (std::string(id) == "held") {
      constexpr int64_t kFarSeconds = 4'000'000'000;
      request.mutable_spec()->mutable_not_before()->set_seconds(kFarSeconds);
    }
    for (int i = 0; i < 3; ++i) {
      request.add_requests()->mutable_tokens()->add_ids(20 + i);
    }
    grpc::ClientContext context;
    FuzzServer::SetDeadline(context, std::chrono::seconds(60));
    v1::Job job;
    const grpc::Status status = FuzzServer::Get().jobs().SubmitJob(&context, request, &job);
    CHECK(status.ok() || status.error_code() == grpc::StatusCode::ALREADY_EXISTS);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kInputsBetweenJobs = 64;
  static int num_inputs = 0;
  if (size == 0) {
    return 0;
  }
  if (num_inputs++ % kInputsBetweenJobs == 0) {
    MakeJobs();
  }
  const std::string method = kMethods[data[0] % std::size(kMethods)];
  std::vector<std::string> messages = {std::string(InputText(data + 1, size - 1))};
  if (method == "JobService/SubmitJobStream") {
    messages = InputParts(messages[0], kMaxMessages);
  }
  const Answer answer = Ask(method, messages);
  CheckStatus(method, answer.status);
  v1::Job job;
  const bool makes_job = method.find("Submit") != std::string::npos ||
                         method == "JobService/RetryFailed";
  if (makes_job && answer.status.ok() && job.ParseFromString(answer.messages.at(0))) {
    Delete(job.name());
  }
  return 0;
}

}  // namespace nightshift
