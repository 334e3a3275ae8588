#include "client/result_spool.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "client/unnamed_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kName[] = "temporary file of results (TMPDIR says where)";

}  // namespace

absl::StatusOr<ResultSpool> ResultSpool::Create() {
  ASSIGN_OR_RETURN(FileDescriptor file, OpenUnnamedFile());
  return ResultSpool(std::move(file));
}

absl::Status ResultSpool::Append(const v1::Result& result) {
  const std::string body = result.SerializeAsString();
  const auto length = static_cast<uint32_t>(body.size());
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += body;
  RETURN_IF_ERROR(WriteAll(file_.get(), bytes, kName));
  end_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::StatusOr<v1::Result> ResultSpool::Next() {
  if (next_ == end_) {
    return absl::OutOfRangeError(absl::StrCat("read ", kName, ": it has no more"));
  }
  uint32_t length = 0;
  std::array<char, sizeof(length)> raw;
  RETURN_IF_ERROR(ReadAt(next_, raw.data(), raw.size()));
  std::memcpy(&length, raw.data(), raw.size());
  const int64_t begin = next_ + static_cast<int64_t>(raw.size());
  if (length > end_ - begin) {
    return absl::DataLossError(absl::StrCat("read ", kName, ": a result at ", next_, " has ",
                                            length, " bytes, ", end_ - begin, " are left"));
  }
  std::string body(length, '\0');
  RETURN_IF_ERROR(ReadAt(begin, body.data(), body.size()));
  v1::Result result;
  if (!result.ParseFromString(body)) {
    return absl::DataLossError(absl::StrCat("read ", kName, ": damaged at ", next_));
  }
  next_ = begin + length;
  return result;
}

absl::Status ResultSpool::ReadAt(int64_t offset, char* bytes, size_t count) const {
  while (count > 0) {
    const ssize_t got = pread(file_.get(), bytes, count, offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return ErrnoStatus("read", kName);
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat("read ", kName, ": it ends at ", offset));
    }
    bytes += got;
    count -= static_cast<size_t>(got);
    offset += got;
  }
  return absl::OkStatus();
}

}  // namespace nightshift
