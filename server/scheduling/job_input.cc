#include "server/scheduling/job_input.h"

#include <cerrno>
#include <cstring>
#include <span>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"
#include "server/store/job_store.h"

namespace nightshift {

JobInput::~JobInput() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

absl::StatusOr<int> JobInput::OpenOnce() {
  MutexLock lock(mutex_);
  if (fd_ < 0) {
    fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  }
  if (fd_ < 0) {
    const int error = errno;
    const std::string message = absl::StrCat("open input ", path_, ": ", strerror(error));
    return error == ENOENT ? absl::DataLossError(message) : absl::UnavailableError(message);
  }
  return fd_;
}

bool JobInput::is_open() {
  MutexLock lock(mutex_);
  return fd_ >= 0;
}

absl::StatusOr<std::string> JobInput::ReadRow(int64_t offset, int64_t length, int64_t crc) {
  ASSIGN_OR_RETURN(const int fd, OpenOnce());
  std::string bytes(static_cast<size_t>(length), '\0');
  int64_t done = 0;
  while (done < length) {
    const ssize_t got =
        pread(fd, bytes.data() + done, static_cast<size_t>(length - done), offset + done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      const int error = errno;
      const std::string message = absl::StrCat(
          "read ", length, " bytes at ", offset, " of input ", path_, ": ",
          got < 0 ? strerror(error) : "the file ends before", " after ", done, " bytes");
      return got < 0 ? absl::UnavailableError(message) : absl::DataLossError(message);
    }
    done += got;
  }
  const uint32_t found = Crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
  if (crc != kNoCrc && found != crc) {
    return absl::DataLossError(absl::StrCat("the row of ", length, " bytes at ", offset,
                                            " of input ", path_,
                                            " fails its checksum: the file is damaged"));
  }
  return bytes;
}

}  // namespace nightshift
