#include "engine/sampling/sampling_params.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

// Below the smallest temperature logits / temperature leaves the range where f32 tells tokens
// apart.
constexpr float kMinTemperature = 1e-6F;
constexpr float kMaxTemperature = 100.0F;
constexpr int32_t kMaxTopLogprobs = 20;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxStopBytes = 4096;

template <typename T>
absl::Status OutOfRange(const char* field, T value, const char* range) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, "; must be ", range));
}

absl::Status ValidateStops(const SamplingParams& params) {
  if (params.stop.size() > kMaxStops) {
    return OutOfRange("number of stop strings", params.stop.size(), "at most 64");
  }
  if (params.stop_tokens.size() > kMaxStops) {
    return OutOfRange("number of stop tokens", params.stop_tokens.size(), "at most 64");
  }
  for (const std::string& stop : params.stop) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return OutOfRange("length of a stop string", stop.size(), "1 to 4096 bytes");
    }
  }
  for (int32_t token : params.stop_tokens) {
    if (token < 0) {
      return OutOfRange("stop token", token, "a token id");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SamplingParams::Validate() const {
  if (max_output_tokens < 1) {
    return OutOfRange("max_output_tokens", max_output_tokens, "at least 1");
  }
  if (temperature != 0.0F && !(temperature >= kMinTemperature && temperature <= kMaxTemperature)) {
    return OutOfRange("temperature", temperature, "0 or 0.000001 to 100");
  }
  if (!(top_p > 0.0F && top_p <= 1.0F)) {
    return OutOfRange("top_p", top_p, "above 0 and at most 1");
  }
  if (top_k < 0) {
    return OutOfRange("top_k", top_k, "0 (off) or more");
  }
  if (top_logprobs < 0 || top_logprobs > kMaxTopLogprobs) {
    return OutOfRange("top_logprobs", top_logprobs, "0 to 20");
  }
  return ValidateStops(*this);
}

}  // namespace nightshift
