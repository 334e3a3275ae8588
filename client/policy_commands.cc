#include "client/policy_commands.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/policy_text.h"
#include "client/session.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A subject is a model's name, or a job's with or without its "jobs/".
template <typename Answer, typename Ask>
absl::StatusOr<Answer> AskAbout(const std::string& subject, const Ask& ask) {
  if (absl::StartsWith(subject, "jobs/")) {
    return ask("", subject);
  }
  const absl::StatusOr<Answer> of_model = ask(subject, "");
  if (!absl::IsNotFound(of_model.status())) {
    return of_model;
  }
  const absl::StatusOr<Answer> of_job = ask("", absl::StrCat("jobs/", subject));
  return of_job.ok() ? of_job : of_model;
}

absl::Status Show(Session& session) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const v1::Policy policy,
                   AskAbout<v1::Policy>(session.line().subject,
                                        [&](const std::string& model, const std::string& job) {
                                          return session.client().GetPolicy(model, job);
                                        }));
  return session.console().Print(session.line().json ? PolicyJson(policy) : PolicyText(policy));
}

absl::Status Explain(Session& session) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  const CommandLine& line = session.line();
  v1::ExplainPolicyRequest request;
  request.set_requests(line.requests);
  request.set_prompt_tokens(line.prompt_tokens);
  request.set_output_tokens(line.output_tokens);
  ASSIGN_OR_RETURN(const v1::ExplainPolicyResponse explanation,
                   AskAbout<v1::ExplainPolicyResponse>(
                       line.subject, [&](const std::string& model, const std::string& job) {
                         request.set_model(model);
                         request.set_job(job);
                         return session.client().ExplainPolicy(request);
                       }));
  return session.console().Print(line.json ? ExplanationJson(explanation)
                                           : ExplanationText(explanation));
}

}  // namespace

ExitCode PolicyShowCommand(const CommandLine& line, Console& console) {
  return RunInSession(line, console, Show);
}

ExitCode PolicyExplainCommand(const CommandLine& line, Console& console) {
  return RunInSession(line, console, Explain);
}

}  // namespace nightshift
