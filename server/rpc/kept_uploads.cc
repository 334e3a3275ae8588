#include "server/rpc/kept_uploads.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "kernels/base/log.h"
#include "server/input/rpc_error.h"
#include "server/security/caller.h"
#include "server/security/digest.h"
#include "server/security/identifiers.h"
#include "server/store/state_directory.h"

namespace nightshift {
namespace {

constexpr int64_t kRetryDelayMs = 1000;
constexpr int64_t kMicrosPerSecond = 1'000'000;

bool IsUploadKey(absl::string_view text) {
  constexpr size_t kDigestDigits = 64;
  return IsUuid(text) || (text.size() == kDigestDigits &&
                          std::all_of(text.begin(), text.end(), absl::ascii_isxdigit));
}

}  // namespace

std::string UploadKey(const std::string& tenant, const std::string& request_id) {
  if (tenant == kDefaultTenant) {
    return request_id;
  }
  Sha256 digest;
  digest.Update(absl::StrCat(tenant, "/", request_id));
  return absl::BytesToHexString(digest.Finish());
}

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
    const bool readable = dot != absl::string_view::npos && IsUploadKey(name.substr(0, dot)) &&
                          absl::SimpleAtoi(name.substr(dot + 1), &bytes) && bytes > 0 &&
                          ::stat(entry.path().c_str(), &found) == 0 && found.st_size >= bytes;
    const std::string key(name.substr(0, dot));
    // Of two files of one upload, which no crash should leave, the first wins.
    if (!readable || uploads_.count(key) != 0) {
      ::unlink(entry.path().c_str());
      continue;
    }
    uploads_[key] = {.durable_bytes = bytes,
                     .used_us = int64_t{found.st_mtim.tv_sec} * kMicrosPerSecond};
  }
  if (!uploads_.empty()) {
    LOG(INFO) << "uploads_kept count=" << uploads_.size();
  }
}

absl::StatusOr<std::unique_ptr<Upload>> KeptUploads::Begin(const std::string& key,
                                                           int64_t resume_offset) {
  {
    MutexLock lock(mutex_);
    const auto found = uploads_.find(key);
    if (found != uploads_.end() && found->second.taken) {
      return WithRetryDelay(MakeError(absl::StatusCode::kAborted, reason::kRequestInProgress,
                                      "another call sends the upload of this request_id"),
                            kRetryDelayMs);
    }
    const int64_t kept = found == uploads_.end() ? 0 : found->second.durable_bytes;
    if (resume_offset != 0 && resume_offset != kept) {
      return OffsetMismatch("resumption", resume_offset, kept);
    }
    if (resume_offset == 0) {
      RemoveLocked(key);
    }
    uploads_[key] = {.durable_bytes = resume_offset, .used_us = clock_.WallMicros(), .taken = true};
  }
  absl::StatusOr<std::unique_ptr<Upload>> upload =
      resume_offset == 0 ? Upload::CreateKept(options_.directory, key)
                         : Upload::Reopen(options_.directory, key, resume_offset);
  if (!upload.ok()) {
    MutexLock lock(mutex_);
    RemoveLocked(key);
  }
  return upload;
}

int64_t KeptUploads::Return(const std::string& key, std::unique_ptr<Upload> upload) {
  if (upload->has_moved()) {
    Forget(key, std::move(upload));
    return 0;
  }
  if (const absl::Status synced = upload->Sync(); !synced.ok()) {
    LOG(WARNING) << "upload_not_synced error=\"" << synced.message() << "\"";
  }
  const int64_t durable_bytes = upload->durable_bytes();
  MutexLock lock(mutex_);
  uploads_[key] = {.durable_bytes = durable_bytes, .used_us = clock_.WallMicros()};
  if (durable_bytes == 0) {
    upload->Discard();
    uploads_.erase(key);
  }
  MakeRoomLocked();
  return durable_bytes;
}

void KeptUploads::Forget(const std::string& key, std::unique_ptr<Upload> upload) {
  upload->Discard();
  MutexLock lock(mutex_);
  uploads_.erase(key);
}

void KeptUploads::Advance(const std::string& key, int64_t durable_bytes) {
  MutexLock lock(mutex_);
  Kept& kept = uploads_[key];
  kept.durable_bytes = durable_bytes;
  kept.used_us = clock_.WallMicros();
}

std::optional<UploadPosition> KeptUploads::Find(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = uploads_.find(key);
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
  for (const auto& [key, kept] : uploads_) {
    if (!kept.taken && kept.used_us < oldest_us) {
      expired.push_back(key);
    }
  }
  for (const std::string& key : expired) {
    LOG(INFO) << "upload_expired bytes=" << uploads_[key].durable_bytes;
    RemoveLocked(key);
  }
  MakeRoomLocked();
}

void KeptUploads::RemoveLocked(const std::string& key) {
  const auto found = uploads_.find(key);
  if (found != uploads_.end()) {
    ::unlink(KeptUploadPath(options_.directory, key, found->second.durable_bytes).c_str());
    uploads_.erase(found);
  }
}

void KeptUploads::MakeRoomLocked() {
  for (;;) {
    int64_t count = 0;
    int64_t bytes = 0;
    std::string oldest;
    for (const auto& [key, kept] : uploads_) {
      if (kept.taken) {
        continue;
      }
      ++count;
      bytes += kept.durable_bytes;
      if (oldest.empty() || kept.used_us < uploads_[oldest].used_us) {
        oldest = key;
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
