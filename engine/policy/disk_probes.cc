#include "engine/policy/disk_probes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int kDepth = 32;
constexpr int64_t kSizes[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr int kDepths[] = {1, 2, 4, 8, 16, 32};
// Of one call: so much that filling and draining the queue do not count, nor take long.
constexpr int64_t kCallBytes = int64_t{64} << 20;
constexpr int64_t kMostTransfers = 1024;

// As shards of weights are, and pages are not.
bool IsVerified(int64_t bytes) {
  return bytes >= kPieceBytes;
}

// As many as the lane's pieces allow, two at least: one is on its way while the other is used.
int DepthOf(int64_t bytes) {
  return static_cast<int>(std::clamp<int64_t>(kDepth * kPieceBytes / bytes, 2, kDepth));
}

int64_t CountOf(int64_t bytes, int depth) {
  return std::clamp<int64_t>(kCallBytes / bytes, 2 * depth, kMostTransfers);
}

// Some disks store zeros, and what repeats within some KiB, faster than weights.
void FillWithNoise(std::span<std::byte> memory) {
  std::mt19937_64 random(1);
  for (size_t i = 0; i + sizeof(uint64_t) <= memory.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(memory.data() + i, &word, sizeof(word));
  }
}

const char* NameOf(TransferKind kind) {
  return kind == TransferKind::kRead ? "read" : "write";
}

}  // namespace

absl::StatusOr<int64_t> FreeDiskBytes(const std::string& folder) {
  struct stat information {};
  if (stat(folder.c_str(), &information) != 0) {
    return absl::NotFoundError(absl::StrCat("measure the disk of ", folder, ": ",
                                            std::strerror(errno),
                                            "; name a folder on the disk "
                                            "that packs lie on"));
  }
  if (!S_ISDIR(information.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("measure the disk of ", folder, ": it is not a folder"));
  }
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("measure the disk of ", folder, ": ", std::strerror(errno)));
  }
  return static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
}

absl::StatusOr<std::unique_ptr<DiskProbes>> DiskProbes::Create(const std::string& folder,
                                                               int64_t bytes, double most_seconds,
                                                               std::span<std::byte> memory,
                                                               const Clock& clock) {
  ASSIGN_OR_RETURN(const int64_t free_bytes, FreeDiskBytes(folder));
  if (free_bytes / 2 < bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "measure the disk of ", folder, ": a file of ", bytes, " bytes needs twice as much free, ",
        free_bytes, " are; free disk space or name a folder on another disk"));
  }
  ASSIGN_OR_RETURN(DiskFile file, DiskFile::CreateSpill(folder, bytes));
  std::unique_ptr<DiskProbes> probes(new DiskProbes(std::move(file), memory));
  DiskQueueOptions options;
  options.memory = {memory};
  options.fds = {probes->file_.fd()};
  ASSIGN_OR_RETURN(probes->queue_, DiskQueue::Create(options));
  FillWithNoise(probes->content_);
  for (const int64_t size : kSizes) {
    for (int64_t first = 0; IsVerified(size) && first < kContent; first += size) {
      probes->checksums_[{size, first}] =
          Xxh3(probes->content_.subspan(static_cast<size_t>(first), static_cast<size_t>(size)));
    }
  }
  // Reserved blocks that were never written read as zeros, without a disk.
  probes->file_bytes_ = bytes;
  const int64_t start_us = clock.MonotonicMicros();
  const int64_t total = bytes / kPieceBytes;
  int64_t written = 0;
  while (written < total) {
    const double seconds = static_cast<double>(clock.MonotonicMicros() - start_us) * 1e-6;
    if (seconds > most_seconds && written * kPieceBytes >= kLeastFile) {
      break;
    }
    const int64_t count = std::min<int64_t>(kLeastFile / kPieceBytes, total - written);
    RETURN_IF_ERROR(probes->Move(TransferKind::kWrite, kPieceBytes, kDepth, count).status());
    written += count;
  }
  probes->file_bytes_ = written * kPieceBytes;
  const double seconds = static_cast<double>(clock.MonotonicMicros() - start_us) * 1e-6;
  probes->stream_bytes_per_s_ = static_cast<double>(probes->file_bytes_) / std::max(seconds, 1e-6);
  // As far from what is read as can be.
  probes->next_write_ = probes->file_bytes_ / kPieceBytes / 2 * kPieceBytes;
  return probes;
}

int64_t DiskProbes::NextStretch(TransferKind kind, int64_t bytes) {
  int64_t& next = kind == TransferKind::kRead ? next_read_ : next_write_;
  const int64_t first = next + bytes > file_bytes_ ? 0 : next;
  next = first + bytes;
  return first;
}

Transfer DiskProbes::TransferAt(TransferKind kind, int64_t offset, int64_t bytes, size_t slot,
                                Fence* fence) {
  const auto size = static_cast<size_t>(bytes);
  Transfer transfer = {
      .kind = kind, .file = &file_, .offset = offset, .memory = {}, .fence = fence};
  if (kind == TransferKind::kWrite) {
    transfer.memory = content_.subspan(static_cast<size_t>(offset % kContent), size);
    return transfer;
  }
  transfer.memory = targets_.subspan(slot, size);
  if (IsVerified(bytes)) {
    transfer.checksum = {.bytes = bytes, .xxh3 = checksums_.at({bytes, offset % kContent})};
  }
  return transfer;
}

absl::StatusOr<double> DiskProbes::Move(TransferKind kind, int64_t bytes, int depth,
                                        int64_t count) {
  // Spread over so much at least, a prime number of places further each time.
  constexpr int64_t kSpread = DiskProbes::kLeastFile;
  constexpr int64_t kStride = 1'000'003;
  const bool is_spread = !IsVerified(bytes);
  const int64_t places = is_spread ? std::max(count, kSpread / bytes) : count;
  const int64_t stretch = NextStretch(kind, places * bytes);
  std::vector<Fence> fences(static_cast<size_t>(count));
  absl::Status status;
  for (int64_t i = 0; i < count + depth; ++i) {
    if (i >= depth) {
      status.Update(fences[static_cast<size_t>(i - depth)].Wait());
    }
    if (i < count) {
      const int64_t place = is_spread ? i * kStride % places : i;
      queue_->Submit(TransferAt(kind, stretch + place * bytes, bytes,
                                static_cast<size_t>(i % depth * bytes),
                                &fences[static_cast<size_t>(i)]));
    }
  }
  RETURN_IF_ERROR(status);
  return static_cast<double>(count * bytes);
}

void DiskProbes::AddSize(TransferKind kind, int64_t bytes, RateCurve& curve,
                         std::vector<Measurement>& measurements) {
  const int depth = DepthOf(bytes);
  measurements.push_back(
      {.name =
           absl::StrCat("disk ", NameOf(kind), " of ", bytes, " bytes, ", depth, " on their way"),
       .work = [this, kind, bytes,
                depth] { return Move(kind, bytes, depth, CountOf(bytes, depth)); },
       .keep =
           [this, kind, &curve, bytes](double rate, double spread) {
             const double most = kind == TransferKind::kWrite ? stream_bytes_per_s_ : rate;
             curve.points.push_back({static_cast<double>(bytes), std::min(rate, most), spread});
           }});
}

void DiskProbes::AddTo(HardwareProfile& profile, std::vector<Measurement>& measurements) {
  for (const int64_t bytes : kSizes) {
    AddSize(TransferKind::kRead, bytes, profile.disk_read, measurements);
  }
  for (const int64_t bytes : kSizes) {
    AddSize(TransferKind::kWrite, bytes, profile.disk_write, measurements);
  }
  for (const int depth : kDepths) {
    measurements.push_back(
        {.name = absl::StrCat("disk read of ", kPieceBytes, " bytes, ", depth, " on their way"),
         .work = [this,
                  depth] { return Move(TransferKind::kRead, kPieceBytes, depth, 2 * kDepth); },
         .keep =
             [&profile, depth](double rate, double spread) {
               profile.disk_read_by_depth.points.push_back(
                   {static_cast<double>(depth), rate, spread});
             }});
  }
}

}  // namespace nightshift
