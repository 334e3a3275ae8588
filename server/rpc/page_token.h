// Page tokens: where the next page of a list begins, opaque and not to be forged.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

struct PagePosition {
  int64_t number = 0;
  std::string text;
};

// Writes and reads tokens under one secret, drawn when the daemon starts: a token of another daemon
// or of another list (`list` names the list and its filter) is refused. Immutable, thread-safe.
class PageTokens {
 public:
  PageTokens();
  std::string Write(absl::string_view list, const PagePosition& position) const;
  // INVALID_ARGUMENT (FIELD_INVALID, page_token).
  absl::StatusOr<PagePosition> Read(absl::string_view list, absl::string_view token) const;

 private:
  std::string Sign(absl::string_view list, absl::string_view payload) const;

  const std::string secret_;
};

// page_size as asked: 0 means `fallback`, above `most` means `most`. INVALID_ARGUMENT when
// negative.
absl::StatusOr<int64_t> PageSize(int32_t asked, int64_t fallback, int64_t most);

}  // namespace nightshift
