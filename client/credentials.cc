#include "client/credentials.h"

#include <algorithm>
#include <cstdint>

#include <sys/stat.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kUnixPrefix[] = "unix:";
constexpr int64_t kMaxTokenBytes = 4096;
constexpr int64_t kMaxPemBytes = 4 << 20;

absl::StatusOr<std::string> ReadSecret(const char* option, const std::string& path,
                                       int64_t max_bytes) {
  struct stat file = {};
  if (::stat(path.c_str(), &file) != 0) {
    return ErrnoStatus(absl::StrCat("read ", option), path);
  }
  if (S_ISREG(file.st_mode) && (file.st_mode & S_IRWXO) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(option, " ", path, " can be read by every user; chmod 600 ", path));
  }
  return ReadSmallFile(path, max_bytes);
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadSecret("--token-file", path, kMaxTokenBytes));
  absl::StripAsciiWhitespace(&text);
  const bool is_token = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isgraph);
  if (!is_token) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--token-file ", path, " holds no token: one line, as `nightshift make-token` prints it"));
  }
  return text;
}

}  // namespace

bool IsLocalAddress(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return absl::StartsWith(address, kUnixPrefix) || host == "localhost" || host == "[::1]" ||
         absl::StartsWith(host, "127.");
}

absl::StatusOr<Credentials> LoadCredentials(const CredentialFiles& files,
                                            const std::string& address) {
  Credentials credentials;
  if (!files.token.empty()) {
    ASSIGN_OR_RETURN(credentials.token, ReadToken(files.token));
  }
  credentials.uses_tls =
      !absl::StartsWith(address, kUnixPrefix) && (!files.ca.empty() || !IsLocalAddress(address));
  if (!credentials.uses_tls) {
    return credentials;
  }
  if (files.client_certificate.empty() != files.client_key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.client_key.empty() ? "--client-cert is given without --client-key"
                                              : "--client-key is given without --client-cert",
                     "; a certificate and its private key go together"));
  }
  if (!files.ca.empty()) {
    ASSIGN_OR_RETURN(credentials.ca, ReadSmallFile(files.ca, kMaxPemBytes));
  }
  if (!files.client_key.empty()) {
    ASSIGN_OR_RETURN(credentials.client_certificate,
                     ReadSmallFile(files.client_certificate, kMaxPemBytes));
    ASSIGN_OR_RETURN(credentials.client_key,
                     ReadSecret("--client-key", files.client_key, kMaxPemBytes));
  }
  return credentials;
}

}  // namespace nightshift
