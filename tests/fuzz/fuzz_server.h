// A whole daemon with a fake engine inside the fuzzer, on a Unix socket in a folder of its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "kernels/base/check.h"
#include "server/server.h"
#include "tests/support/fake_engine.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

#include "nightshift/v1/jobs.grpc.pb.h"
#include "nightshift/v1/server.grpc.pb.h"

namespace nightshift {

class FuzzServer {
 public:
  // Started by the first call; lives as long as the process.
  static FuzzServer& Get() {
    static FuzzServer server;
    return server;
  }

  const std::string& socket_path() const { return socket_path_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::JobService::Stub& jobs() { return *jobs_; }

  // The daemon answers.
  void ExpectAlive() {
    grpc::ClientContext context;
    SetDeadline(context, std::chrono::seconds(60));
    v1::ServerInfo info;
    const grpc::Status status = info_->GetServerInfo(&context, {}, &info);
    if (!status.ok()) {
      CheckFailed(__FILE__, __LINE__, "GetServerInfo", status.error_message());
    }
  }

  static void SetDeadline(grpc::ClientContext& context, std::chrono::milliseconds left) {
    context.set_deadline(std::chrono::system_clock::now() + left);
  }

 private:
  FuzzServer() {
    Options options;
    options.state_directory = folder_.path() + "/state";
    options.listen = {"unix:" + socket_path_};
    options.models = {TinyPackWithTokenizer("llama")};
    options.plans = false;
    options.memory_budget_bytes = 64 << 20;
    options.disk_reserve_bytes = 0;
    options.disk_ballast_bytes = 1 << 16;
    ServerParts parts;
    // The engine runs in the fuzzer's own process, which no prompt may end.
    parts.engine_factory = [](const EngineOptions& engine) {
      return FakeEngine::Create(engine, {.crashes = false}, nullptr);
    };
    parts.on_fatal = [](const absl::Status& status) {
      CheckFailed(__FILE__, __LINE__, "store", status.ToString());
    };
    auto server = Server::Start(options, std::move(parts));
    if (!server.ok()) {
      CheckFailed(__FILE__, __LINE__, "start", server.status().ToString());
    }
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->addresses()[0], grpc::InsecureChannelCredentials());
    jobs_ = v1::JobService::NewStub(channel_);
    info_ = v1::ServerService::NewStub(channel_);
  }

  TemporaryFolder folder_;
  const std::string socket_path_ = folder_.path() + "/socket";
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::ServerService::Stub> info_;
};

}  // namespace nightshift
