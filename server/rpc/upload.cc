#include "server/rpc/upload.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/failpoint.h"
#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/scratch_file.h"
#include "server/store/state_directory.h"

namespace nightshift {

absl::StatusOr<std::unique_ptr<Upload>> Upload::Create(const std::string& uploads_directory) {
  std::string path = uploads_directory + "/input-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) {
    return FileError(absl::StrCat("create an upload in ", uploads_directory));
  }
  return std::unique_ptr<Upload>(new Upload(uploads_directory, "", path, fd));
}

absl::StatusOr<std::unique_ptr<Upload>> Upload::CreateKept(const std::string& uploads_directory,
                                                           const std::string& name) {
  const std::string path = KeptUploadPath(uploads_directory, name, 0);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    return FileError(absl::StrCat("create upload ", path));
  }
  return std::unique_ptr<Upload>(new Upload(uploads_directory, name, path, fd));
}

absl::StatusOr<std::unique_ptr<Upload>> Upload::Reopen(const std::string& uploads_directory,
                                                       const std::string& name,
                                                       int64_t durable_bytes) {
  const std::string path = KeptUploadPath(uploads_directory, name, durable_bytes);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return FileError(absl::StrCat("open upload ", path));
  }
  std::unique_ptr<Upload> upload(new Upload(uploads_directory, name, path, fd));
  // What a crash left behind the durable bytes may be anything.
  if (::ftruncate(fd, durable_bytes) != 0) {
    return FileError(absl::StrCat("cut upload ", path, " to ", durable_bytes, " bytes"));
  }
  constexpr int64_t kPieceBytes = 1 << 20;
  while (upload->committed_bytes_ < durable_bytes) {
    const int64_t size = std::min(kPieceBytes, durable_bytes - upload->committed_bytes_);
    ASSIGN_OR_RETURN(const std::string piece,
                     ReadAt(fd, upload->committed_bytes_, size, "upload"));
    upload->digest_.Update(piece);
    upload->committed_bytes_ += size;
  }
  upload->durable_bytes_ = durable_bytes;
  return upload;
}

Upload::~Upload() {
  ::close(fd_);
  if (kept_name_.empty()) {
    Discard();
  }
}

void Upload::Discard() {
  if (!path_.empty()) {
    ::unlink(path_.c_str());
    path_.clear();
  }
}

absl::Status Upload::Sync() {
  if (durable_bytes_ == committed_bytes_) {
    return absl::OkStatus();
  }
  if (::fdatasync(fd_) != 0) {
    return FileError(absl::StrCat("sync upload ", path_));
  }
  Failpoint("chunk_synced");
  // Whichever name a crash leaves is true: the bytes that it counts are durable.
  const std::string path = KeptUploadPath(directory_, kept_name_, committed_bytes_);
  if (::rename(path_.c_str(), path.c_str()) != 0) {
    return FileError(absl::StrCat("rename upload ", path_, " to ", path));
  }
  path_ = path;
  durable_bytes_ = committed_bytes_;
  return SyncDirectory(directory_);
}

absl::Status Upload::Append(int64_t offset, absl::string_view data, uint32_t crc32c) {
  if (offset != committed_bytes_) {
    return OffsetMismatch("chunk", offset, committed_bytes_);
  }
  const uint32_t computed = Crc32c(std::as_bytes(std::span(data.data(), data.size())));
  if (computed != crc32c) {
    return MakeError(absl::StatusCode::kInvalidArgument, reason::kChecksumMismatch,
                     absl::StrCat("chunk at offset ", offset, " of ", data.size(),
                                  " bytes has crc32c ", absl::Hex(computed, absl::kZeroPad8),
                                  ", sent with ", absl::Hex(crc32c, absl::kZeroPad8)),
                     {{"offset", absl::StrCat(offset)}});
  }
  return Append(data);
}

absl::Status Upload::Append(absl::string_view data) {
  RETURN_IF_ERROR(WriteAt(fd_, committed_bytes_, data, "upload"));
  digest_.Update(data);
  committed_bytes_ += static_cast<int64_t>(data.size());
  Failpoint("chunk_written");
  return absl::OkStatus();
}

absl::Status Upload::Finish(int64_t total_bytes, absl::string_view sha256) {
  Finish();
  if (total_bytes != committed_bytes_ || sha256 != sha256_) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, reason::kChecksumMismatch,
        absl::StrCat("input of ", committed_bytes_, " bytes has sha256 ",
                     absl::BytesToHexString(sha256_), ", its sender counts ", total_bytes,
                     " bytes with sha256 ", absl::BytesToHexString(sha256.substr(0, 32))),
        {{"committedSize", absl::StrCat(committed_bytes_)}});
  }
  return absl::OkStatus();
}

void Upload::Finish() {
  sha256_ = digest_.Finish();
}

absl::Status Upload::Publish(const std::string& directory, const std::string& name) {
  if (::fsync(fd_) != 0) {
    return FileError(absl::StrCat("sync upload ", path_));
  }
  Failpoint("input_synced");
  const std::string target = absl::StrCat(directory, "/", name);
  if (::rename(path_.c_str(), target.c_str()) != 0) {
    return FileError(absl::StrCat("rename upload ", path_, " to ", target));
  }
  path_.clear();
  has_moved_ = true;
  Failpoint("input_renamed");
  RETURN_IF_ERROR(SyncDirectory(directory));
  Failpoint("directory_synced");
  return absl::OkStatus();
}

std::string KeptUploadPath(const std::string& uploads_directory, const std::string& name,
                           int64_t durable_bytes) {
  return absl::StrCat(uploads_directory, "/", name, ".", durable_bytes, kKeptUploadSuffix);
}

absl::Status OffsetMismatch(absl::string_view what, int64_t offset, int64_t committed_bytes) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, reason::kUploadOffsetMismatch,
      absl::StrCat(what, " at offset ", offset, ", the upload has ", committed_bytes, " bytes"),
      {{"offset", absl::StrCat(offset)}, {"committedSize", absl::StrCat(committed_bytes)}});
}

}  // namespace nightshift
