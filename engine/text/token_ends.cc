#include "engine/text/token_ends.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace nightshift {

std::vector<size_t> TokenEnds(const Tokenizer& tokenizer, absl::string_view text,
                              const std::vector<int32_t>& ids) {
  std::vector<size_t> ends;
  size_t at = 0;
  for (const int32_t id : ids) {
    absl::string_view bytes = tokenizer.TokenBytes(id);
    if (!absl::StartsWith(text.substr(at), bytes)) {
      bytes = absl::StripPrefix(bytes, " ");  // that some tokenizers put before a text
    }
    if (!absl::StartsWith(text.substr(at), bytes)) {
      break;
    }
    at += bytes.size();
    ends.push_back(at);
  }
  const size_t known = ends.size();
  const size_t unknown = ids.size() - known;
  for (size_t i = 1; i <= unknown; ++i) {
    ends.push_back(at + (text.size() - at) * i / unknown);
  }
  if (!ends.empty()) {
    ends.back() = text.size();
  }
  return ends;
}

}  // namespace nightshift
