// Unicode's normal form C, which Qwen2's tokenizer asks for.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

// Brings valid UTF-8 to normal form C. Linear up to sorting, also for endless runs of combining
// marks. Source: Unicode Standard Annex 15.
std::string NormalizeNfc(absl::string_view text);

}  // namespace nightshift
