#include "engine/model/checkpoint.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/gguf.h"
#include "engine/model/gguf_config.h"
#include "engine/model/huggingface_config.h"
#include "engine/model/safetensors.h"
#include "engine/model/source_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = 4 << 20;

// "/models/SmolLM2/" -> "SmolLM2", also for "." and the like.
std::string NameOfPath(const std::string& path, bool folder) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(path, error);
  if (error || full.filename().empty()) {
    return "model";
  }
  return folder ? full.filename().string() : full.stem().string();
}

absl::StatusOr<Checkpoint> OpenFolder(const std::string& path) {
  const std::string config_path = absl::StrCat(path, "/config.json");
  const std::string generation_path = absl::StrCat(path, "/generation_config.json");
  Checkpoint checkpoint;
  checkpoint.format = SourceFormat::kSafetensors;
  checkpoint.name = NameOfPath(path, /*folder=*/true);
  checkpoint.files.push_back(config_path);
  ASSIGN_OR_RETURN(const std::string config_json, ReadTextFile(config_path, kMaxConfigBytes));
  auto generation_json = ReadTextFile(generation_path, kMaxConfigBytes);
  if (generation_json.ok()) {
    checkpoint.files.push_back(generation_path);
  } else if (!absl::IsNotFound(generation_json.status())) {
    return generation_json.status();
  }
  ASSIGN_OR_RETURN(checkpoint.model,
                   SourceModelFromHuggingFace(config_json, generation_json.value_or("")));
  ASSIGN_OR_RETURN(auto tensors, SafetensorsCheckpoint::Open(path));
  for (const SourceFile& file : tensors->files()) {
    checkpoint.files.push_back(file.path());
  }
  checkpoint.tensors = std::move(tensors);
  return checkpoint;
}

absl::StatusOr<Checkpoint> OpenGguf(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.format = SourceFormat::kGguf;
  checkpoint.name = NameOfPath(path, /*folder=*/false);
  checkpoint.files.push_back(path);
  ASSIGN_OR_RETURN(auto tensors, GgufCheckpoint::Open(path));
  ASSIGN_OR_RETURN(checkpoint.model, SourceModelFromGguf(*tensors));
  checkpoint.gguf = &tensors->metadata();
  checkpoint.tensors = std::move(tensors);
  return checkpoint;
}

}  // namespace

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? OpenFolder(path) : OpenGguf(path);
}

absl::StatusOr<std::vector<FileDigest>> DigestFiles(const std::vector<std::string>& paths) {
  std::vector<FileDigest> digests;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(const SourceFile file, SourceFile::Open(path));
    ASSIGN_OR_RETURN(const uint64_t xxh3, file.Digest());
    digests.push_back({fs::path(path).filename().string(), file.bytes(), xxh3});
  }
  return digests;
}

}  // namespace nightshift
