// KeptPrompts: the token ids of prompts that were checked and wait, on disk, so that no row is
// tokenized twice, and their shapes, by which rows are ordered. It only saves work: what is missing,
// damaged or of another pack is not found, is tokenized again, and its length is guessed.
//
// One file a job, DIRECTORY/UID: an entry of 64 bytes for each row of the job, in order,
//
//   u64 offset of the ids (0: they are not here), u32 tokens of the prompt, u32 CRC32C of the ids,
//   u32 most tokens of the output, 10 x u32 PromptShape::pages, u32 CRC32C of (pack's digest, index,
//   the 60 bytes before)
//
// then the ids, 4 bytes each, as they came. Numbers are little-endian. Nothing is synced: a row
// whose bytes a crash took fails its checksum.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/file_descriptor.h"
#include "kernels/base/mutex.h"
#include "server/scheduling/row_order.h"

namespace nightshift {

struct KeptPromptsOptions {
  std::string directory;  // made when it is missing
  int64_t max_bytes = 0;  // of all files together; 0: nothing is kept
  // As ReadDiskRoom takes it: nothing is kept while the disk has less free.
  int64_t disk_reserve_bytes = 0;
};

// Whose ids.
struct PromptKey {
  std::string job_uid;   // a file name; empty: none is kept
  int64_t job_rows = 0;  // of the whole job
  int64_t index = 0;
  uint64_t text_digest = 0;  // of the pack whose tokenizer made them
};

// Thread-safe.
class KeptPrompts {
 public:
  explicit KeptPrompts(KeptPromptsOptions options);

  std::optional<std::vector<int32_t>> Find(const PromptKey& key);
  // Of `count` rows from that of `key` on; nothing for those that are not known.
  std::vector<std::optional<PromptShape>> FindShapes(const PromptKey& key, int64_t count);
  // Keeps the ids and their shape, as far as there is room.
  void Keep(const PromptKey& key, std::span<const int32_t> ids, int64_t max_output_tokens);
  // The shape alone, of ids that need no keeping.
  void KeepShape(const PromptKey& key, const PromptShape& shape);
  // Removes the files of all other jobs.
  void Retain(const std::set<std::string>& job_uids);

  // Of all files.
  int64_t num_bytes();

 private:
  struct File {
    FileDescriptor fd;      // none until it is used
    int64_t end_bytes = 0;  // where the next ids go
  };
  // Shared: a file that is removed may be in use.
  using FilePtr = std::shared_ptr<File>;

  FilePtr Open(const PromptKey& key, bool create) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The file to keep in, made if there is room for it.
  FilePtr OpenToKeep(const PromptKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom(int64_t more_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string PathOf(const std::string& job_uid) const;

  const KeptPromptsOptions options_;
  Mutex mutex_;
  std::map<std::string, FilePtr> files_ ABSL_GUARDED_BY(mutex_);  // by job; also those not open
  int64_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  // Until so many bytes the disk has room, as it was looked at last.
  int64_t looked_until_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_full_ ABSL_GUARDED_BY(mutex_) = false;  // since the last file was removed, and logged
};

}  // namespace nightshift
