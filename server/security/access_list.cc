#include "server/security/access_list.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

#include "kernels/base/status_macros.h"
#include "server/security/digest.h"
#include "server/security/identifiers.h"

namespace nightshift {
namespace {

constexpr char kCertificatePrefix[] = "certificate:";
constexpr char kQuotaWord[] = "quota";
constexpr char kAnyTenant[] = "*";
constexpr size_t kDigestBytes = 32;

std::string DigestOf(absl::string_view token) {
  Sha256 digest;
  digest.Update(token);
  return digest.Finish();
}

bool IsHexDigest(absl::string_view word) {
  return word.size() == 2 * kDigestBytes && std::all_of(word.begin(), word.end(), [](char c) {
           return std::isxdigit(static_cast<unsigned char>(c)) != 0;
         });
}

// "never", a day (its start) or a second, in UTC.
std::optional<int64_t> ParseExpiry(absl::string_view word) {
  if (word == "never") {
    return kNeverExpires;
  }
  for (const char* format : {"%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ"}) {
    absl::Time time;
    std::string error;
    if (absl::ParseTime(format, std::string(word), &time, &error)) {
      return absl::ToUnixMicros(time);
    }
  }
  return std::nullopt;
}

absl::StatusOr<AccessEntry> ParseEntry(const std::vector<absl::string_view>& words) {
  if (words.size() != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", words.size(),
                     " words, must have 4: SHA256 or certificate:NAME, tenant, role, expiry"));
  }
  AccessEntry entry;
  absl::string_view name = words[0];
  if (absl::ConsumePrefix(&name, kCertificatePrefix)) {
    entry.certificate_name = std::string(name);
    if (name.empty()) {
      return absl::InvalidArgumentError("names no certificate after \"certificate:\"");
    }
  } else if (IsHexDigest(words[0])) {
    entry.token_digest = absl::HexStringToBytes(words[0]);
  } else {
    return absl::InvalidArgumentError(
        "begins with neither 64 hexadecimal digits (a token's SHA-256; nightshift make-token "
        "writes such a line), nor certificate:NAME, nor quota");
  }
  entry.caller.tenant = std::string(words[1]);
  if (!IsTenant(entry.caller.tenant)) {
    return absl::InvalidArgumentError("has a tenant that is not of [a-z0-9-]{1,63}");
  }
  const std::optional<Role> role = RoleNamed(words[2]);
  if (!role.has_value()) {
    return absl::InvalidArgumentError("has a role that is none of reader, submitter, admin");
  }
  entry.caller.role = *role;
  const std::optional<int64_t> expiry = ParseExpiry(words[3]);
  if (!expiry.has_value()) {
    return absl::InvalidArgumentError(
        "has an expiry that is none of 2027-01-31, 2027-01-31T18:00:00Z, never");
  }
  entry.expire_time_us = *expiry;
  return entry;
}

bool IsSame(const AccessEntry& a, const AccessEntry& b) {
  return a.token_digest == b.token_digest && a.certificate_name == b.certificate_name;
}

}  // namespace

absl::StatusOr<AccessList> AccessList::Parse(absl::string_view text) {
  AccessList list;
  int64_t number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) {
      continue;
    }
    if (const absl::Status added = list.AddLine(words); !added.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, " ", added.message()));
    }
  }
  return list;
}

absl::Status AccessList::AddLine(const std::vector<absl::string_view>& words) {
  if (words[0] == kQuotaWord) {
    const std::string tenant(words.size() > 1 ? words[1] : "");
    if (tenant != kAnyTenant && !IsTenant(tenant)) {
      return absl::InvalidArgumentError(
          "is a quota of a tenant that is neither * nor [a-z0-9-]{1,63}");
    }
    ASSIGN_OR_RETURN(const Quota quota, ParseQuota({words.begin() + 2, words.end()}));
    return quotas_.emplace(tenant, quota).second
               ? absl::OkStatus()
               : absl::InvalidArgumentError("is the second quota of its tenant");
  }
  ASSIGN_OR_RETURN(AccessEntry entry, ParseEntry(words));
  const bool repeats = std::any_of(entries_.begin(), entries_.end(),
                                   [&](const AccessEntry& other) { return IsSame(other, entry); });
  if (repeats) {
    return absl::InvalidArgumentError("has the token or certificate of an earlier line");
  }
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

Quota AccessList::QuotaOf(const std::string& tenant) const {
  for (const std::string& name : {tenant, std::string(kAnyTenant)}) {
    if (const auto found = quotas_.find(name); found != quotas_.end()) {
      return found->second;
    }
  }
  return Quota();
}

const AccessEntry* AccessList::FindToken(absl::string_view token) const {
  const std::string digest = DigestOf(token);
  const AccessEntry* found = nullptr;
  for (const AccessEntry& entry : entries_) {
    if (EqualSecrets(entry.token_digest, digest)) {
      found = &entry;  // no early end
    }
  }
  return found;
}

const AccessEntry* AccessList::FindCertificate(const std::vector<std::string>& names) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const AccessEntry& entry) {
    return !entry.certificate_name.empty() &&
           std::find(names.begin(), names.end(), entry.certificate_name) != names.end();
  });
  return found == entries_.end() ? nullptr : &*found;
}

std::string MakeToken() {
  std::string text;
  absl::WebSafeBase64Escape(RandomBytes(static_cast<int>(kDigestBytes)), &text);
  while (!text.empty() && text.back() == '=') {
    text.pop_back();
  }
  return absl::StrCat("ns_", text);
}

std::string AccessLine(absl::string_view token, const Caller& caller, int64_t expire_time_us) {
  const std::string expiry =
      expire_time_us == kNeverExpires
          ? "never"
          : absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMicros(expire_time_us),
                             absl::UTCTimeZone());
  return absl::StrCat(absl::BytesToHexString(DigestOf(token)), " ", caller.tenant, " ",
                      RoleName(caller.role), " ", expiry);
}

}  // namespace nightshift
