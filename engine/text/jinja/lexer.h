// Cuts the source of a chat template into tokens.
// Source: Jinja 3.1's lexer, with trim_blocks and lstrip_blocks on, as transformers sets them, and
// the last newline of the source dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace nightshift {

struct JinjaToken {
  enum class Kind : uint8_t {
    kData,        // text outside of tags, after white space control
    kBlockBegin,  // {%
    kBlockEnd,
    kVariableBegin,  // {{
    kVariableEnd,
    kName,
    kString,  // `text` without quotes and escapes
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  size_t first = 0;  // bytes of the source, for messages
  size_t last = 0;
  int line = 1;
};

// Line ends become "\n" first. Errors: INVALID_ARGUMENT with the line.
std::string NormalizeNewlines(const std::string& source);
absl::StatusOr<std::vector<JinjaToken>> LexJinja(const std::string& source);

}  // namespace nightshift
