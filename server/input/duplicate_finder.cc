#include "server/input/duplicate_finder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <span>

#include <fcntl.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"
#include "server/input/file_window.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

constexpr size_t kFlushRows = 16384;
constexpr int64_t kRowsPerPart = 262144;
// Beyond it repeated hashes are folded before more are read: many rows may share one id.
constexpr size_t kMaxEntries = 2 * kRowsPerPart;

absl::Status FileError(absl::string_view tried) {
  const std::string message = absl::StrCat(tried, " scratch file: ", std::strerror(errno));
  return errno == ENOSPC || errno == EDQUOT
             ? MakeError(absl::StatusCode::kResourceExhausted, reason::kDiskFull, message)
             : absl::InternalError(message);
}

uint64_t HashOf(absl::string_view text) {
  return Xxh3(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DuplicateFinder>> DuplicateFinder::Create(
    const std::string& directory) {
  std::string path = directory + "/ids-XXXXXX";
  const int fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) {
    return FileError("create");
  }
  ::unlink(path.c_str());
  std::random_device random;
  return std::unique_ptr<DuplicateFinder>(
      new DuplicateFinder(fd, absl::StrCat(random(), ".", random(), "|")));
}

DuplicateFinder::~DuplicateFinder() {
  ::close(fd_);
}

absl::Status DuplicateFinder::Add(absl::string_view custom_id) {
  Hash hash = {0, 0};
  if (!custom_id.empty()) {
    // Two hashes of different texts for one of 128 bits; {0, 0} stands for "no id".
    hash = {HashOf(absl::StrCat(salt_, custom_id)), HashOf(absl::StrCat(custom_id, salt_)) | 1U};
  }
  pending_.push_back(hash);
  return pending_.size() < kFlushRows ? absl::OkStatus() : Flush();
}

absl::Status DuplicateFinder::Flush() {
  const auto bytes = std::as_bytes(std::span(pending_));
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count =
        ::pwrite(fd_, bytes.data() + written, bytes.size() - written,
                 num_written_ * static_cast<int64_t>(sizeof(Hash)) + static_cast<int64_t>(written));
    if (count < 0 && errno != EINTR) {
      return FileError("write");
    }
    written += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  num_written_ += static_cast<int64_t>(pending_.size());
  pending_.clear();
  return absl::OkStatus();
}

absl::Status DuplicateFinder::Find(
    const std::function<absl::Status(int64_t row, int64_t first_row)>& found) {
  RETURN_IF_ERROR(Flush());
  const auto num_parts = static_cast<uint64_t>(num_written_ / kRowsPerPart + 1);
  for (uint64_t part = 0; part < num_parts; ++part) {
    RETURN_IF_ERROR(FindInPart(part, num_parts, found));
  }
  return absl::OkStatus();
}

absl::Status DuplicateFinder::FindInPart(uint64_t part, uint64_t num_parts, const Found& found) {
  std::vector<Entry> entries;
  size_t fold_at = kMaxEntries;
  FileWindow window(fd_);
  constexpr auto kHashBytes = static_cast<int64_t>(sizeof(Hash));
  for (int64_t row = 0; row < num_written_; ++row) {
    ASSIGN_OR_RETURN(const absl::string_view bytes, window.Peek(kHashBytes));
    Hash hash = {0, 0};
    std::memcpy(hash.data(), bytes.data(), std::min(bytes.size(), sizeof(hash)));
    window.Skip(std::min(kHashBytes, static_cast<int64_t>(bytes.size())));
    if (hash[1] != 0 && hash[0] % num_parts == part) {
      entries.push_back({hash, row});
    }
    if (entries.size() >= fold_at) {
      RETURN_IF_ERROR(Fold(entries, found));
      fold_at = std::max(kMaxEntries, 2 * entries.size());
    }
  }
  return Fold(entries, found);
}

absl::Status DuplicateFinder::Fold(std::vector<Entry>& entries, const Found& found) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.hash != b.hash ? a.hash < b.hash : a.row < b.row;
  });
  size_t kept = 0;
  for (const Entry& entry : entries) {
    if (kept > 0 && entries[kept - 1].hash == entry.hash) {
      RETURN_IF_ERROR(found(entry.row, entries[kept - 1].row));
    } else {
      entries[kept++] = entry;
    }
  }
  entries.resize(kept);
  return absl::OkStatus();
}

}  // namespace nightshift
