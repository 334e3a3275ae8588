#include "client/unnamed_file.h"

#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace nightshift {

absl::StatusOr<FileDescriptor> OpenUnnamedFile() {
  const char* folder = std::getenv("TMPDIR");
  std::string path = absl::StrCat(folder != nullptr && *folder != '\0' ? folder : "/var/tmp",
                                  "/nightshift-XXXXXX");
  FileDescriptor file(mkostemp(path.data(), O_CLOEXEC));
  if (file.get() < 0) {
    return ErrnoStatus("make temporary file", path);
  }
  unlink(path.c_str());
  return file;
}

}  // namespace nightshift
