// PartialFolder: a folder that is filled aside and appears under its name in one step, or not at
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// True for the name of a folder that is being filled, or was left by a process that died.
bool IsPartialFolder(absl::string_view path);

// OK when the file system of `path` (which may not exist; its parent must) has room for `bytes`.
// Errors: RESOURCE_EXHAUSTED with the numbers.
absl::Status CheckFreeDisk(const std::string& path, int64_t bytes);

// Fills TARGET.partial-PID beside TARGET. The folder is locked (flock) while its owner lives, which
// is how leftovers of dead owners are told from the work of live ones. Single-threaded.
class PartialFolder {
 public:
  // Removes leftovers of earlier attempts at the same target, then makes the folder, mode 0700.
  // Errors: ALREADY_EXISTS (target is there), FAILED_PRECONDITION (no access), NOT_FOUND
  // (no parent).
  static absl::StatusOr<std::unique_ptr<PartialFolder>> Create(const std::string& target);

  PartialFolder(std::string target, std::string path, int fd);
  // Removes the folder unless Publish went through.
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  // Where files go until Publish.
  const std::string& path() const { return path_; }
  // Descriptor of the folder, for openat.
  int fd() const { return fd_; }
  // Syncs the folder, renames it to the target and syncs the parent. Files must be synced before.
  // Errors: ALREADY_EXISTS, RESOURCE_EXHAUSTED, FAILED_PRECONDITION with the system's reason.
  absl::Status Publish();

 private:
  std::string target_;
  std::string path_;
  int fd_ = -1;
  bool published_ = false;
};

}  // namespace nightshift
