#include "server/scheduling/kept_prompts.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/log.h"
#include "server/store/disk_room.h"

namespace nightshift {
namespace {

// The machine's byte order is the file's: little-endian, as all that this runs on.
struct Entry {
  uint64_t offset = 0;
  uint32_t count = 0;
  uint32_t crc = 0;
};
constexpr int64_t kEntryBytes = sizeof(Entry);
static_assert(kEntryBytes == 16);
// Growth between looks at the disk.
constexpr int64_t kLookBytes = 16 << 20;

uint32_t CrcOf(const PromptKey& key, std::span<const int32_t> ids) {
  const std::array<uint64_t, 3> head = {key.text_digest, static_cast<uint64_t>(key.index),
                                        ids.size()};
  return Crc32c(std::as_bytes(ids), Crc32c(std::as_bytes(std::span(head))));
}

bool WriteAt(int fd, const void* bytes, size_t size, int64_t offset) {
  return ::pwrite(fd, bytes, size, offset) == static_cast<ssize_t>(size);
}

bool ReadAt(int fd, void* bytes, size_t size, int64_t offset) {
  return ::pread(fd, bytes, size, offset) == static_cast<ssize_t>(size);
}

int64_t SizeOf(int fd) {
  struct stat found = {};
  return ::fstat(fd, &found) == 0 ? found.st_size : 0;
}

}  // namespace

KeptPrompts::KeptPrompts(KeptPromptsOptions options) : options_(std::move(options)) {
  std::error_code error;
  ::mkdir(options_.directory.c_str(), 0700);
  for (const auto& entry : std::filesystem::directory_iterator(options_.directory, error)) {
    auto file = std::make_shared<File>();
    file->end_bytes = static_cast<int64_t>(entry.file_size(error));
    num_bytes_ += file->end_bytes;
    files_.emplace(entry.path().filename().string(), std::move(file));
  }
}

std::string KeptPrompts::PathOf(const std::string& job_uid) const {
  return absl::StrCat(options_.directory, "/", job_uid);
}

KeptPrompts::FilePtr KeptPrompts::Open(const PromptKey& key, bool create) {
  const bool may_keep = options_.max_bytes > 0 && !key.job_uid.empty();
  const auto found = files_.find(key.job_uid);
  if (!may_keep || (found == files_.end() && !create)) {
    return nullptr;
  }
  FilePtr file = found == files_.end() ? std::make_shared<File>() : found->second;
  if (file->fd.get() < 0) {
    file->fd = FileDescriptor(::open(PathOf(key.job_uid).c_str(),
                                     O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file->fd.get() < 0) {
      return nullptr;
    }
    num_bytes_ -= file->end_bytes;
    file->end_bytes = std::max(SizeOf(file->fd.get()), key.job_rows * kEntryBytes);
    num_bytes_ += file->end_bytes;
    files_[key.job_uid] = file;
  }
  return file;
}

bool KeptPrompts::HasRoom(int64_t more_bytes) {
  bool has_room = num_bytes_ + more_bytes <= options_.max_bytes;
  if (has_room && num_bytes_ + more_bytes > looked_until_bytes_) {
    const std::optional<DiskRoom> room =
        ReadDiskRoom(options_.directory, options_.disk_reserve_bytes);
    has_room = !room.has_value() || room->HasFor(more_bytes + kLookBytes);
    looked_until_bytes_ = has_room ? num_bytes_ + more_bytes + kLookBytes : 0;
  }
  if (!has_room && !is_full_) {
    is_full_ = true;
    LOG(WARNING) << "prompts_not_kept bytes=" << num_bytes_ << " limit=" << options_.max_bytes
                 << " effect=\"prompts are tokenized again when they run\"";
  }
  return has_room;
}

std::optional<std::vector<int32_t>> KeptPrompts::Find(const PromptKey& key) {
  FilePtr file;
  int64_t end_bytes = 0;
  {
    MutexLock lock(mutex_);
    file = Open(key, /*create=*/false);
    if (file == nullptr) {
      return std::nullopt;
    }
    end_bytes = file->end_bytes;
  }
  Entry entry;
  if (!ReadAt(file->fd.get(), &entry, sizeof(entry), key.index * kEntryBytes) ||
      entry.offset == 0 || entry.offset > static_cast<uint64_t>(end_bytes) ||
      entry.count > (static_cast<uint64_t>(end_bytes) - entry.offset) / sizeof(int32_t)) {
    return std::nullopt;
  }
  std::vector<int32_t> ids(entry.count);
  if (!ReadAt(file->fd.get(), ids.data(), ids.size() * sizeof(int32_t),
              static_cast<int64_t>(entry.offset)) ||
      CrcOf(key, ids) != entry.crc) {
    return std::nullopt;
  }
  return ids;
}

void KeptPrompts::Keep(const PromptKey& key, std::span<const int32_t> ids) {
  const auto bytes = static_cast<int64_t>(ids.size_bytes());
  FilePtr file;
  Entry entry;
  {
    MutexLock lock(mutex_);
    const bool is_new = files_.find(key.job_uid) == files_.end();
    if (options_.max_bytes == 0 ||
        !HasRoom(bytes + (is_new ? key.job_rows * kEntryBytes : 0))) {
      return;
    }
    file = Open(key, /*create=*/true);
    if (file == nullptr) {
      return;
    }
    entry = {.offset = static_cast<uint64_t>(file->end_bytes),
             .count = static_cast<uint32_t>(ids.size()),
             .crc = CrcOf(key, ids)};
    file->end_bytes += bytes;
    num_bytes_ += bytes;
  }
  if (WriteAt(file->fd.get(), ids.data(), ids.size_bytes(), static_cast<int64_t>(entry.offset))) {
    WriteAt(file->fd.get(), &entry, sizeof(entry), key.index * kEntryBytes);
  }
}

void KeptPrompts::Retain(const std::set<std::string>& job_uids) {
  MutexLock lock(mutex_);
  for (auto file = files_.begin(); file != files_.end();) {
    if (job_uids.count(file->first) != 0) {
      ++file;
      continue;
    }
    ::unlink(PathOf(file->first).c_str());
    num_bytes_ -= file->second->end_bytes;
    is_full_ = false;
    file = files_.erase(file);
  }
}

int64_t KeptPrompts::num_bytes() {
  MutexLock lock(mutex_);
  return num_bytes_;
}

}  // namespace nightshift
