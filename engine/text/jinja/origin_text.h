// OriginText: text that remembers which of its bytes the template wrote.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "engine/text/text_range.h"

namespace nightshift {

// `trusted` bytes come from the template's own text and string literals; all others from a caller.
// Every operation keeps the origin of each byte it copies.
class OriginText {
 public:
  OriginText() = default;
  OriginText(absl::string_view text, bool trusted) { Append(text, trusted); }

  void Append(absl::string_view text, bool trusted);
  void Append(const OriginText& other) { Append(other, 0, other.size()); }
  // Bytes [first, first + length) of `other`.
  void Append(const OriginText& other, size_t first, size_t length);

  OriginText Substring(size_t first, size_t length) const;

  const std::string& text() const { return text_; }
  // Ascending, disjoint, adjacent ones merged.
  const std::vector<TextRange>& trusted() const { return trusted_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }

 private:
  void Trust(size_t first, size_t length);

  std::string text_;
  std::vector<TextRange> trusted_;
};

}  // namespace nightshift
