// Imports each model named on the command line and prints its pack's manifest, one a line: the seeds
// of pack_manifest_fuzz.
#include <iostream>
#include <string>

#include "absl/status/status.h"

#include "engine/model/checkpoint.h"
#include "engine/model/pack_import.h"
#include "engine/model/pack_manifest.h"
#include "kernels/base/status_macros.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

absl::Status PrintManifest(const std::string& model) {
  const TemporaryFolder folder;
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(model));
  ASSIGN_OR_RETURN(ImportedPack pack,
                   ImportPack(checkpoint, {.output = folder.path() + "/pack",
                                           .tokenizer_json = std::string("{}"),
                                           .chat_template = std::string("{{ messages }}")}));
  std::cout << PackManifestToJson(pack.manifest) << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (const absl::Status status = nightshift::PrintManifest(argv[i]); !status.ok()) {
      std::cerr << status << "\n";
      return 1;
    }
  }
  return 0;
}
