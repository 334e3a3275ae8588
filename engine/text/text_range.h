// A stretch of a text, in bytes.
#pragma once

#include <cstddef>

namespace nightshift {

struct TextRange {
  size_t first = 0;
  size_t length = 0;
};

}  // namespace nightshift
