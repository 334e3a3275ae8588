#include "client/complete_command.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/completion.h"
#include "client/job_text.h"
#include "client/progress.h"
#include "client/session.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A person waits for the Tab.
constexpr absl::Duration kTimeLimit = absl::Seconds(2);
constexpr int64_t kMaxJobs = 200;
constexpr absl::string_view kJobPrefix = "jobs/";

absl::Status AddJobs(Session& session, Completion& completion) {
  v1::ListJobsRequest request;
  request.set_view(v1::JOB_VIEW_BASIC);
  ASSIGN_OR_RETURN(const auto jobs, session.client().ListJobs(request, kMaxJobs));
  const bool has_prefix = absl::StartsWith(completion.word, kJobPrefix);
  for (const v1::Job& job : jobs) {
    const std::string name = has_prefix ? job.name() : job.name().substr(kJobPrefix.size());
    completion.words.emplace_back(
        name, absl::StrCat(StateText(job.state()), ", ", GroupedNumber(DoneOf(job.counts())), "/",
                           GroupedNumber(job.counts().total())));
  }
  return absl::OkStatus();
}

absl::Status AddModels(Session& session, Completion& completion) {
  ASSIGN_OR_RETURN(const auto models, session.client().ListModels());
  for (const v1::Model& model : models) {
    completion.words.emplace_back(model.name(), model.architecture());
  }
  return absl::OkStatus();
}

absl::Status AskDaemon(Session& session, Completion& completion) {
  RETURN_IF_ERROR(session.Connect(absl::ZeroDuration()));
  if (completion.jobs) {
    RETURN_IF_ERROR(AddJobs(session, completion));
  }
  return completion.models ? AddModels(session, completion) : absl::OkStatus();
}

}  // namespace

ExitCode CompleteCommand(const CommandLine& line, Console& console) {
  Completion completion = CompletionOf(CommandLineHelp(), line.words);
  if (completion.jobs || completion.models) {
    CommandLine limited = line;
    limited.timeout = kTimeLimit;
    Session session(limited, console);
    (void)AskDaemon(session, completion);
  }
  return console.Print(CompletionText(completion)).ok() ? ExitCode::kOk : ExitCode::kOther;
}

}  // namespace nightshift
