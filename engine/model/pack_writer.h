// PackWriter: writes a pack, shard by shard, aside; it appears complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/pack.h"
#include "engine/model/partial_folder.h"

namespace nightshift {

// Aim of a shard's size. Large enough that a disk gives its full rate, small enough that tiers are
// filled to within a few MiB and a ring of shards stays small.
inline constexpr int64_t kShardTargetBytes = 4 << 20;

// Panels in a full shard of a matmul tensor: as many as fit in kShardTargetBytes, at least one.
int64_t ShardPanels(DType dtype, int64_t inputs);

// What the extent grows by for one tensor, paddings included. The tensor's sizes are those of a
// valid model configuration.
int64_t ExtentBytes(TensorLayout layout, DType dtype, int64_t outputs, int64_t inputs);

// Room that the manifest takes beside an extent of so many bytes, at most.
int64_t ManifestRoom(int64_t num_tensors, int64_t extent_bytes);

// Calls: BeginTensor, AppendShard..., and so on for each tensor in the order of a sweep; texts at
// any time; Finish last. Single-threaded. Destroyed without Finish, it removes what it wrote.
class PackWriter {
 public:
  // Errors: as PartialFolder::Create.
  static absl::StatusOr<std::unique_ptr<PackWriter>> Create(const std::string& path);

  PackWriter(std::unique_ptr<PartialFolder> folder, int extent_fd);
  ~PackWriter();
  PackWriter(const PackWriter&) = delete;
  PackWriter& operator=(const PackWriter&) = delete;

  // `source_type`: TensorEntry::source_type.
  void BeginTensor(const TensorSpec& spec, DType dtype, const std::string& source_type);
  // The next `outputs` rows of the tensor, as the pack stores them.
  // Errors: RESOURCE_EXHAUSTED (a full disk), FAILED_PRECONDITION, with the system's reason.
  absl::Status AppendShard(int64_t outputs, std::span<const std::byte> bytes);
  absl::Status WriteTokenizerJson(const std::string& text);
  absl::Status WriteChatTemplate(const std::string& text);
  // Syncs everything and publishes the pack. `manifest` gives name, format, config and sources; the
  // rest is filled in and the whole returned, with its digest.
  // Errors: as above; INTERNAL when the written tensors are not those of the configuration.
  absl::StatusOr<PackManifest> Finish(PackManifest manifest);

 private:
  absl::StatusOr<FileDigest> WriteText(const char* name, const std::string& text);

  std::unique_ptr<PartialFolder> folder_;
  int extent_fd_ = -1;
  PackManifest written_;  // tensors and texts so far
};

}  // namespace nightshift
