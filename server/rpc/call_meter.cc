#include "server/rpc/call_meter.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include <google/protobuf/descriptor.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "nightshift/v1/jobs.pb.h"
#include "nightshift/v1/server.pb.h"

namespace nightshift {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr double kSecondsPerMicro = 1e-6;

// "/nightshift.v1.JobService/GetJob" -> "GetJob".
absl::string_view LastPart(absl::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

std::set<std::string> KnownMethods() {
  std::set<std::string> methods = {"Check", "Watch", "ServerReflectionInfo"};
  for (const google::protobuf::FileDescriptor* file :
       {v1::Job::descriptor()->file(), v1::ServerInfo::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        methods.insert(file->service(i)->method(j)->name());
      }
    }
  }
  return methods;
}

// Lives as long as its call.
class Meter : public grpc::experimental::Interceptor {
 public:
  Meter(Metrics& metrics, const Clock& clock, std::string method)
      : metrics_(metrics),
        clock_(clock),
        method_(std::move(method)),
        start_us_(clock.MonotonicMicros()) {
    metrics_.RpcInFlight(method_).Increment();
  }
  ~Meter() override {
    metrics_.RpcInFlight(method_).Decrement();
    metrics_.RpcSeconds(method_, absl::StatusCodeToString(code_))
        .Observe(kSecondsPerMicro * static_cast<double>(clock_.MonotonicMicros() - start_us_));
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      code_ = static_cast<absl::StatusCode>(methods->GetSendStatus().error_code());
    }
    methods->Proceed();
  }

 private:
  Metrics& metrics_;
  const Clock& clock_;
  const std::string method_;
  const int64_t start_us_;
  absl::StatusCode code_ = absl::StatusCode::kCancelled;  // of a call that no status was sent for
};

class MeterFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  MeterFactory(std::shared_ptr<Metrics> metrics, const Clock& clock)
      : metrics_(std::move(metrics)), clock_(clock), methods_(KnownMethods()) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const std::string method(LastPart(info->method() == nullptr ? "" : info->method()));
    return std::make_unique<Meter>(*metrics_, clock_,
                                   methods_.count(method) != 0 ? method : "other")
        .release();  // gRPC owns it
  }

 private:
  const std::shared_ptr<Metrics> metrics_;
  const Clock& clock_;
  const std::set<std::string> methods_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallMeter(
    std::shared_ptr<Metrics> metrics, const Clock& clock) {
  return std::make_unique<MeterFactory>(std::move(metrics), clock);
}

}  // namespace nightshift
