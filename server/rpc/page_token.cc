#include "server/rpc/page_token.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "server/input/rpc_error.h"
#include "server/security/digest.h"

namespace nightshift {
namespace {

constexpr int kSecretBytes = 32;
constexpr size_t kSignatureBytes = 16;

absl::Status InvalidToken() {
  return MakeFieldError(reason::kFieldInvalid,
                        {{"page_token", "is not one that this list gave; start again without it"}});
}

}  // namespace

PageTokens::PageTokens() : secret_(RandomBytes(kSecretBytes)) {}

std::string PageTokens::Write(absl::string_view list, const PagePosition& position) const {
  const std::string payload = absl::StrCat(position.number, "/", position.text);
  return absl::WebSafeBase64Escape(Sign(list, payload) + payload);
}

absl::StatusOr<PagePosition> PageTokens::Read(absl::string_view list,
                                              absl::string_view token) const {
  constexpr size_t kMaxTokenBytes = 1024;
  std::string bytes;
  if (token.size() > kMaxTokenBytes || !absl::WebSafeBase64Unescape(token, &bytes) ||
      bytes.size() < kSignatureBytes || absl::WebSafeBase64Escape(bytes) != token) {
    return InvalidToken();
  }
  const std::string payload = bytes.substr(kSignatureBytes);
  const size_t slash = payload.find('/');
  PagePosition position;
  if (!EqualSecrets(Sign(list, payload), bytes.substr(0, kSignatureBytes)) ||
      slash == std::string::npos || !absl::SimpleAtoi(payload.substr(0, slash), &position.number)) {
    return InvalidToken();
  }
  position.text = payload.substr(slash + 1);
  return position;
}

std::string PageTokens::Sign(absl::string_view list, absl::string_view payload) const {
  return HmacSha256(secret_, absl::StrCat(list, "\n", payload)).substr(0, kSignatureBytes);
}

absl::StatusOr<int64_t> PageSize(int32_t asked, int64_t fallback, int64_t most) {
  if (asked < 0) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"page_size", absl::StrCat("is ", asked, ", must be 0 or more")}});
  }
  return asked == 0 ? fallback : std::min<int64_t>(asked, most);
}

}  // namespace nightshift
