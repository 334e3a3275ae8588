// What the values of tokenizer.ggml.pre stand for.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/text/tokenizer_spec.h"

namespace nightshift {

struct GgufPreTokenizer {
  const char* name;
  std::vector<PreTokenizerStep> steps;
  bool normalize_nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;  // where the file does not say
};

// Errors: INVALID_ARGUMENT naming those that we have.
absl::StatusOr<const GgufPreTokenizer*> FindGgufPreTokenizer(const std::string& name);

}  // namespace nightshift
