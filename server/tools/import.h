// `nightshift import SOURCE --output PACK`: a published model becomes a pack.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/pack.h"
#include "engine/model/weight_import.h"
#include "engine/model/weight_types.h"

namespace nightshift {

struct ImportOptions {
  std::string source;     // a Hugging Face folder or a GGUF file
  std::string output;     // the pack's folder; must not exist
  std::string name = {};  // what the pack calls the model; empty: the source's file name
  // Leave out what this version cannot run: without a tokenizer the pack takes token ids only,
  // without a template it takes no chats.
  bool without_tokenizer = false;
  bool without_template = false;
  // A file whose text takes the place of the source's chat template; empty: the source's own.
  std::string chat_template_file = {};
  WeightTypes types = {};
  ImportProgress progress = {};  // bytes of weights written; may be empty
};

struct ImportSummary {
  PackManifest manifest;
  std::vector<std::string> notes;  // one sentence each, for people
};

// Errors: NOT_FOUND (no source), INVALID_ARGUMENT (what the source holds, with the list of
// supported architectures where that is the matter; a tokenizer or template that we cannot run,
// naming the option that leaves it out), ALREADY_EXISTS (output), RESOURCE_EXHAUSTED (disk, with
// numbers), DATA_LOSS (source ends early).
absl::StatusOr<ImportSummary> ImportModel(const ImportOptions& options);

}  // namespace nightshift
