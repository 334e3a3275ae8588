#include "server/store/sqlite_log_check.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

constexpr size_t kHeaderBytes = 32;
constexpr size_t kFrameHeaderBytes = 24;
constexpr uint32_t kMagic = 0x377F0682;  // its lowest bit: checksums of big-endian words

uint32_t BigEndian(const unsigned char* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24U | static_cast<uint32_t>(bytes[1]) << 16U |
         static_cast<uint32_t>(bytes[2]) << 8U | bytes[3];
}

uint32_t LittleEndian(const unsigned char* bytes) {
  return static_cast<uint32_t>(bytes[3]) << 24U | static_cast<uint32_t>(bytes[2]) << 16U |
         static_cast<uint32_t>(bytes[1]) << 8U | bytes[0];
}

// The running checksum of section 4.2: over pairs of words.
class Checksum {
 public:
  // Goes on from one that is stored.
  explicit Checksum(const unsigned char* stored)
      : first_(BigEndian(stored)), second_(BigEndian(stored + 4)) {}
  Checksum() = default;

  void Add(std::span<const unsigned char> bytes, bool big_endian) {
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const unsigned char* const pair = &bytes[i];
      first_ += (big_endian ? BigEndian(pair) : LittleEndian(pair)) + second_;
      second_ += (big_endian ? BigEndian(pair + 4) : LittleEndian(pair + 4)) + first_;
    }
  }
  bool Is(const unsigned char* stored) const {
    return first_ == BigEndian(stored) && second_ == BigEndian(stored + 4);
  }

 private:
  uint32_t first_ = 0;
  uint32_t second_ = 0;
};

struct LogHeader {
  std::array<unsigned char, kHeaderBytes> bytes;

  const unsigned char* salts() const { return &bytes[16]; }
  const unsigned char* checksum() const { return &bytes[24]; }
  uint32_t page_bytes() const { return BigEndian(&bytes[8]); }
  bool big_endian() const { return (BigEndian(bytes.data()) & 1U) != 0; }
  bool IsWhole() const {
    Checksum sum;
    sum.Add(std::span(bytes).first(24), big_endian());
    return (BigEndian(bytes.data()) & ~1U) == kMagic && sum.Is(checksum());
  }
};

// Frames one after the other, each checked from the checksum that the one before it has stored: so
// a frame is known to be whole also behind a broken one.
class LogFrames {
 public:
  LogFrames(std::ifstream& file, const LogHeader& header)
      : file_(file), header_(header), frame_(kFrameHeaderBytes + header.page_bytes()) {
    std::memcpy(before_.data(), header.checksum(), before_.size());
  }

  bool Next() {
    if (!file_.read(reinterpret_cast<char*>(frame_.data()),
                    static_cast<std::streamsize>(frame_.size()))) {
      return false;
    }
    Checksum sum(before_.data());
    sum.Add(std::span(frame_).first(8), header_.big_endian());
    sum.Add(std::span(frame_).subspan(kFrameHeaderBytes), header_.big_endian());
    has_salts_ = std::memcmp(&frame_[8], header_.salts(), 8) == 0;
    is_whole_ = has_salts_ && sum.Is(&frame_[16]);
    std::memcpy(before_.data(), &frame_[16], before_.size());
    return true;
  }
  bool is_whole() const { return is_whole_; }
  // Also of a frame that is not whole, but not of one that a log before this has left.
  bool is_commit() const { return has_salts_ && BigEndian(&frame_[4]) != 0; }

 private:
  std::ifstream& file_;
  const LogHeader& header_;
  std::vector<unsigned char> frame_;
  std::array<unsigned char, 8> before_;
  bool is_whole_ = false;
  bool has_salts_ = false;
};

absl::Status Damage(const std::string& path, int64_t offset, const std::string& what) {
  return absl::DataLossError(absl::StrCat("its log ", path, " has ", what, " at byte ", offset,
                                          ", before whole commits"));
}

// Of a log whose header is broken: a crash while it began anew leaves frames of the time before,
// which have other salts and are in the database already.
absl::Status CheckBehindBrokenHeader(const std::string& path, std::ifstream& file,
                                     const LogHeader& header) {
  std::array<unsigned char, kFrameHeaderBytes> frame{};
  if (!file.read(reinterpret_cast<char*>(frame.data()), frame.size())) {
    return absl::OkStatus();
  }
  const bool same_first = std::memcmp(&frame[8], header.salts(), 4) == 0;
  const bool same_second = std::memcmp(&frame[12], header.salts() + 4, 4) == 0;
  // The first salt counts up by one when a log begins anew, the second is drawn.
  const bool began_anew = BigEndian(header.salts()) == BigEndian(&frame[8]) + 1;
  const bool is_damage = (same_first || same_second) && !began_anew;
  return is_damage ? Damage(path, 0, "a broken header") : absl::OkStatus();
}

}  // namespace

absl::Status CheckLog(const std::string& database_path) {
  const std::string path = database_path + "-wal";
  std::ifstream file(path, std::ios::binary);
  LogHeader header{};
  if (!file || !file.read(reinterpret_cast<char*>(header.bytes.data()), kHeaderBytes)) {
    return absl::OkStatus();  // none, or nothing in it yet
  }
  if (!header.IsWhole()) {
    return CheckBehindBrokenHeader(path, file, header);
  }
  constexpr uint32_t kMostPageBytes = 65536;
  if (header.page_bytes() > kMostPageBytes) {
    return absl::OkStatus();  // SQLite takes no such log
  }
  LogFrames frames(file, header);
  int64_t offset = kHeaderBytes;
  int64_t broken_at = 0;
  bool commit_behind = false;  // the broken frame, or one behind it, ends a commit
  while (frames.Next()) {
    if (!frames.is_whole() && broken_at == 0) {
      broken_at = offset;
      commit_behind = frames.is_commit();
    } else if (broken_at != 0 && frames.is_whole()) {
      if (commit_behind) {
        return Damage(path, broken_at, "a broken frame");
      }
      commit_behind = frames.is_commit();
    }
    offset += static_cast<int64_t>(kFrameHeaderBytes) + header.page_bytes();
  }
  return absl::OkStatus();
}

}  // namespace nightshift
