// The pack: a converted model as one folder, in the order a sweep reads it (pack_format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/config.h"
#include "engine/model/model_tensors.h"
#include "engine/model/source_file.h"
#include "kernels/dtype.h"

namespace nightshift {

inline constexpr int kPackFormatVersion = 1;
// Offsets of shards in the extent file: what O_DIRECT asks of every disk we know.
inline constexpr int64_t kShardAlignment = 4096;
inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kExtentFile[] = "weights.extent";
inline constexpr char kTokenizerFile[] = "tokenizer.json";
inline constexpr char kChatTemplateFile[] = "chat_template.jinja";

// The unit of placement and streaming: whole panels of one tensor, a few MiB.
struct ShardEntry {
  int64_t first_output = 0;  // multiple of 64
  int64_t outputs = 0;
  int64_t offset = 0;  // in the extent file; a multiple of 4096
  int64_t bytes = 0;   // without the padding to 4096
  uint64_t xxh3 = 0;   // of those bytes
};

struct TensorEntry {
  std::string name;  // canonical: tensor_names.h
  TensorLayout layout = TensorLayout::kMatMul;
  DType dtype = DType::kF32;
  int64_t outputs = 0;  // N; the length of a vector
  int64_t inputs = 0;   // K; 1 for a vector
  // What GGUF calls the blocks that it was imported from: "Q5_0"; empty for float types.
  std::string source_type;
  std::vector<ShardEntry> shards;
};

// A file that a pack was made from, or one that lies in the pack beside the weights.
struct FileDigest {
  std::string name;
  int64_t bytes = 0;
  uint64_t xxh3 = 0;
};

struct PackManifest {
  int format_version = kPackFormatVersion;
  std::string model_name;
  std::string source_format;  // "safetensors", "gguf" or "random"
  ModelConfig config;
  std::vector<FileDigest> sources;
  int64_t extent_bytes = 0;
  std::vector<TensorEntry> tensors;  // in the order of a sweep
  bool has_tokenizer = false;
  FileDigest tokenizer;
  bool has_chat_template = false;
  FileDigest chat_template;
  uint64_t digest = 0;  // XXH3 of the manifest without this field: the model digest of results
};

// Reads a pack. Immutable after Open; reads are thread-safe (pread).
class Pack {
 public:
  // Checks the manifest against itself, the family table and the extent's size, so that whoever
  // holds a Pack may trust every number in it; the weights' checksums are checked as they are read.
  // Errors: NOT_FOUND, INVALID_ARGUMENT (not a pack, or a newer version), DATA_LOSS with the field.
  static absl::StatusOr<std::unique_ptr<Pack>> Open(const std::string& path);

  // For Open, which has checked the parts.
  Pack(std::string path, PackManifest manifest, SourceFile extent);

  const PackManifest& manifest() const { return manifest_; }
  const std::string& path() const { return path_; }
  // Tensor by canonical name, or nullptr.
  const TensorEntry* Find(const std::string& name) const;
  // Reads shard bytes into `target` (exactly shard.bytes) and verifies the checksum.
  // Errors: DATA_LOSS naming tensor, shard and offset.
  absl::Status ReadShard(const TensorEntry& tensor, size_t shard_index,
                         std::span<std::byte> target) const;
  // The pack's tokenizer spec (engine/text/tokenizer_spec.h) and chat template; NOT_FOUND if none,
  // DATA_LOSS if its checksum differs.
  absl::StatusOr<std::string> ReadTokenizerJson() const;
  absl::StatusOr<std::string> ReadChatTemplate() const;

 private:
  absl::StatusOr<std::string> ReadText(bool present, const char* name,
                                       const FileDigest& file) const;

  std::string path_;
  PackManifest manifest_;
  SourceFile extent_;
  std::map<std::string, size_t> tensor_index_;
};

}  // namespace nightshift
