#include "server/rpc/kept_uploads.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "kernels/base/log.h"
#include "server/input/rpc_error.h"
#include "server/security/identifiers.h"
#include "server/store/state_directory.h"

namespace nightshift {
namespace {

constexpr int64_t kRetryDelayMs = 1000;
constexpr int64_t kMicrosPerSecond = 1'000'000;

}  // namespace

KeptUploads::KeptUploads(KeptUploadsOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {
  FindEarlier();
  RemoveExpired();
}

void KeptUploads::FindEarlier() {
  std::error_code error;
  MutexLock lock(mutex_);
  for (const auto& entry : std::filesystem::directory_iterator(options_.directory, error)) {
    const std::string file = entry.path().filename().string();
    absl::string_view name = file;
    if (!absl::ConsumeSuffix(&name, kKeptUploadSuffix)) {
      continue;
    }
    const size_t dot = name.find('.');
    int64_t bytes = 0;
    struct stat found = {};
    const bool readable = dot != absl::string_view::npos && IsUuid(name.substr(0, dot)) &&
                          absl::SimpleAtoi(name.substr(dot + 1), &bytes) && bytes > 0 &&
                          ::stat(entry.path().c_str(), &found) == 0 && found.st_size >= bytes;
    const std::string request_id(name.substr(0, dot));
    // Of two files of one upload, which no crash should leave, the first wins.
    if (!readable || uploads_.count(request_id) != 0) {
      ::unlink(entry.path().c_str());
      continue;
    }
    uploads_[request_id] = {.durable_bytes = bytes,
                            .used_us = int64_t{found.st_mtim.tv_sec} * kMicrosPerSecond};
  }
  if (!uploads_.empty()) {
    LOG(INFO) << "uploads_kept count=" << uploads_.size();
  }
}

absl::StatusOr<std::unique_ptr<Upload>> KeptUploads::Begin(const std::string& request_id,
                                                           int64_t resume_offset) {
  {
    MutexLock lock(mutex_);
    const auto found = uploads_.find(request_id);
    if (found != uploads_.end() && found->second.taken) {
      return WithRetryDelay(
          MakeError(absl::StatusCode::kAborted, reason::kRequestInProgress,
                    absl::StrCat("another call sends the upload of request_id ", request_id),
                    {{"request_id", request_id}}),
          kRetryDelayMs);
    }
    const int64_t kept = found == uploads_.end() ? 0 : found->second.durable_bytes;
    if (resume_offset != 0 && resume_offset != kept) {
      return OffsetMismatch("resumption", resume_offset, kept);
    }
    if (resume_offset == 0) {
      RemoveLocked(request_id);
    }
    uploads_[request_id] = {.durable_bytes = resume_offset,
                            .used_us = clock_.WallMicros(),
                            .taken = true};
  }
  absl::StatusOr<std::unique_ptr<Upload>> upload =
      resume_offset == 0 ? Upload::CreateKept(options_.directory, request_id)
                         : Upload::Reopen(options_.directory, request_id, resume_offset);
  if (!upload.ok()) {
    MutexLock lock(mutex_);
    RemoveLocked(request_id);
  }
  return upload;
}

int64_t KeptUploads::Return(const std::string& request_id, std::unique_ptr<Upload> upload) {
  if (upload->has_moved()) {
    Forget(request_id, std::move(upload));
    return 0;
  }
  if (const absl::Status synced = upload->Sync(); !synced.ok()) {
    LOG(WARNING) << "upload_not_synced error=\"" << synced.message() << "\"";
  }
  const int64_t durable_bytes = upload->durable_bytes();
  MutexLock lock(mutex_);
  uploads_[request_id] = {.durable_bytes = durable_bytes, .used_us = clock_.WallMicros()};
  if (durable_bytes == 0) {
    upload->Discard();
    uploads_.erase(request_id);
  }
  MakeRoomLocked();
  return durable_bytes;
}

void KeptUploads::Forget(const std::string& request_id, std::unique_ptr<Upload> upload) {
  upload->Discard();
  MutexLock lock(mutex_);
  uploads_.erase(request_id);
}

void KeptUploads::Advance(const std::string& request_id, int64_t durable_bytes) {
  MutexLock lock(mutex_);
  Kept& kept = uploads_[request_id];
  kept.durable_bytes = durable_bytes;
  kept.used_us = clock_.WallMicros();
}

std::optional<UploadPosition> KeptUploads::Find(const std::string& request_id) {
  MutexLock lock(mutex_);
  const auto found = uploads_.find(request_id);
  if (found == uploads_.end()) {
    return std::nullopt;
  }
  return UploadPosition{.durable_bytes = found->second.durable_bytes,
                        .expire_time_us = found->second.used_us + options_.keep_us};
}

void KeptUploads::RemoveExpired() {
  MutexLock lock(mutex_);
  const int64_t oldest_us = clock_.WallMicros() - options_.keep_us;
  std::vector<std::string> expired;
  for (const auto& [request_id, kept] : uploads_) {
    if (!kept.taken && kept.used_us < oldest_us) {
      expired.push_back(request_id);
    }
  }
  for (const std::string& request_id : expired) {
    LOG(INFO) << "upload_expired bytes=" << uploads_[request_id].durable_bytes;
    RemoveLocked(request_id);
  }
  MakeRoomLocked();
}

void KeptUploads::RemoveLocked(const std::string& request_id) {
  const auto found = uploads_.find(request_id);
  if (found != uploads_.end()) {
    ::unlink(KeptUploadPath(options_.directory, request_id, found->second.durable_bytes).c_str());
    uploads_.erase(found);
  }
}

void KeptUploads::MakeRoomLocked() {
  for (;;) {
    int64_t count = 0;
    int64_t bytes = 0;
    std::string oldest;
    for (const auto& [request_id, kept] : uploads_) {
      if (kept.taken) {
        continue;
      }
      ++count;
      bytes += kept.durable_bytes;
      if (oldest.empty() || kept.used_us < uploads_[oldest].used_us) {
        oldest = request_id;
      }
    }
    if (count <= options_.max_idle_uploads && bytes <= options_.max_idle_bytes) {
      return;
    }
    LOG(WARNING) << "upload_dropped idle_uploads=" << count << " idle_bytes=" << bytes;
    RemoveLocked(oldest);
  }
}

}  // namespace nightshift
