// From a command line and an input file to a job.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "client/command_line.h"
#include "client/input_file.h"
#include "client/session.h"
#include "client/upload.h"

namespace nightshift {

// The name that a daemon gives the pack at the path `model`, or `model` itself if it is a name. Pure.
std::string ModelName(const std::string& model);

// The model is the name that a daemon gives it: of the path of a pack, the last part. The
// request_id comes from input, spec and run key. Pure.
SubmitOptions SubmitOptionsOf(const CommandLine& line, const InputFile& input);

// Submits and says what became of it: a new job, or one that was there already.
absl::StatusOr<v1::Job> SubmitAndTell(Session& session, const SubmitOptions& submission,
                                      const InputFile& input);

}  // namespace nightshift
