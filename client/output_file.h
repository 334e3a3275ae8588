// OutputFile: the result file of a run while it grows. Lines go to OUTPUT.part; OUTPUT.part.state
// says how many of its bytes are certain and up to which result; OUTPUT appears, whole, at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "kernels/base/file_descriptor.h"

namespace nightshift {

// What OUTPUT.part.state records. The first `bytes` bytes of OUTPUT.part are the lines of the
// results after first_after_seq up to last_seq of the job; what follows them is torn or not yet
// certain.
struct OutputState {
  std::string request_id;  // empty when the file was not made by `run`
  std::string job_name;
  std::string job_uid;
  std::string line_options;  // how results become lines; lines of two kinds never mix in one file
  int64_t first_after_seq = 0;
  int64_t last_seq = 0;
  int64_t bytes = 0;
};

// Each result is in OUTPUT exactly once, whatever is killed when: a rerun cuts OUTPUT.part back to
// what the state vouches for and continues after its last_seq. Exclusive: a second process that
// opens the same OUTPUT is refused. One thread.
class OutputFile {
 public:
  // Locks OUTPUT.part and reads the state of an earlier run, if there is one.
  // Errors: FAILED_PRECONDITION when another process is writing it; as ErrnoStatus.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Open(const std::string& path);
  // Leaves OUTPUT.part and its state for a rerun, unless they hold nothing.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Of an earlier, unfinished run; nothing when there was none or its files do not fit together.
  const std::optional<OutputState>& earlier() const { return earlier_; }

  // Goes on after the earlier run when it fetched the same results of the same job, else starts
  // with an empty file. Returns the seq to ask results after.
  absl::StatusOr<int64_t> Begin(const OutputState& wanted);

  // Appends lines of results up to `last_seq`. Makes a checkpoint when the last one is a second
  // ago.
  absl::Status Append(absl::string_view lines, int64_t last_seq);
  // Makes everything so far certain: sync of the lines, then the state.
  absl::Status Checkpoint();
  // Syncs, renames OUTPUT.part to OUTPUT and removes the state.
  absl::Status Finish();

 private:
  explicit OutputFile(std::string path);
  absl::Status Lock();
  void ReadEarlier();
  absl::Status StoreState();

  const std::string path_;
  const std::string part_path_;
  const std::string state_path_;
  FileDescriptor part_;
  std::optional<OutputState> earlier_;
  OutputState state_;
  absl::Time last_checkpoint_ = absl::InfinitePast();
  bool finished_ = false;
};

}  // namespace nightshift
