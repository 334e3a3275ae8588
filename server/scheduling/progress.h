// What an unfinished request had generated, as bytes for the store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/sampling/sampling_params.h"

namespace nightshift {

// How a completion ended, as it is published.
struct ChoiceEnd {
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_reason;
  std::string text;
  int64_t kept_tokens = 0;  // of those generated
};

// One completion of a request so far.
struct ChoiceProgress {
  std::vector<TokenLogprob> generated;
  std::optional<ChoiceEnd> end;  // while others of the request go on
};

// Tokens continue a text only for the model and numeric mode that made them.
struct RequestProgress {
  std::string model_digest;
  std::string numeric_mode;
  bool has_logprobs = false;
  std::vector<TokenLogprob> prompt_logprobs;  // once the first choice has ended, if wanted
  std::vector<ChoiceProgress> choices;
};

// Little-endian; a text is its length (u32) and its bytes, a list its number of items (u32) and the
// items. Version 2: "P2", has_logprobs (u8), texts digest and mode, list of prompt tokens with
// logprobs, list of choices: list of tokens, ended (u8), and if 1 finish reason (u8), texts
// stop_reason and text, u32 kept_tokens. A token is its id (i32) and, with logprobs, f32 bits and a
// list of alternatives (i32 id, f32 bits).
// Version 1, still read: "P1", has_logprobs, digest, mode, list of the one choice's tokens.
std::string SerializeProgress(const RequestProgress& progress);
// Errors: DATA_LOSS with the offset.
absl::StatusOr<RequestProgress> ParseProgress(absl::string_view bytes);

}  // namespace nightshift
