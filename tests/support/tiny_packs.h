// Packs for tests: the golden tiny models of tests/data/tiny, and the real SmolLM2, imported by the
// engine's own reader into a folder that lives as long as the test process.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <stdlib.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/checkpoint.h"
#include "engine/model/pack_writer.h"
#include "engine/model/tensor_map.h"
#include "engine/model/weight_import.h"
#include "engine/model/weight_types.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

// A folder under the system's temporary folder, removed when the process ends.
class PackFolder {
 public:
  PackFolder() {
    std::string pattern = std::filesystem::temp_directory_path() / "nightshift-packs-XXXXXX";
    CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~PackFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PackFolder(const PackFolder&) = delete;
  PackFolder& operator=(const PackFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Weights of `source` into a pack at `target`, with `tokenizer` unless null.
inline absl::Status ImportForTest(const std::string& source, const std::string& target,
                                  const TokenizerSpec* tokenizer, const WeightTypes& types = {}) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(source));
  ASSIGN_OR_RETURN(TensorMap map,
                   MapTensors(checkpoint.model, checkpoint.format, checkpoint.tensors->tensors()));
  RETURN_IF_ERROR(ChooseTypes(types, map));
  ASSIGN_OR_RETURN(const std::unique_ptr<PackWriter> writer, PackWriter::Create(target));
  RETURN_IF_ERROR(WriteTensors(map, *checkpoint.tensors, *writer, [](int64_t) {}));
  if (tokenizer != nullptr) {
    RETURN_IF_ERROR(writer->WriteTokenizerJson(TokenizerSpecToJson(*tokenizer)));
  }
  PackManifest manifest;
  manifest.model_name = checkpoint.name;
  manifest.source_format = checkpoint.format == SourceFormat::kGguf ? "gguf" : "safetensors";
  manifest.config = map.config;
  ASSIGN_OR_RETURN(manifest.sources, DigestFiles(checkpoint.files));
  return writer->Finish(std::move(manifest)).status();
}

// A vocabulary for decoding only: ids 0 to 2 are special, then pairs of letters, then
// single bytes, among them parts of characters.
inline TokenizerSpec PairsTokenizer(size_t vocabulary) {
  const std::string letters = "abcdefghijklmnopqrs";
  TokenizerSpec spec;
  spec.tokens = {"<pad>", "<s>", "</s>"};
  for (int32_t id = 0; id < 3; ++id) {
    AddedToken token;
    token.id = id;
    token.text = spec.tokens[static_cast<size_t>(id)];
    token.special = true;
    spec.added_tokens.push_back(token);
  }
  const std::vector<std::string> bytes = {"\xc3", "\xa4", "\xe2\x82", "\xac", "\xff", " "};
  while (spec.tokens.size() < vocabulary) {
    const size_t i = spec.tokens.size() - 3;
    spec.tokens.push_back(i % 20 == 19 ? bytes[(i / 20) % bytes.size()]
                                       : std::string{letters[i / 18], letters[i % 18]});
  }
  return spec;
}

// Path of the pack of tests/data/tiny/NAME or, for NAME.gguf, of tests/data/gguf/NAME.gguf,
// imported at the first call. No tokenizer.
inline const std::string& TinyPack(const std::string& name) {
  static const PackFolder folder;
  static std::map<std::string, std::string> packs;
  std::string& path = packs[name];
  if (path.empty()) {
    path = folder.path() + "/" + name;
    const char* const kind = name.ends_with(".gguf") ? "/gguf/" : "/tiny/";
    const absl::Status status = ImportForTest(TEST_DATA_DIR + (kind + name), path, nullptr);
    if (!status.ok()) {
      CheckFailed(__FILE__, __LINE__, "import of a tiny model", status.ToString());
    }
  }
  return path;
}

// The same with the vocabulary of PairsTokenizer, so that texts and stop strings work. NAME:TYPE
// has its matrices as ParseWeightType reads it: "llama:int4".
inline const std::string& TinyPackWithTokenizer(const std::string& name) {
  static const PackFolder folder;
  static std::map<std::string, std::string> packs;
  std::string& path = packs[name];
  if (path.empty()) {
    path = folder.path() + "/" + name;
    const size_t colon = name.find(':');
    const std::string source = std::string(TEST_DATA_DIR "/tiny/") + name.substr(0, colon);
    const absl::StatusOr<Checkpoint> checkpoint = OpenCheckpoint(source);
    absl::Status status = checkpoint.status();
    WeightTypes types;
    if (colon != std::string::npos) {
      types.matrices = ParseWeightType(name.substr(colon + 1)).value();
    }
    if (status.ok()) {
      const TokenizerSpec spec =
          PairsTokenizer(static_cast<size_t>(checkpoint->model.config.vocabulary));
      status = ImportForTest(source, path, &spec, types);
    }
    if (!status.ok()) {
      CheckFailed(__FILE__, __LINE__, "import of a tiny model", status.ToString());
    }
  }
  return path;
}

// Path of SmolLM2's pack (no tokenizer), imported at the first call from the file that
// deploy/fetch-model puts into the cache. `type`: matrices quantised again, or
// expanded, to what ParseWeightType reads; empty: as the file has them. NOT_FOUND when it is not
// there.
inline absl::StatusOr<std::string> SmolLm2Pack(const std::string& type = "") {
  static const PackFolder folder;
  const std::string path = folder.path() + "/smollm2" + type;
  if (std::filesystem::exists(path)) {
    return path;
  }
  const char* cache = std::getenv("NIGHTSHIFT_CACHE");
  const char* home = std::getenv("HOME");
  const std::string cache_path =
      cache != nullptr ? cache : std::string(home != nullptr ? home : "") + "/.cache/nightshift";
  const std::string file = cache_path + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(file)) {
    return absl::NotFoundError(file + " is not there: run deploy/fetch-model");
  }
  WeightTypes types{.requantises = true};
  if (!type.empty()) {
    types.matrices = ParseWeightType(type).value();
  }
  RETURN_IF_ERROR(ImportForTest(file, path, nullptr, types));
  return path;
}

}  // namespace nightshift
