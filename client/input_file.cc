#include "client/input_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "client/unnamed_file.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

EVP_MD_CTX* AsContext(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

// For any reason: an input that cannot be read is an invalid input.
absl::Status Unreadable(absl::string_view attempted, absl::string_view name) {
  return absl::InvalidArgumentError(ErrnoStatus(attempted, name).message());
}

absl::StatusOr<FileDescriptor> CopyToUnnamedFile(int source, const std::string& name) {
  ASSIGN_OR_RETURN(FileDescriptor target, OpenUnnamedFile());
  std::string buffer(kReadBytes, '\0');
  while (true) {
    const ssize_t count = read(source, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return Unreadable("read", name);
    }
    if (count == 0) {
      return target;
    }
    RETURN_IF_ERROR(WriteAll(target.get(),
                             absl::string_view(buffer.data(), static_cast<size_t>(count)),
                             "temporary copy of the input (TMPDIR says where)"));
  }
}

}  // namespace

ContentHash::ContentHash() : context_(EVP_MD_CTX_new()) {
  CHECK(EVP_DigestInit_ex(AsContext(context_), EVP_sha256(), nullptr) == 1);
}

ContentHash::~ContentHash() {
  EVP_MD_CTX_free(AsContext(context_));
}

void ContentHash::Update(absl::string_view bytes) {
  CHECK(EVP_DigestUpdate(AsContext(context_), bytes.data(), bytes.size()) == 1);
}

std::string ContentHash::Finish() {
  std::string digest(32, '\0');
  auto* target = reinterpret_cast<unsigned char*>(digest.data());
  CHECK(EVP_DigestFinal_ex(AsContext(context_), target, nullptr) == 1);
  return digest;
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  const std::string name = path == "-" ? "standard input" : path;
  FileDescriptor source(path == "-" ? dup(STDIN_FILENO) : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info = {};
  if (source.get() < 0 || fstat(source.get(), &info) != 0) {
    return Unreadable("open", name);
  }
  if (S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("open ", name, ": is a folder, not a file"));
  }
  if (!S_ISREG(info.st_mode)) {
    ASSIGN_OR_RETURN(source, CopyToUnnamedFile(source.get(), name));
  }
  InputFile input(std::move(source), name);
  RETURN_IF_ERROR(input.Measure());
  return input;
}

absl::StatusOr<InputFile> InputFile::Of(FileDescriptor file, const std::string& name) {
  InputFile input(std::move(file), name);
  RETURN_IF_ERROR(input.Measure());
  return input;
}

absl::Status InputFile::Measure() {
  ContentHash sum;
  while (true) {
    ASSIGN_OR_RETURN(const std::string bytes, ReadAt(size_bytes_, kReadBytes));
    if (bytes.empty()) {
      break;
    }
    sum.Update(bytes);
    size_bytes_ += static_cast<int64_t>(bytes.size());
  }
  if (size_bytes_ == 0) {
    return absl::InvalidArgumentError(absl::StrCat("read ", name_, ": is empty"));
  }
  sha256_ = sum.Finish();
  return absl::OkStatus();
}

absl::StatusOr<std::string> InputFile::ReadAt(int64_t offset, int64_t max_bytes) const {
  std::string bytes(static_cast<size_t>(max_bytes), '\0');
  ssize_t count = -1;
  do {
    count = pread(file_.get(), bytes.data(), bytes.size(), offset);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    return Unreadable("read", name_);
  }
  bytes.resize(static_cast<size_t>(count));
  return bytes;
}

bool InputFile::IsSameFileAs(const std::string& path) const {
  struct stat ours = {};
  struct stat theirs = {};
  return fstat(file_.get(), &ours) == 0 && stat(path.c_str(), &theirs) == 0 &&
         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

}  // namespace nightshift
