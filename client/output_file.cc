#include "client/output_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using nlohmann::json;

constexpr int64_t kMaxStateBytes = 64 << 10;
constexpr int kStateVersion = 1;
// A crash costs at most the results of this long, which are fetched again; two syncs a second cost
// nothing beside generating text.
constexpr absl::Duration kCheckpointInterval = absl::Seconds(1);

std::string StateText(const OutputState& state) {
  const json text = {{"version", kStateVersion},
                     {"request_id", state.request_id},
                     {"job", state.job_name},
                     {"job_uid", state.job_uid},
                     {"line_options", state.line_options},
                     {"first_after_seq", state.first_after_seq},
                     {"last_seq", state.last_seq},
                     {"bytes", state.bytes}};
  return text.dump() + "\n";
}

// Nothing for a text that is not a state of this version.
std::optional<OutputState> ParseState(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  const auto is_text = [&](const char* key) {
    return object.contains(key) && object[key].is_string();
  };
  const auto is_count = [&](const char* key) {
    return object.contains(key) && object[key].is_number_integer() &&
           object[key].get<int64_t>() >= 0;
  };
  if (!object.is_object() || !is_count("version") || object["version"] != kStateVersion ||
      !is_text("request_id") || !is_text("job") || !is_text("job_uid") ||
      !is_text("line_options") || !is_count("first_after_seq") || !is_count("last_seq") ||
      !is_count("bytes")) {
    return std::nullopt;
  }
  OutputState state;
  state.request_id = object["request_id"].get<std::string>();
  state.job_name = object["job"].get<std::string>();
  state.job_uid = object["job_uid"].get<std::string>();
  state.line_options = object["line_options"].get<std::string>();
  state.first_after_seq = object["first_after_seq"].get<int64_t>();
  state.last_seq = object["last_seq"].get<int64_t>();
  state.bytes = object["bytes"].get<int64_t>();
  return state;
}

// True when the descriptor is still the file at `path`: another process may have renamed it away
// between our open and our lock.
bool IsStillAt(int fd, const std::string& path) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), part_path_(path_ + ".part"), state_path_(path_ + ".part.state") {}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Open(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("open ", path, ": is not a regular file; use '-o -' for standard output"));
  }
  std::unique_ptr<OutputFile> file(new OutputFile(path));
  RETURN_IF_ERROR(file->Lock());
  file->ReadEarlier();
  return file;
}

OutputFile::~OutputFile() {
  if (!finished_ && part_.get() >= 0 && state_.bytes == 0 && !earlier_) {
    unlink(part_path_.c_str());
    unlink(state_path_.c_str());
  }
}

absl::Status OutputFile::Lock() {
  while (true) {
    part_ = FileDescriptor(open(part_path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (part_.get() < 0) {
      return ErrnoStatus("open", part_path_);
    }
    if (flock(part_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        return ErrnoStatus("lock", part_path_);
      }
      part_ = FileDescriptor();
      return absl::FailedPreconditionError(
          absl::StrCat("write ", path_, ": another nightshift is writing it"));
    }
    if (IsStillAt(part_.get(), part_path_)) {
      return absl::OkStatus();
    }
  }
}

void OutputFile::ReadEarlier() {
  const absl::StatusOr<std::string> text = ReadSmallFile(state_path_, kMaxStateBytes);
  if (!text.ok()) {
    return;
  }
  std::optional<OutputState> state = ParseState(*text);
  struct stat info = {};
  // A part that is shorter than its state lost bytes: results can be fetched again, so start over.
  if (state && fstat(part_.get(), &info) == 0 && info.st_size >= state->bytes) {
    earlier_ = std::move(state);
  }
}

absl::StatusOr<int64_t> OutputFile::Begin(const OutputState& wanted) {
  state_ = wanted;
  state_.last_seq = wanted.first_after_seq;
  state_.bytes = 0;
  if (earlier_ && earlier_->job_uid == wanted.job_uid &&
      earlier_->line_options == wanted.line_options &&
      earlier_->first_after_seq == wanted.first_after_seq) {
    state_.last_seq = earlier_->last_seq;
    state_.bytes = earlier_->bytes;
  }
  // The state goes first: it must never vouch for bytes of another job.
  if (state_.bytes == 0 && unlink(state_path_.c_str()) != 0 && errno != ENOENT) {
    return ErrnoStatus("remove", state_path_);
  }
  if (ftruncate(part_.get(), state_.bytes) != 0 || lseek(part_.get(), state_.bytes, SEEK_SET) < 0) {
    return ErrnoStatus("truncate", part_path_);
  }
  RETURN_IF_ERROR(Checkpoint());
  return state_.last_seq;
}

absl::Status OutputFile::Append(absl::string_view lines, int64_t last_seq) {
  RETURN_IF_ERROR(WriteAll(part_.get(), lines, part_path_));
  state_.bytes += static_cast<int64_t>(lines.size());
  state_.last_seq = last_seq;
  if (absl::Now() - last_checkpoint_ < kCheckpointInterval) {
    return absl::OkStatus();
  }
  return Checkpoint();
}

absl::Status OutputFile::Checkpoint() {
  RETURN_IF_ERROR(SyncFile(part_.get(), part_path_));
  RETURN_IF_ERROR(StoreState());
  last_checkpoint_ = absl::Now();
  return absl::OkStatus();
}

absl::Status OutputFile::StoreState() {
  const std::string aside = state_path_ + ".new";
  const FileDescriptor file(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    return ErrnoStatus("open", aside);
  }
  RETURN_IF_ERROR(WriteAll(file.get(), StateText(state_), aside));
  RETURN_IF_ERROR(SyncFile(file.get(), aside));
  if (rename(aside.c_str(), state_path_.c_str()) != 0) {
    return ErrnoStatus("rename", aside);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Finish() {
  RETURN_IF_ERROR(SyncFile(part_.get(), part_path_));
  if (rename(part_path_.c_str(), path_.c_str()) != 0) {
    return ErrnoStatus("rename", part_path_);
  }
  finished_ = true;
  // From here on OUTPUT is whole; a state without its part is ignored and overwritten.
  unlink(state_path_.c_str());
  return SyncFolderOf(path_);
}

}  // namespace nightshift
