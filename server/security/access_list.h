// AccessList: what an access file says: which token and which certificate stands for which tenant,
// in which role, until when, and what each tenant may take. The format: README.md of this folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/security/caller.h"
#include "server/security/quota.h"

namespace nightshift {

inline constexpr int64_t kNeverExpires = INT64_MAX;

struct AccessEntry {
  std::string token_digest;      // SHA-256, 32 bytes; empty: of a certificate
  std::string certificate_name;  // empty: of a token
  Caller caller;
  int64_t expire_time_us = kNeverExpires;  // wall clock; the entry ends at it
};

// Immutable, so thread-safe.
class AccessList {
 public:
  // INVALID_ARGUMENT naming the first wrong line by its number, and what is wrong with it; never
  // the digest or the token in it.
  static absl::StatusOr<AccessList> Parse(absl::string_view text);

  // The entry of this token; null when there is none. Takes a time that does not depend on which
  // entry it is, or how much of it fits.
  const AccessEntry* FindToken(absl::string_view token) const;
  // The first entry whose certificate has one of these names; null when there is none.
  const AccessEntry* FindCertificate(const std::vector<std::string>& names) const;

  // The tenant's, else the one of "*", else one without limits.
  Quota QuotaOf(const std::string& tenant) const;

  const std::vector<AccessEntry>& entries() const { return entries_; }

 private:
  absl::Status AddLine(const std::vector<absl::string_view>& words);

  std::vector<AccessEntry> entries_;
  std::map<std::string, Quota> quotas_;
};

// A token that nobody can guess: "ns_" and 43 characters of base64 for URLs (256 random bits).
std::string MakeToken();

// The line of an access file that lets the token in. `expire_time_us` is a whole second.
std::string AccessLine(absl::string_view token, const Caller& caller, int64_t expire_time_us);

}  // namespace nightshift
