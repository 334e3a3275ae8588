// ServerService: the methods of nightshift.v1.ServerService.
#pragma once

#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"

#include "server/rpc/rpc_context.h"

#include "nightshift/v1/server.grpc.pb.h"

namespace nightshift {

class ServerServiceRpc : public v1::ServerService::CallbackService {
 public:
  // `info`: what does not change while the daemon runs.
  ServerServiceRpc(RpcContext& context, v1::ServerInfo info)
      : context_(context), info_(std::move(info)) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;
  grpc::ServerUnaryReactor* DumpTimeline(grpc::CallbackServerContext* context,
                                         const v1::DumpTimelineRequest* request,
                                         v1::Timeline* response) override;
  grpc::ServerUnaryReactor* SetDrain(grpc::CallbackServerContext* context,
                                     const v1::SetDrainRequest* request,
                                     v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* Backup(grpc::CallbackServerContext* context,
                                   const v1::BackupRequest* request,
                                   v1::BackupResponse* response) override;

 private:
  v1::ServerInfo Info() const;

  RpcContext& context_;
  const v1::ServerInfo info_;
};

// The limits as GetServerInfo tells them.
v1::Limits MakeLimits(const RpcLimits& limits);

}  // namespace nightshift
