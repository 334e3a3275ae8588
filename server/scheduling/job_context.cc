#include "server/scheduling/job_context.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "server/compression.h"

namespace nightshift {
namespace {

constexpr int32_t kDefaultMaxAttempts = 3;

}  // namespace

ComputeType ComputeTypeOf(v1::ComputeTypeChoice choice, ComputeType default_type) {
  switch (choice) {
    case v1::COMPUTE_TYPE_CHOICE_F32:
      return ComputeType::kF32;
    case v1::COMPUTE_TYPE_CHOICE_BF16:
      return ComputeType::kBF16;
    case v1::COMPUTE_TYPE_CHOICE_INT8:
      return ComputeType::kInt8;
    default:
      return default_type;
  }
}

v1::ComputeTypeChoice ChoiceOf(ComputeType type) {
  switch (type) {
    case ComputeType::kF32:
      return v1::COMPUTE_TYPE_CHOICE_F32;
    case ComputeType::kBF16:
      return v1::COMPUTE_TYPE_CHOICE_BF16;
    case ComputeType::kInt8:
      return v1::COMPUTE_TYPE_CHOICE_INT8;
  }
  return v1::COMPUTE_TYPE_CHOICE_UNSPECIFIED;
}

JobContextPtr MakeJobContext(const JobRecord& job, const std::string& state_directory,
                             ComputeType default_compute_type) {
  auto context = std::make_shared<JobContext>();
  if (!context->spec.ParseFromString(job.spec)) {
    context->status =
        absl::DataLossError(absl::StrCat("the stored spec of job ", job.id, " is not readable"));
  }
  const v1::JobSpec& spec = context->spec;
  absl::StatusOr<JobCalendar> calendar = MakeCalendar(spec);
  if (calendar.ok()) {
    context->calendar = *std::move(calendar);
  } else {
    context->status.Update(calendar.status());
  }
  context->job_id = job.id;
  context->uid = job.uid;
  context->num_rows = job.counts.total;
  context->tenant = job.tenant;
  context->priority = job.priority;
  context->create_time_us = job.create_time_us;
  context->key = {job.model, ComputeTypeOf(spec.compute_type(), default_compute_type),
                  KvTypeOf(spec.compression().kv()), SparseAttentionOf(spec)};
  context->input_format = job.input_format;
  context->max_attempts = spec.max_attempts() > 0 ? spec.max_attempts() : kDefaultMaxAttempts;
  context->rejects_invalid = spec.on_invalid_line() == v1::ON_INVALID_LINE_REJECT_JOB;
  context->input = std::make_unique<JobInput>(absl::StrCat(state_directory, "/", job.input_file));
  return context;
}

}  // namespace nightshift
