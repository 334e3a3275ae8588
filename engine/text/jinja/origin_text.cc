#include "engine/text/jinja/origin_text.h"

#include <algorithm>

namespace nightshift {

void OriginText::Trust(size_t first, size_t length) {
  if (length == 0) return;
  if (!trusted_.empty() && trusted_.back().first + trusted_.back().length == first) {
    trusted_.back().length += length;
  } else {
    trusted_.push_back({.first = first, .length = length});
  }
}

void OriginText::Append(absl::string_view text, bool trusted) {
  if (trusted) Trust(text_.size(), text.size());
  text_.append(text.data(), text.size());
}

void OriginText::Append(const OriginText& other, size_t first, size_t length) {
  const size_t last = first + length;
  auto range = std::partition_point(
      other.trusted_.begin(), other.trusted_.end(),
      [first](const TextRange& trusted) { return trusted.first + trusted.length <= first; });
  for (; range != other.trusted_.end() && range->first < last; ++range) {
    const size_t from = std::max(range->first, first);
    const size_t to = std::min(range->first + range->length, last);
    Trust(text_.size() + (from - first), to - from);
  }
  text_.append(other.text_, first, length);
}

OriginText OriginText::Substring(size_t first, size_t length) const {
  OriginText part;
  part.Append(*this, first, length);
  return part;
}

}  // namespace nightshift
