// MachineFacts: what a hardware profile's rates depend on, so that a profile is known to be of
// another machine, or of this one before it was changed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/io/disk_queue.h"

namespace nightshift {

struct MachineFacts {
  std::string cpu;           // the processor's name
  std::string device;        // Device::description: cores in use, instruction set, links; empty:
                             // not looked at
  int64_t memory_bytes = 0;  // limit of this process: the machine's, or its cgroup's
  std::string disk;          // of a folder: file system and where it is from
  DiskBackend disk_backend = DiskBackend::kIoUring;
};

// Asks the kernel. Errors: NOT_FOUND without the folder; as DiskQueue::Create.
absl::StatusOr<MachineFacts> ThisMachine(const std::string& device_description,
                                         int64_t memory_limit_bytes, const std::string& folder);

// One line a fact, "name: value".
std::string Fingerprint(const MachineFacts& facts);

// What differs, in words: "memory was 4.0 GiB, is 2.0 GiB". Empty when all is the same.
std::string FingerprintDifference(absl::string_view before, absl::string_view now);

// Of a /proc/self/mountinfo: type and source of the file system that holds an absolute path
// without links, as "ext4 /dev/vda1"; "unknown" without an entry.
std::string FileSystemOf(absl::string_view mountinfo, absl::string_view path);

}  // namespace nightshift
