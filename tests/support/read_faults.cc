// A disk that cannot read one place, for tests: linked into a test, or loaded into a daemon by
// LD_PRELOAD. It stands in front of pread, and gives no io_uring so that all reads come that way.
//
// The file that $READ_FAULT names says what fails: "OFFSET once" or "OFFSET always". A direct read
// (as pieces of shards are) that covers the offset then ends with EIO; `once` removes the file.
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct io_uring;  // of liburing

namespace {

// Whether the disk cannot read [offset, offset + bytes).
bool Fails(int fd, size_t bytes, int64_t offset) {
  const char* const path = std::getenv("READ_FAULT");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "r");
  if (file == nullptr) {
    return false;
  }
  int64_t place = -1;
  char times[8] = "";
  const bool is_fault = std::fscanf(file, "%" SCNd64 " %7s", &place, times) == 2;
  std::fclose(file);
  const bool is_direct = (fcntl(fd, F_GETFL) & O_DIRECT) != 0;
  if (!is_fault || !is_direct || place < offset || place - offset >= static_cast<int64_t>(bytes)) {
    return false;
  }
  return std::strcmp(times, "always") == 0 || unlink(path) == 0;
}

}  // namespace

extern "C" {

// As in unistd.h.
ssize_t pread(int fd, void* buffer, size_t bytes, off_t offset) {
  if (Fails(fd, bytes, offset)) {
    errno = EIO;
    return -1;
  }
  return syscall(SYS_pread64, fd, buffer, bytes, offset);
}

// As in liburing.h.
int io_uring_queue_init(unsigned /*entries*/, io_uring* /*ring*/, unsigned /*flags*/) {
  return -EPERM;
}

}  // extern "C"
