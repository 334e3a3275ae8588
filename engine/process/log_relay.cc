#include "engine/process/log_relay.h"

#include <array>
#include <cerrno>
#include <utility>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

constexpr size_t kTailLines = 5;
constexpr size_t kTailLineBytes = 300;
// A longer line goes on in pieces.
constexpr size_t kMaxLineBytes = 64 << 10;

}  // namespace

LogRelay::LogRelay(FileDescriptor source)
    : source_(std::move(source)), thread_([this] { Run(); }) {}

LogRelay::~LogRelay() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::string LogRelay::TakeTail() {
  if (thread_.joinable()) {
    thread_.join();
  }
  MutexLock lock(mutex_);
  return absl::StrJoin(tail_, " | ");
}

void LogRelay::Run() {
  NameThread("ns-log");
  std::array<char, 4096> buffer{};
  std::string pending;
  while (true) {
    const ssize_t count = read(source_.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      break;
    }
    pending.append(buffer.data(), static_cast<size_t>(count));
    size_t begin = 0;
    for (size_t end = pending.find('\n'); end != std::string::npos;
         end = pending.find('\n', begin)) {
      PassOn(absl::string_view(pending).substr(begin, end - begin));
      begin = end + 1;
    }
    pending.erase(0, begin);
    if (pending.size() > kMaxLineBytes) {
      PassOn(pending);
      pending.clear();
    }
  }
  if (!pending.empty()) {
    PassOn(pending);
  }
}

void LogRelay::PassOn(absl::string_view line) {
  // A log that cannot be written must not end the work.
  const absl::Status ignored =
      WriteAll(STDERR_FILENO, absl::StrCat(line, "\n"), "the standard error");
  MutexLock lock(mutex_);
  tail_.emplace_back(line.substr(0, kTailLineBytes));
  if (tail_.size() > kTailLines) {
    tail_.pop_front();
  }
}

}  // namespace nightshift
