// The pack: a converted model as one folder, in the order a sweep reads it (pack_format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config.h"
#include "kernels/dtype.h"

namespace nightshift {

// How a tensor's elements lie in its shards.
enum class TensorLayout : uint8_t {
  kMatMul = 1,  // [N/64][K/2][64][2] panels, scales beside their rows
  kVector = 2,  // plain F32 in order
};

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
  std::vector<ShardEntry> shards;
};

struct SourceFile {
  std::string name;
  int64_t bytes = 0;
  uint64_t xxh3 = 0;
};

struct PackManifest {
  int format_version = 1;
  std::string model_name;
  std::string source_format;  // "safetensors" or "gguf"
  ModelConfig config;
  std::vector<SourceFile> sources;
  std::vector<TensorEntry> tensors;  // in the order of a sweep
  bool has_tokenizer = false;
  bool has_chat_template = false;
  uint64_t digest = 0;  // XXH3 of the manifest without this field: the model digest of results
};

// Reads a pack. Immutable after Open; reads are thread-safe (pread).
class Pack {
 public:
  // Errors: NOT_FOUND, INVALID_ARGUMENT (not a pack, or a newer version), DATA_LOSS with the field.
  static absl::StatusOr<std::unique_ptr<Pack>> Open(const std::string& path);
  virtual ~Pack() = default;

  virtual const PackManifest& manifest() const = 0;
  virtual const std::string& path() const = 0;
  // Tensor by canonical name, or nullptr.
  virtual const TensorEntry* Find(const std::string& name) const = 0;
  // Reads shard bytes into `target` (exactly shard.bytes) and verifies the checksum.
  // Errors: DATA_LOSS naming tensor, shard and offset.
  virtual absl::Status ReadShard(const TensorEntry& tensor, size_t shard_index,
                                 std::span<std::byte> target) const = 0;
  // The pack's tokenizer spec (engine/text/tokenizer_spec.h) and chat template; NOT_FOUND if none.
  virtual absl::StatusOr<std::string> ReadTokenizerJson() const = 0;
  virtual absl::StatusOr<std::string> ReadChatTemplate() const = 0;
};

}  // namespace nightshift
