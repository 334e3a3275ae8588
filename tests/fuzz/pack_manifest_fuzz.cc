// Input: the manifest of a pack. Its digest is put right first, so that what lies behind that check
// is reached; the input as it is goes through too.
#include <span>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"

#include "engine/model/pack_manifest.h"
#include "engine/model/strict_json.h"
#include "kernels/base/checksum.h"
#include "tests/fuzz/fuzz_input.h"

namespace nightshift {
namespace {

std::string WithDigest(nlohmann::json manifest) {
  const auto dump = [&manifest] {
    return manifest.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  manifest.erase("digest");
  const std::string text = dump();
  manifest["digest"] = absl::StrFormat("%016x", Xxh3(std::as_bytes(std::span(text))));
  return dump();
}

// What a manifest says is written and read back the same.
void CheckManifest(const std::string& text) {
  auto manifest = PackManifestFromJson(text, "manifest");
  if (!manifest.ok()) {
    return;
  }
  const std::string written = PackManifestToJson(*manifest);
  auto again = PackManifestFromJson(written, "manifest");
  CHECK(again.ok());
  CHECK(PackManifestToJson(*again) == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(InputText(data, size));
  CheckManifest(text);
  auto manifest = ParseStrictJson(text, "manifest");
  if (manifest.ok()) {
    CheckManifest(WithDigest(*std::move(manifest)));
  }
  return 0;
}

}  // namespace nightshift
