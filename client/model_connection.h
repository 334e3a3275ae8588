// From the name of a model, or the path of a pack, to a daemon that serves it.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "client/session.h"

namespace nightshift {

// True for what names a folder rather than a model of a daemon.
bool IsPack(const std::string& model);

struct ModelConnection {
  std::string option;  // that names the model, for messages
  std::string model;   // a name, or the path of a pack
  bool is_private = false;
  // Of a private daemon; empty: one that nobody continues.
  std::string state_directory;
};

// For a job whose results go to an output: as the command line says, and a private daemon also when
// an unfinished private run to that file is to be continued. Errors: as ConnectToModel.
absl::Status ConnectForOutput(Session& session);

// The daemon that listens, which must serve the pack if that is what is named; a private one when
// asked to, or when a pack is named and nothing listens.
// Errors: NOT_FOUND (pack), FAILED_PRECONDITION (another pack is served), as Session::Connect.
absl::Status ConnectToModel(Session& session, const ModelConnection& wanted);

}  // namespace nightshift
