// PolicyState: under which plan the loaded model runs, as other threads read it. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/policy/hardware_profile.h"
#include "engine/policy/run_plan.h"
#include "engine/policy/workload_profile.h"
#include "kernels/dtype.h"

namespace nightshift {

struct PolicyState {
  std::string model;  // empty: none is loaded
  ComputeType compute_type = ComputeType::kBF16;
  std::optional<DType> kv_type;  // of keys and values that are packed
  double sparse_attention = 1.0;  // as EngineOptions
  DType weights = DType::kBF16;  // of most of its bytes
  // Of its weights as the plan places them: on the device (all memory where there is only one), on
  // the host, on disk.
  std::array<double, 3> weight_bytes = {};
  std::optional<RunPlan> plan;
  std::string reason;        // why there is none
  WorkloadProfile workload;  // that was planned for
  // Of which `refinement` is as it is now. Null: no profile.
  std::shared_ptr<const HardwareProfile> hardware;
  std::string stale;  // why the profile's rates may not be this machine's; empty: they are
};

// What a plan's options wait for.
inline std::string ConstraintOf(const RunPlan& plan) {
  return plan.is_default ? std::string("waits mostly for ") + LaneName(plan.predicted.bottleneck)
                         : plan.plan.binding;
}

// How often was planned, since the daemon started.
struct PlanCounts {
  int64_t plans = 0;
  int64_t replans = 0;  // of those: in place of another while the model was loaded
  int64_t failed_allocations = 0;
  // Predicted / observed time of the sweeps of jobs that have ended: of the last one, and the
  // median of the last 33; 0: none.
  int64_t predicted_jobs = 0;
  double last_time_ratio = 0.0;
  double median_time_ratio = 0.0;
};

}  // namespace nightshift
