#include "engine/model/pack.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/model/pack_manifest.h"
#include "engine/model/partial_folder.h"
#include "kernels/base/check.h"
#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A manifest has about 70 bytes a shard of 4 MiB: this is room for 4 TB of weights.
constexpr int64_t kMaxManifestBytes = 128 << 20;
constexpr int64_t kMaxTextBytes = 256 << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Pack>> Pack::Open(const std::string& path) {
  if (IsPartialFolder(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("opening pack ", path, ": the leftover of an unfinished import"));
  }
  const std::string manifest_path = absl::StrCat(path, "/", kManifestFile);
  ASSIGN_OR_RETURN(const std::string text,
                   ReadTextFile(manifest_path, kMaxManifestBytes, SourceFile::Links::kNoLinks));
  ASSIGN_OR_RETURN(PackManifest manifest, PackManifestFromJson(text, manifest_path));
  ASSIGN_OR_RETURN(SourceFile extent, SourceFile::Open(absl::StrCat(path, "/", kExtentFile),
                                                       SourceFile::Links::kNoLinks));
  if (extent.bytes() != manifest.extent_bytes) {
    return absl::DataLossError(absl::StrCat(extent.path(), " has ", extent.bytes(),
                                            " bytes, the manifest says ", manifest.extent_bytes));
  }
  return std::make_unique<Pack>(path, std::move(manifest), std::move(extent));
}

Pack::Pack(std::string path, PackManifest manifest, SourceFile extent)
    : path_(std::move(path)), manifest_(std::move(manifest)), extent_(std::move(extent)) {
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    tensor_index_[manifest_.tensors[i].name] = i;
  }
}

const TensorEntry* Pack::Find(const std::string& name) const {
  const auto entry = tensor_index_.find(name);
  return entry == tensor_index_.end() ? nullptr : &manifest_.tensors[entry->second];
}

absl::Status Pack::ReadShard(const TensorEntry& tensor, size_t shard_index,
                             std::span<std::byte> target) const {
  const ShardEntry& shard = tensor.shards[shard_index];
  CHECK_EQ(static_cast<int64_t>(target.size()), shard.bytes);
  RETURN_IF_ERROR(extent_.Read(shard.offset, target));
  if (Xxh3(target) != shard.xxh3) {
    return absl::DataLossError(absl::StrCat(
        "tensor ", tensor.name, " shard ", shard_index, " of ", extent_.path(), ", ", shard.bytes,
        " bytes at offset ", shard.offset, ": the checksum differs; import the model again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Pack::ReadText(bool present, const char* name,
                                           const FileDigest& file) const {
  if (!present) {
    return absl::NotFoundError(absl::StrCat("pack ", path_, " has no ", name));
  }
  ASSIGN_OR_RETURN(std::string text, ReadTextFile(absl::StrCat(path_, "/", name), kMaxTextBytes,
                                                  SourceFile::Links::kNoLinks));
  if (static_cast<int64_t>(text.size()) != file.bytes ||
      Xxh3(std::as_bytes(std::span(text))) != file.xxh3) {
    return absl::DataLossError(
        absl::StrCat(path_, "/", name, ": size or checksum differs from the manifest"));
  }
  return text;
}

absl::StatusOr<std::string> Pack::ReadTokenizerJson() const {
  return ReadText(manifest_.has_tokenizer, kTokenizerFile, manifest_.tokenizer);
}

absl::StatusOr<std::string> Pack::ReadChatTemplate() const {
  return ReadText(manifest_.has_chat_template, kChatTemplateFile, manifest_.chat_template);
}

}  // namespace nightshift
