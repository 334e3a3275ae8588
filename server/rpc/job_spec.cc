#include "server/rpc/job_spec.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "engine/engine.h"
#include "kernels/base/status_macros.h"
#include "server/input/request_check.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"
#include "server/security/caller.h"
#include "server/scheduling/job_calendar.h"

namespace nightshift {
namespace {

constexpr int32_t kDefaultAttempts = 3;
constexpr int32_t kMaxAttempts = 100;
constexpr int32_t kNanosPerSecond = 1'000'000'000;
constexpr int64_t kMaxWindowSeconds = int64_t{3650} * 24 * 3600;
constexpr int64_t kMaxTimeSeconds = 253'402'300'799;  // the end of 9999
constexpr size_t kMaxLabelKeyBytes = 64;
constexpr size_t kMaxLabelValueBytes = 512;

std::string UtcText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// Of times that are possible each by itself.
void CheckOrder(const v1::JobSpec& spec, int64_t now_us, std::vector<FieldViolation>& violations) {
  const absl::Time end =
      absl::FromUnixMicros(now_us) + absl::Microseconds(WindowMicros(spec.completion_window()));
  const absl::Time start = absl::FromUnixSeconds(spec.not_before().seconds()) +
                           absl::Nanoseconds(spec.not_before().nanos());
  if (spec.has_completion_window() && spec.has_not_before() && end <= start) {
    violations.push_back({"spec.completion_window",
                          absl::StrCat("ends at ", UtcText(end), ", and spec.not_before is ",
                                       UtcText(start), ": no request could run")});
  }
}

void CheckTimes(const v1::JobSpec& spec, int64_t now_us, std::vector<FieldViolation>& violations) {
  const size_t num_before = violations.size();
  const google::protobuf::Duration& window = spec.completion_window();
  const bool positive = window.seconds() >= 0 && window.nanos() >= 0 &&
                        (window.seconds() > 0 || window.nanos() > 0);
  if (spec.has_completion_window() &&
      (!positive || window.seconds() > kMaxWindowSeconds || window.nanos() >= kNanosPerSecond)) {
    violations.push_back({"spec.completion_window",
                          absl::StrCat("must be above 0 and at most ", kMaxWindowSeconds, " s")});
  }
  const google::protobuf::Timestamp& start = spec.not_before();
  if (start.seconds() < 0 || start.seconds() > kMaxTimeSeconds || start.nanos() < 0 ||
      start.nanos() >= kNanosPerSecond) {
    violations.push_back({"spec.not_before", "is no time between the years 1970 and 9999"});
  }
  if (violations.size() == num_before) {
    CheckOrder(spec, now_us, violations);
  }
  if (!spec.after_job().empty() && !ParseJobName(kDefaultTenant, spec.after_job()).ok()) {
    violations.push_back({"spec.after_job", "must be jobs/{id} with an id of [a-z0-9-]{1,63}"});
  }
  if (spec.run_window().empty()) {
    return;
  }
  if (const auto parsed = RunWindow::Parse(spec.run_window()); !parsed.ok()) {
    violations.push_back({"spec.run_window", std::string(parsed.status().message())});
  }
}

void CheckLabels(const v1::JobSpec& spec, int32_t max_labels,
                 std::vector<FieldViolation>& violations) {
  if (spec.labels_size() > max_labels) {
    violations.push_back(
        {"spec.labels", absl::StrCat("has ", spec.labels_size(), " labels, at most ", max_labels)});
  }
  for (const auto& [key, value] : spec.labels()) {
    if (key.empty() || key.size() > kMaxLabelKeyBytes || value.size() > kMaxLabelValueBytes) {
      violations.push_back(
          {"spec.labels", absl::StrCat("has a key of ", key.size(), " bytes (1 to ",
                                       kMaxLabelKeyBytes, ") with a value of ", value.size(),
                                       " bytes (at most ", kMaxLabelValueBytes, ")")});
    }
  }
}

}  // namespace

absl::Status CheckSpec(const v1::JobSpec& spec, const ParseLimits& limits, int64_t now_us) {
  std::vector<FieldViolation> violations;
  for (FieldViolation violation : CheckSampling(spec.sampling(), limits)) {
    violation.field = "spec.sampling." + violation.field;
    violations.push_back(std::move(violation));
  }
  if (spec.has_sparse_attention() && !IsSparseAttention(spec.sparse_attention())) {
    violations.push_back({"spec.sparse_attention",
                          absl::StrCat("is ", spec.sparse_attention(),
                                       ", must be above 0 and at most 1 (all values)")});
  }
  const bool is_out_of_range = !violations.empty();
  if (std::string refused = CheckPromptOptions(spec.prompt_options()); !refused.empty()) {
    violations.push_back({"spec.prompt_options.chat_template_kwargs", std::move(refused)});
  }
  const char* reason = is_out_of_range ? reason::kFieldOutOfRange : reason::kFieldInvalid;
  const auto check_enum = [&](bool known, const char* field, int number) {
    if (!known) {
      violations.push_back({field, absl::StrCat("has the unknown number ", number)});
    }
  };
  check_enum(v1::Priority_IsValid(spec.priority()), "spec.priority", spec.priority());
  check_enum(v1::OnInvalidLine_IsValid(spec.on_invalid_line()), "spec.on_invalid_line",
             spec.on_invalid_line());
  check_enum(v1::ComputeTypeChoice_IsValid(spec.compute_type()), "spec.compute_type",
             spec.compute_type());
  check_enum(v1::CompressionChoice_IsValid(spec.compression().weights()),
             "spec.compression.weights", spec.compression().weights());
  check_enum(v1::CompressionChoice_IsValid(spec.compression().kv()), "spec.compression.kv",
             spec.compression().kv());
  if (spec.max_attempts() < 0 || spec.max_attempts() > kMaxAttempts) {
    violations.push_back({"spec.max_attempts", absl::StrCat("is ", spec.max_attempts(),
                                                            ", must be 0 (3) to ", kMaxAttempts)});
  }
  CheckTimes(spec, now_us, violations);
  CheckLabels(spec, limits.max_labels, violations);
  return violations.empty() ? absl::OkStatus() : MakeFieldError(reason, violations);
}

v1::JobSpec ResolveSpec(v1::JobSpec spec, const SpecDefaults& defaults) {
  spec.set_model(std::string(defaults.model));
  if (spec.priority() == v1::PRIORITY_UNSPECIFIED) {
    spec.set_priority(
        static_cast<v1::Priority>(std::min<int32_t>(v1::PRIORITY_NORMAL, defaults.most_priority)));
  }
  if (spec.on_invalid_line() == v1::ON_INVALID_LINE_UNSPECIFIED) {
    spec.set_on_invalid_line(v1::ON_INVALID_LINE_RECORD_ERROR);
  }
  if (spec.compute_type() == v1::COMPUTE_TYPE_CHOICE_UNSPECIFIED) {
    spec.set_compute_type(defaults.compute_type);
  }
  *spec.mutable_compression() = defaults.compression;
  if (!spec.has_sparse_attention()) {
    spec.set_sparse_attention(defaults.sparse_attention);
  }
  if (spec.max_attempts() == 0) {
    spec.set_max_attempts(kDefaultAttempts);
  }
  v1::SamplingOptions resolved;
  resolved.set_temperature(0.0);
  resolved.set_top_p(1.0);
  resolved.set_top_k(0);
  resolved.set_seed(defaults.seed);
  resolved.set_logprobs(false);
  resolved.set_top_logprobs(0);
  resolved.set_min_p(0.0);
  resolved.set_repetition_penalty(1.0);
  resolved.set_presence_penalty(0.0);
  resolved.set_frequency_penalty(0.0);
  resolved.set_min_output_tokens(0);
  resolved.set_ignore_eos(false);
  resolved.set_num_choices(1);
  resolved.MergeFrom(spec.sampling());
  spec.mutable_sampling()->Swap(&resolved);
  if (!spec.run_window().empty()) {
    spec.set_run_window(RunWindow::Parse(spec.run_window())->ToString());  // with its zone
  }
  v1::PromptOptions prompt;
  prompt.set_parse_special_in_content(false);
  prompt.set_add_generation_prompt(true);
  prompt.MergeFrom(spec.prompt_options());
  spec.mutable_prompt_options()->Swap(&prompt);
  return spec;
}

int64_t WindowMicros(const google::protobuf::Duration& window) {
  return window.seconds() * 1'000'000 + window.nanos() / 1000;
}

}  // namespace nightshift
