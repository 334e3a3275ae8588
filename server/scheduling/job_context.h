// JobContext: what the rows of one job share while it runs.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

#include "kernels/dtype.h"
#include "server/scheduling/job_calendar.h"
#include "server/scheduling/job_input.h"
#include "server/store/job_store.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Which loaded engine a job needs.
struct ModelKey {
  std::string model;
  ComputeType compute_type = ComputeType::kBF16;
  std::optional<DType> kv_type = {};  // of keys and values that are packed
  double sparse_attention = 1.0;      // as EngineOptions

  friend auto operator<=>(const ModelKey&, const ModelKey&) = default;
};

struct JobContext {
  std::string job_id;
  std::string uid;
  int64_t num_rows = 0;
  std::string tenant;
  int32_t priority = 0;
  int64_t create_time_us = 0;
  ModelKey key;
  int32_t input_format = 0;
  int32_t max_attempts = 3;
  v1::JobSpec spec;
  JobCalendar calendar;
  std::unique_ptr<JobInput> input;
  // No row runs before all were checked, and one that cannot run fails the job.
  bool rejects_invalid = false;
  // DATA_LOSS when the stored spec cannot be read, INVALID_ARGUMENT when its run window cannot: the job cannot run, its rows still have ids.
  absl::Status status;
};

// Shared: rows of a job are in the preparer, the block and the publisher at one time, and the job
// may be gone from the store before the last of them is dropped.
using JobContextPtr = std::shared_ptr<const JobContext>;

// What a spec asks for; UNSPECIFIED is the default.
ComputeType ComputeTypeOf(v1::ComputeTypeChoice choice, ComputeType default_type);
v1::ComputeTypeChoice ChoiceOf(ComputeType type);

JobContextPtr MakeJobContext(const JobRecord& job, const std::string& state_directory,
                             ComputeType default_compute_type);

}  // namespace nightshift
