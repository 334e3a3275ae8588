#include "server/rpc/readiness.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/rpc/disk_reserve.h"

namespace nightshift {
namespace {

constexpr char kEngine[] = "engine";

absl::Status CheckEngine(const RpcContext& rpc) {
  RETURN_IF_ERROR(rpc.calls.CheckAccepts());
  const RunnerStatus runner = rpc.runner_status();
  if (!runner.model_waits.empty()) {
    const auto& [model, reason] = *runner.model_waits.begin();
    return absl::UnavailableError(absl::StrCat("jobs of model ", model, " wait for it: ", reason));
  }
  if (!runner.sweep_error.empty()) {
    return absl::UnavailableError(absl::StrCat("the last sweep failed: ", runner.sweep_error));
  }
  const std::vector<CatalogModel> models = rpc.catalog.List();
  if (models.empty()) {
    return absl::FailedPreconditionError("there is no model: import one with nightshift import");
  }
  const auto can_be_served = [](const CatalogModel& model) { return model.status.ok(); };
  return std::any_of(models.begin(), models.end(), can_be_served)
             ? absl::OkStatus()
             : absl::FailedPreconditionError(absl::StrCat(
                   "no model can be served; ", models[0].name, ": ", models[0].status.message()));
}

}  // namespace

std::vector<ReadinessCheck> CheckReadiness(const RpcContext& rpc) {
  return {{"store", rpc.store.health()},
          {"disk", CheckDiskReserve(rpc, 0)},
          {"drain", rpc.calls.CheckAccepts()},
          {kEngine, CheckEngine(rpc)}};
}

bool AcceptsJobs(const std::vector<ReadinessCheck>& checks) {
  return std::all_of(checks.begin(), checks.end(), [](const ReadinessCheck& check) {
    return check.status.ok() || check.name == kEngine;
  });
}

bool CanRun(const std::vector<ReadinessCheck>& checks) {
  return std::all_of(checks.begin(), checks.end(), [](const ReadinessCheck& check) {
    return check.status.ok() || check.name != kEngine;
  });
}

bool IsReady(const std::vector<ReadinessCheck>& checks) {
  return AcceptsJobs(checks) && CanRun(checks);
}

}  // namespace nightshift
