// RequestSource: where the requests of a job come from: a file of them, or documents and a template.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "client/command_line.h"
#include "client/documents/input_paths.h"
#include "client/documents/prompt_template.h"
#include "client/documents/request_rows.h"
#include "client/input_file.h"
#include "client/session.h"

namespace nightshift {

// One job's.
class RequestSource {
 public:
  // What can be found out without a daemon. `line` must outlive it.
  // Errors: INVALID_ARGUMENT, as InputFile::Open, PromptTemplate::Load and FindInputs.
  static absl::StatusOr<RequestSource> Open(const CommandLine& line);

  // The requests, and words about documents that are none. The session is connected. Documents are
  // read one at a time; their rows go to a file without a name. Reading the same again gives the
  // same bytes.
  absl::StatusOr<InputFile> Take(Session& session);
  // True when `path` is a file that is read.
  bool Reads(const std::string& path) const;

 private:
  explicit RequestSource(const CommandLine& line) : line_(&line) {}
  absl::StatusOr<InputFile> WriteRows(Session& session);

  const CommandLine* line_;
  std::optional<InputFile> file_;  // else documents:
  std::optional<PromptTemplate> template_;
  std::vector<InputPath> paths_;
};

// How rows of the command line's documents are made, asking the session's daemon.
RequestRows MakeRequestRows(const CommandLine& line, const PromptTemplate& prompt_template,
                            Session& session);

}  // namespace nightshift
