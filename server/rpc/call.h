// Call: the base of our gRPC reactors. It keeps the rules of the callback API in one place: Finish
// exactly once, no operation after it, nothing started under a lock, the object alive until OnDone
// and until the last callback that knows it; and nothing is done for a caller who may not ask for
// it.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/base/mutex.h"
#include "server/rpc/authorization.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/status_bridge.h"
#include "server/security/caller.h"

namespace nightshift {

// `Reactor` is grpc::ServerUnaryReactor, ServerReadReactor or ServerWriteReactor. Subclasses are
// made by StartCall. They are shared: gRPC owns one reference until OnDone, work in flight (store
// reads, tasks, alarms) owns the others, because gRPC may end a call at any time.
template <typename Reactor>
class Call : public Reactor, public std::enable_shared_from_this<Call<Reactor>> {
 public:
  explicit Call(grpc::CallbackServerContext* context) : context_(context) {}

  // For StartCall: gRPC's reference.
  void Hold() { self_ = this->shared_from_this(); }
  // For StartCall: who calls. False, and the call has ended, when that is refused.
  bool Admit(absl::StatusOr<Caller> caller) {
    if (!caller.ok()) {
      FinishOnce(caller.status());
      return false;
    }
    caller_ = *std::move(caller);
    return true;
  }

  // Ends the call, unless it has ended.
  void FinishOnce(const absl::Status& status) {
    FinishAfter(status, [] {});
  }

 protected:
  // True when nobody waits for an answer any more.
  bool has_finished() {
    MutexLock lock(mutex_);
    return finished_;
  }

  // Starts a read or write, unless the call has ended; a FinishOnce that comes meanwhile takes
  // effect behind it. False when the call had ended.
  template <typename Operation>
  bool Operate(Operation operation) {
    {
      MutexLock lock(mutex_);
      if (finished_) {
        return false;
      }
      ++operating_;
    }
    operation();
    std::optional<absl::Status> deferred;
    {
      MutexLock lock(mutex_);
      if (--operating_ == 0) {
        deferred.swap(deferred_);
      }
    }
    if (deferred) {
      SendStatus(*deferred);
    }
    return true;
  }

  // As FinishOnce; `prepare` runs first, if the call has not ended: it may fill the response.
  template <typename Prepare>
  void FinishAfter(const absl::Status& status, Prepare prepare) {
    {
      MutexLock lock(mutex_);
      if (finished_) {
        return;
      }
      finished_ = true;
      prepare();
      if (operating_ > 0) {
        deferred_ = status;
        return;
      }
    }
    SendStatus(status);
  }

  // Called when gRPC is through with the call: undo subscriptions here.
  virtual void Ended() {}
  grpc::CallbackServerContext& context() { return *context_; }
  // From Start on.
  const Caller& caller() const { return caller_; }

 private:
  void SendStatus(const absl::Status& status) {
    AddRetryMetadata(status, *context_);
    this->Finish(ToGrpcStatus(status));
  }

  void OnCancel() override { FinishOnce(absl::CancelledError("the client left")); }
  void OnDone() override {
    Ended();
    // The last reference may be this one.
    const std::shared_ptr<Call> last = std::move(self_);
  }

  grpc::CallbackServerContext* const context_;
  Caller caller_;
  std::shared_ptr<Call> self_;
  Mutex mutex_;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  int operating_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> deferred_ ABSL_GUARDED_BY(mutex_);
};

// A call with one answer.
template <typename Response>
class UnaryCall : public Call<grpc::ServerUnaryReactor> {
 public:
  UnaryCall(grpc::CallbackServerContext* context, Response* response)
      : Call(context), response_(response) {}

  // Answers, unless the call has ended. Thread-safe.
  void Respond(absl::StatusOr<Response> answer) {
    FinishAfter(answer.status(), [&] {
      if (answer.ok()) {
        *response_ = *std::move(answer);
      }
    });
  }

 private:
  Response* const response_;
};

// Makes a call of `method` ("nightshift.v1.JobService/GetJob"), starts it if its caller may, and
// gives gRPC its reactor.
template <typename Derived, typename... Arguments>
Derived* StartCall(RpcContext& rpc, absl::string_view method, grpc::CallbackServerContext* context,
                   Arguments&&... arguments) {
  const auto call = std::make_shared<Derived>(context, std::forward<Arguments>(arguments)..., rpc);
  call->Hold();
  if (call->Admit(Authorize(rpc.access, *context, method, rpc.clock.WallMicros()))) {
    call->Start();
  }
  return call.get();
}

}  // namespace nightshift
