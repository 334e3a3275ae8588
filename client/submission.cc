#include "client/submission.h"

#include <filesystem>
#include <string>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/str_cat.h"

#include "client/job_text.h"
#include "client/progress.h"
#include "client/uuid.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Maps have no order of their own: the same spec must always give the same bytes.
std::string DeterministicBytes(const v1::JobSpec& spec) {
  std::string bytes;
  google::protobuf::io::StringOutputStream target(&bytes);
  google::protobuf::io::CodedOutputStream stream(&target);
  stream.SetSerializationDeterministic(true);
  spec.SerializeToCodedStream(&stream);
  stream.Trim();
  return bytes;
}

}  // namespace

// "models/smollm2/" and "smollm2" name the same model of a daemon.
std::string ModelName(const std::string& model) {
  std::filesystem::path path(model);
  if (!path.has_filename()) {
    path = path.parent_path();
  }
  return path.filename().string();
}

SubmitOptions SubmitOptionsOf(const CommandLine& line, const InputFile& input) {
  SubmitOptions submission;
  submission.job_id = line.job_id;
  submission.spec = line.spec;
  submission.spec.set_model(ModelName(line.model));
  submission.validate_only = line.validate_only;
  // Someone who only asks whether a file is valid wants to hear which lines are not.
  if (line.validate_only && line.spec.on_invalid_line() == v1::ON_INVALID_LINE_UNSPECIFIED) {
    submission.spec.set_on_invalid_line(v1::ON_INVALID_LINE_REJECT_JOB);
  }
  submission.request_id =
      RequestIdOf(input.sha256(), DeterministicBytes(submission.spec), line.run_key);
  return submission;
}

absl::StatusOr<v1::Job> SubmitAndTell(Session& session, const SubmitOptions& submission,
                                      const InputFile& input) {
  ASSIGN_OR_RETURN(const v1::Job job, session.client().Submit(submission, input));
  session.TroubleIsOver();
  if (submission.validate_only) {
    return job;
  }
  Console& console = session.console();
  if (!job.attached()) {
    console.Note(absl::StrCat(job.name(), " accepted: ", GroupedNumber(job.counts().total()),
                              " requests for ", job.spec().model()));
    return job;
  }
  console.Note(absl::StrCat("attached to ", job.name(),
                            ", which the same input with the same options made before (",
                            StateText(job.state()), ", ", GroupedNumber(DoneOf(job.counts())), "/",
                            GroupedNumber(job.counts().total()),
                            " done); another --run-key makes a new job"));
  return job;
}

}  // namespace nightshift
