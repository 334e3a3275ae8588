#include "engine/text/jinja/budget.h"

#include "absl/strings/str_cat.h"

namespace nightshift {

absl::Status JinjaBudget::SpendSteps(size_t count) {
  if (count > static_cast<size_t>(steps_)) {
    return absl::ResourceExhaustedError(absl::StrCat("more than ", max_steps_, " steps"));
  }
  steps_ -= static_cast<int64_t>(count);
  return absl::OkStatus();
}

absl::Status JinjaBudget::SpendElements(size_t count) {
  constexpr size_t kElementsPerStep = 16;
  return SpendSteps(1 + count / kElementsPerStep);
}

absl::Status JinjaBudget::SpendBytes(size_t count) {
  if (count > static_cast<size_t>(work_bytes_)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", max_work_bytes_, " bytes of text worked on"));
  }
  work_bytes_ -= static_cast<int64_t>(count);
  return absl::OkStatus();
}

}  // namespace nightshift
