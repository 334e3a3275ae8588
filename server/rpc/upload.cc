#include "server/rpc/upload.h"

#include <cstdlib>
#include <span>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
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
  return std::unique_ptr<Upload>(new Upload(path, fd));
}

Upload::~Upload() {
  ::close(fd_);
  if (!path_.empty()) {
    ::unlink(path_.c_str());
  }
}

absl::Status Upload::Append(int64_t offset, absl::string_view data, uint32_t crc32c) {
  if (offset != committed_bytes_) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, reason::kUploadOffsetMismatch,
        absl::StrCat("chunk at offset ", offset, ", the upload has ", committed_bytes_, " bytes"),
        {{"offset", absl::StrCat(offset)}, {"committedSize", absl::StrCat(committed_bytes_)}});
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
  const std::string target = absl::StrCat(directory, "/", name);
  if (::rename(path_.c_str(), target.c_str()) != 0) {
    return FileError(absl::StrCat("rename upload ", path_, " to ", target));
  }
  path_.clear();
  return SyncDirectory(directory);
}

}  // namespace nightshift
