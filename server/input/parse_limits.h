// ParseLimits: how large one row of input may be.
#pragma once

#include <cstdint>

namespace nightshift {

// Of InferenceRequest.metadata.
inline constexpr int64_t kMaxMetadataBytes = 16 << 10;

struct ParseLimits {
  int64_t max_line_bytes = 16 << 20;
  // Text of a prompt, or of all messages of a chat together.
  int64_t max_prompt_bytes = 8 << 20;
  // Of a prompt given as token ids: above the context of every model this server can load.
  int64_t max_prompt_tokens = 1 << 20;
  int64_t max_custom_id_bytes = 512;
  int32_t max_labels = 16;  // of a job
  int64_t max_messages = 4096;
  // Of one request: each takes a place of the block and computes the prompt again.
  int32_t max_choices = 16;
  // Continuations of one prompt that are scored. Each takes a place of the block.
  int32_t max_scored_choices = 128;
  int64_t max_scored_choice_bytes = 64 << 10;  // of a text
  int64_t max_scored_choice_tokens = 64 << 10;
  int32_t max_json_depth = 64;
  // JSON values of one line. A parsed value takes some 16 to 100 bytes, so this bounds the memory
  // of a line whatever its text is.
  int64_t max_json_values = (1 << 20) + 4096;
};

}  // namespace nightshift
