#include "server/rpc/authorization.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

// One line a method. A method without one is refused, and the table test fails.
struct MethodRole {
  absl::string_view method;
  Role least;
  absl::string_view command;  // what people type for it
};
constexpr MethodRole kMethodRoles[] = {
    {"nightshift.v1.JobService/SubmitJob", Role::kSubmitter, "nightshift submit"},
    {"nightshift.v1.JobService/SubmitJobStream", Role::kSubmitter, "nightshift submit"},
    {"nightshift.v1.JobService/GetUploadStatus", Role::kSubmitter, "nightshift submit"},
    {"nightshift.v1.JobService/GetJob", Role::kReader, "nightshift status"},
    {"nightshift.v1.JobService/ListJobs", Role::kReader, "nightshift list"},
    {"nightshift.v1.JobService/WaitJob", Role::kReader, "nightshift wait"},
    {"nightshift.v1.JobService/StreamResults", Role::kReader, "nightshift results"},
    {"nightshift.v1.JobService/CancelJob", Role::kSubmitter, "nightshift cancel"},
    {"nightshift.v1.JobService/PauseJob", Role::kSubmitter, "nightshift pause"},
    {"nightshift.v1.JobService/ResumeJob", Role::kSubmitter, "nightshift resume"},
    {"nightshift.v1.JobService/RetryFailed", Role::kSubmitter, "nightshift retry"},
    {"nightshift.v1.JobService/DeleteJob", Role::kSubmitter, "nightshift delete"},
    {"nightshift.v1.JobService/GetPolicy", Role::kReader, "nightshift policy show"},
    {"nightshift.v1.JobService/ExplainPolicy", Role::kReader, "nightshift policy explain"},
    {"nightshift.v1.JobService/CutDocument", Role::kSubmitter, "nightshift submit --template"},
    {"nightshift.v1.ServerService/GetServerInfo", Role::kReader, "nightshift server info"},
    {"nightshift.v1.ServerService/ListModels", Role::kReader, "nightshift models"},
    {"nightshift.v1.ServerService/GetModel", Role::kReader, "nightshift models"},
    {"nightshift.v1.ServerService/DumpTimeline", Role::kAdmin, "nightshift server timeline"},
    {"nightshift.v1.ServerService/SetDrain", Role::kAdmin, "nightshift server drain"},
    {"nightshift.v1.ServerService/Backup", Role::kAdmin, "nightshift server backup"},
};

const MethodRole* FindMethod(absl::string_view method) {
  const auto* found = std::find_if(std::begin(kMethodRoles), std::end(kMethodRoles),
                                   [&](const MethodRole& entry) { return entry.method == method; });
  return found == std::end(kMethodRoles) ? nullptr : found;
}

absl::Status Unauthenticated(absl::string_view reason, absl::string_view message) {
  return MakeError(absl::StatusCode::kUnauthenticated, reason, message);
}

// What the call brings in its metadata; nothing when it brings none.
absl::StatusOr<std::optional<std::string>> TokenOf(const grpc::CallbackServerContext& context) {
  constexpr absl::string_view kScheme = "Bearer ";
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  if (begin == end) {
    return std::optional<std::string>();
  }
  const absl::string_view value(begin->second.data(), begin->second.size());
  if (std::next(begin) != end ||
      !absl::EqualsIgnoreCase(value.substr(0, kScheme.size()), kScheme)) {
    return Unauthenticated(reason::kTokenUnknown,
                           "the authorization metadata is not one \"Bearer TOKEN\"");
  }
  return std::optional<std::string>(std::string(value.substr(kScheme.size())));
}

std::vector<std::string> CertificateNames(const grpc::CallbackServerContext& context) {
  std::vector<std::string> names;
  for (const grpc::string_ref& name : context.auth_context()->GetPeerIdentity()) {
    names.emplace_back(name.data(), name.size());
  }
  return names;
}

absl::StatusOr<Caller> CallerOfToken(const AccessList& list, const std::string& token,
                                     int64_t now_us) {
  const AccessEntry* entry = list.FindToken(token);
  if (entry == nullptr) {
    return Unauthenticated(
        reason::kTokenUnknown,
        "this daemon does not know the token; ask its administrator for one, and "
        "give it with --token-file or NIGHTSHIFT_TOKEN_FILE");
  }
  if (entry->expire_time_us <= now_us) {
    return Unauthenticated(reason::kTokenExpired,
                           "the token has expired; ask the daemon's administrator for a new one");
  }
  return entry->caller;
}

absl::StatusOr<Caller> CallerOfCertificate(const AccessList& list,
                                           const std::vector<std::string>& names, int64_t now_us) {
  const AccessEntry* entry = list.FindCertificate(names);
  if (entry == nullptr) {
    constexpr int64_t kMaxQuotedBytes = 256;
    return Unauthenticated(
        reason::kCertificateUnknown,
        absl::StrCat("the daemon's access file has no line for the certificate of ",
                     CleanText(names.front(), kMaxQuotedBytes),
                     "; ask its administrator for one, or give a token with --token-file"));
  }
  if (entry->expire_time_us <= now_us) {
    return Unauthenticated(reason::kCertificateExpired,
                           "the access of this certificate has expired; ask the daemon's "
                           "administrator to renew its line in the access file");
  }
  return entry->caller;
}

absl::StatusOr<Caller> IdentifyCaller(const AccessControl& access,
                                      const grpc::CallbackServerContext& context, int64_t now_us) {
  const std::shared_ptr<const AccessList> list = access.current();
  if (list == nullptr) {
    return Caller();
  }
  ASSIGN_OR_RETURN(const std::optional<std::string> token, TokenOf(context));
  if (token.has_value()) {
    return CallerOfToken(*list, *token, now_us);
  }
  const std::vector<std::string> names = CertificateNames(context);
  if (!names.empty()) {
    return CallerOfCertificate(*list, names, now_us);
  }
  return Unauthenticated(reason::kTokenRequired,
                         "this daemon wants a token; give yours with --token-file or "
                         "NIGHTSHIFT_TOKEN_FILE, or ask its administrator for one");
}

absl::Status CheckRole(const Caller& caller, absl::string_view method) {
  const MethodRole* entry = FindMethod(method);
  if (entry == nullptr || caller.role < entry->least) {
    const std::string wanted(entry != nullptr ? RoleName(entry->least) : "none");
    return MakeError(absl::StatusCode::kPermissionDenied, reason::kRoleTooLow,
                     absl::StrCat(entry != nullptr ? entry->command : method, " is for role ",
                                  wanted, " and above, this is a ",
                                  RoleName(caller.role), " of tenant ", caller.tenant,
                                  "; ask the daemon's administrator for another token"),
                     {{"method", std::string(method)},
                      {"role", std::string(RoleName(caller.role))},
                      {"least_role", wanted}});
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<Role> LeastRole(absl::string_view method) {
  const MethodRole* found = FindMethod(method);
  return found == nullptr ? std::nullopt : std::optional<Role>(found->least);
}

absl::StatusOr<Caller> Authorize(const AccessControl& access,
                                 const grpc::CallbackServerContext& context,
                                 absl::string_view method, int64_t now_us) {
  absl::StatusOr<Caller> caller = IdentifyCaller(access, context, now_us);
  const absl::Status status = caller.ok() ? CheckRole(*caller, method) : caller.status();
  if (!status.ok()) {
    access.NoteRefusal(absl::StrCat(method, " ", ErrorReason(status), " ", context.peer()), now_us);
    return status;
  }
  return caller;
}

}  // namespace nightshift
