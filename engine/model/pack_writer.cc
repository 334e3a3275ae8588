#include "engine/model/pack_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "engine/model/pack_manifest.h"
#include "engine/model/stored_panel.h"
#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

absl::Status WriteError(const std::string& path, const char* name, int error) {
  const std::string message = absl::StrCat("writing ", path, "/", name, ": ", std::strerror(error));
  return error == ENOSPC || error == EDQUOT ? absl::ResourceExhaustedError(message)
                                            : absl::FailedPreconditionError(message);
}

// Returns 0 or an errno.
int WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return errno;
    }
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return 0;
}

int CreateFile(int folder_fd, const char* name) {
  return openat(folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

}  // namespace

int64_t ShardPanels(DType dtype, int64_t inputs) {
  return std::max<int64_t>(1, kShardTargetBytes / StoredPanelBytes(dtype, inputs));
}

int64_t ExtentBytes(TensorLayout layout, DType dtype, int64_t outputs, int64_t inputs) {
  if (layout == TensorLayout::kVector) {
    return RoundUp(outputs * FloatBytes(DType::kF32), kShardAlignment);
  }
  const int64_t panel_bytes = StoredPanelBytes(dtype, inputs);
  const int64_t panels = (outputs + kPanelOutputs - 1) / kPanelOutputs;
  const int64_t shard_panels = ShardPanels(dtype, inputs);
  const int64_t full_shards = panels / shard_panels;
  return full_shards * RoundUp(shard_panels * panel_bytes, kShardAlignment) +
         RoundUp(panels % shard_panels * panel_bytes, kShardAlignment);
}

int64_t ManifestRoom(int64_t num_tensors, int64_t extent_bytes) {
  // About 70 bytes a shard and 150 a tensor.
  return (1 << 20) + 256 * num_tensors + 128 * (extent_bytes / kShardTargetBytes);
}

absl::StatusOr<std::unique_ptr<PackWriter>> PackWriter::Create(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<PartialFolder> folder, PartialFolder::Create(path));
  const int fd = CreateFile(folder->fd(), kExtentFile);
  if (fd < 0) {
    return WriteError(folder->path(), kExtentFile, errno);
  }
  return std::make_unique<PackWriter>(std::move(folder), fd);
}

PackWriter::PackWriter(std::unique_ptr<PartialFolder> folder, int extent_fd)
    : folder_(std::move(folder)), extent_fd_(extent_fd) {}

PackWriter::~PackWriter() {
  close(extent_fd_);
}

void PackWriter::BeginTensor(const TensorSpec& spec, DType dtype, const std::string& source_type) {
  written_.tensors.push_back(
      {spec.name, spec.layout, dtype, spec.outputs, spec.inputs, source_type, {}});
}

absl::Status PackWriter::AppendShard(int64_t outputs, std::span<const std::byte> bytes) {
  static constexpr std::array<std::byte, kShardAlignment> kPadding{};
  TensorEntry& tensor = written_.tensors.back();
  const int64_t first_output =
      tensor.shards.empty() ? 0 : tensor.shards.back().first_output + tensor.shards.back().outputs;
  const int64_t size = static_cast<int64_t>(bytes.size());
  const int64_t padding = RoundUp(size, kShardAlignment) - size;
  tensor.shards.push_back({first_output, outputs, written_.extent_bytes, size, Xxh3(bytes)});
  int error = WriteAll(extent_fd_, bytes);
  if (error == 0) {
    error = WriteAll(extent_fd_, std::span(kPadding).first(static_cast<size_t>(padding)));
  }
  written_.extent_bytes += size + padding;
  return error == 0 ? absl::OkStatus() : WriteError(folder_->path(), kExtentFile, error);
}

absl::StatusOr<FileDigest> PackWriter::WriteText(const char* name, const std::string& text) {
  const int fd = CreateFile(folder_->fd(), name);
  if (fd < 0) {
    return WriteError(folder_->path(), name, errno);
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  int error = WriteAll(fd, bytes);
  if (error == 0 && fsync(fd) != 0) {
    error = errno;
  }
  close(fd);
  if (error != 0) {
    return WriteError(folder_->path(), name, error);
  }
  return FileDigest{name, static_cast<int64_t>(text.size()), Xxh3(bytes)};
}

absl::Status PackWriter::WriteTokenizerJson(const std::string& text) {
  ASSIGN_OR_RETURN(written_.tokenizer, WriteText(kTokenizerFile, text));
  written_.has_tokenizer = true;
  return absl::OkStatus();
}

absl::Status PackWriter::WriteChatTemplate(const std::string& text) {
  ASSIGN_OR_RETURN(written_.chat_template, WriteText(kChatTemplateFile, text));
  written_.has_chat_template = true;
  return absl::OkStatus();
}

absl::StatusOr<PackManifest> PackWriter::Finish(PackManifest manifest) {
  manifest.extent_bytes = written_.extent_bytes;
  manifest.tensors = std::move(written_.tensors);
  manifest.has_tokenizer = written_.has_tokenizer;
  manifest.tokenizer = written_.tokenizer;
  manifest.has_chat_template = written_.has_chat_template;
  manifest.chat_template = written_.chat_template;
  const std::string text = PackManifestToJson(manifest);
  // A pack that our own reader refuses must not be published.
  if (const auto parsed = PackManifestFromJson(text, folder_->path()); !parsed.ok()) {
    return absl::InternalError(
        absl::StrCat("checking the manifest just made: ", parsed.status().message()));
  }
  if (fsync(extent_fd_) != 0) {
    return WriteError(folder_->path(), kExtentFile, errno);
  }
  RETURN_IF_ERROR(WriteText(kManifestFile, text).status());
  RETURN_IF_ERROR(folder_->Publish());
  return manifest;
}

}  // namespace nightshift
