#include "server/scheduling/kept_prompts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <limits>
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
  uint32_t tokens = 0;
  uint32_t ids_crc = 0;
  uint32_t max_output_tokens = 0;
  std::array<uint32_t, kShapePages.size()> pages = {};
  uint32_t crc = 0;  // of what is before it
};
constexpr int64_t kEntryBytes = sizeof(Entry);
static_assert(kEntryBytes == 64 && offsetof(Entry, crc) == 60);
// Growth between looks at the disk.
constexpr int64_t kLookBytes = 16 << 20;

uint32_t CrcOf(const PromptKey& key, const Entry& entry) {
  const std::array<uint64_t, 2> head = {key.text_digest, static_cast<uint64_t>(key.index)};
  return Crc32c(std::as_bytes(std::span(&entry, 1)).first(offsetof(Entry, crc)),
                Crc32c(std::as_bytes(std::span(head))));
}

Entry MakeEntry(const PromptShape& shape) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  return {.tokens = static_cast<uint32_t>(std::clamp<int64_t>(shape.prompt_tokens, 0, kMost)),
          .max_output_tokens =
              static_cast<uint32_t>(std::clamp<int64_t>(shape.max_output_tokens, 0, kMost)),
          .pages = shape.pages};
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
      CrcOf(key, entry) != entry.crc || entry.offset == 0 ||
      entry.offset > static_cast<uint64_t>(end_bytes) ||
      entry.tokens > (static_cast<uint64_t>(end_bytes) - entry.offset) / sizeof(int32_t)) {
    return std::nullopt;
  }
  std::vector<int32_t> ids(entry.tokens);
  if (!ReadAt(file->fd.get(), ids.data(), ids.size() * sizeof(int32_t),
              static_cast<int64_t>(entry.offset)) ||
      Crc32c(std::as_bytes(std::span(ids))) != entry.ids_crc) {
    return std::nullopt;
  }
  return ids;
}

std::vector<std::optional<PromptShape>> KeptPrompts::FindShapes(const PromptKey& key,
                                                                int64_t count) {
  std::vector<std::optional<PromptShape>> shapes(static_cast<size_t>(count));
  FilePtr file;
  {
    MutexLock lock(mutex_);
    file = Open(key, /*create=*/false);
  }
  std::vector<Entry> entries(static_cast<size_t>(count));
  if (file == nullptr || !ReadAt(file->fd.get(), entries.data(), entries.size() * sizeof(Entry),
                                 key.index * kEntryBytes)) {
    return shapes;
  }
  PromptKey of_row = key;
  for (size_t i = 0; i < entries.size(); ++i, ++of_row.index) {
    const Entry& entry = entries[i];
    if (entry.tokens > 0 && CrcOf(of_row, entry) == entry.crc) {
      shapes[i] = {.prompt_tokens = entry.tokens,
                   .max_output_tokens = entry.max_output_tokens,
                   .pages = entry.pages};
    }
  }
  return shapes;
}

KeptPrompts::FilePtr KeptPrompts::OpenToKeep(const PromptKey& key) {
  const bool is_new = files_.find(key.job_uid) == files_.end();
  if (options_.max_bytes == 0 || (is_new && !HasRoom(key.job_rows * kEntryBytes))) {
    return nullptr;
  }
  return Open(key, /*create=*/true);
}

void KeptPrompts::Keep(const PromptKey& key, std::span<const int32_t> ids,
                       int64_t max_output_tokens) {
  if (options_.max_bytes == 0) {
    return;
  }
  const auto bytes = static_cast<int64_t>(ids.size_bytes());
  Entry entry = MakeEntry(MakePromptShape(ids, max_output_tokens));
  FilePtr file;
  {
    MutexLock lock(mutex_);
    file = OpenToKeep(key);
    if (file == nullptr) {
      return;
    }
    if (HasRoom(bytes)) {
      entry.offset = static_cast<uint64_t>(file->end_bytes);
      entry.ids_crc = Crc32c(std::as_bytes(ids));
      file->end_bytes += bytes;
      num_bytes_ += bytes;
    }
  }
  if (entry.offset > 0 && !WriteAt(file->fd.get(), ids.data(), ids.size_bytes(),
                                   static_cast<int64_t>(entry.offset))) {
    entry.offset = 0;
  }
  entry.crc = CrcOf(key, entry);
  WriteAt(file->fd.get(), &entry, sizeof(entry), key.index * kEntryBytes);
}

void KeptPrompts::KeepShape(const PromptKey& key, const PromptShape& shape) {
  FilePtr file;
  {
    MutexLock lock(mutex_);
    file = OpenToKeep(key);
  }
  if (file != nullptr) {
    Entry entry = MakeEntry(shape);
    entry.crc = CrcOf(key, entry);
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
