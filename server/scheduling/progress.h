// What an unfinished request had generated, as bytes for the store.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/sampling/sampling_params.h"

namespace nightshift {

// Tokens continue a text only for the model and numeric mode that made them.
struct RequestProgress {
  std::string model_digest;
  std::string numeric_mode;
  bool has_logprobs = false;
  std::vector<TokenLogprob> generated;
};

// Version 1: "P1", has_logprobs (1 byte), digest and mode (u32 length, bytes), u32 number of
// tokens, then for each: i32 id and, with logprobs, f32 bits, u32 number of alternatives, and for
// each i32 id and f32 bits. Little-endian.
std::string SerializeProgress(const RequestProgress& progress);
// Errors: DATA_LOSS with the offset.
absl::StatusOr<RequestProgress> ParseProgress(absl::string_view bytes);

}  // namespace nightshift
