// Unicode's normal forms.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Brings valid UTF-8 to a normal form. Linear up to sorting, also for endless runs of combining
// marks. Source: Unicode Standard Annex 15.
std::string Normalize(absl::string_view text, NormalForm form);

}  // namespace nightshift
