// Converts a checkpoint into a pack on disk.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/model/checkpoint.h"
#include "engine/model/pack.h"
#include "engine/model/weight_import.h"
#include "engine/model/weight_types.h"

namespace nightshift {

struct PackImportOptions {
  std::string output;
  std::string model_name = {};                     // empty: the checkpoint's
  std::optional<std::string> tokenizer_json = {};  // as TokenizerSpecToJson writes it
  std::optional<std::string> chat_template = {};
  WeightTypes types = {};
  ImportProgress progress = {};  // may be empty
};

struct ImportedPack {
  PackManifest manifest;
  std::vector<std::string> notes;  // what a person may want to know, one sentence each
};

// Checks free disk, writes aside, syncs and renames: the pack is there whole or not at all.
// Bounded memory, see WriteTensors.
// Errors: INVALID_ARGUMENT (tensors that do not fit the model or the types asked for),
// ALREADY_EXISTS (output), RESOURCE_EXHAUSTED (no room; with numbers), FAILED_PRECONDITION (no
// access), DATA_LOSS (source).
absl::StatusOr<ImportedPack> ImportPack(const Checkpoint& checkpoint,
                                        const PackImportOptions& options);

}  // namespace nightshift
