// A file without a name, for what does not belong in memory: it is gone with its descriptor.
#pragma once

#include "absl/status/statusor.h"

#include "kernels/base/file_descriptor.h"

namespace nightshift {

// In TMPDIR, else in /var/tmp. Errors: as ErrnoStatus.
absl::StatusOr<FileDescriptor> OpenUnnamedFile();

}  // namespace nightshift
