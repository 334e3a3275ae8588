#include "client/await.h"

#include <algorithm>

#include "absl/time/clock.h"

#include "kernels/base/check.h"

namespace nightshift {
namespace {

// Short enough to feel immediate to a person, long enough to cost nothing.
constexpr absl::Duration kSlice = absl::Milliseconds(100);

// After a cancellation the operation ends promptly.
void DrainOperation(grpc::CompletionQueue& queue, grpc::ClientContext& context) {
  context.TryCancel();
  void* tag = nullptr;
  bool ok = false;
  CHECK(queue.Next(&tag, &ok));
}

}  // namespace

Awaited Await(grpc::CompletionQueue& queue, grpc::ClientContext& context, absl::Time deadline,
              const std::function<bool()>& keep_waiting) {
  while (true) {
    const absl::Time now = absl::Now();
    void* tag = nullptr;
    bool ok = false;
    const auto slice_end = absl::ToChronoTime(std::min(deadline, now + kSlice));
    switch (queue.AsyncNext(&tag, &ok, slice_end)) {
      case grpc::CompletionQueue::GOT_EVENT:
        return ok ? Awaited::kDone : Awaited::kBroken;
      case grpc::CompletionQueue::SHUTDOWN:
        CHECK(false);
      case grpc::CompletionQueue::TIMEOUT:
        break;
    }
    if (!keep_waiting()) {
      DrainOperation(queue, context);
      return Awaited::kStopped;
    }
    if (absl::Now() >= deadline) {
      DrainOperation(queue, context);
      return Awaited::kSilent;
    }
  }
}

bool Pause(absl::Duration duration, const std::function<bool()>& keep_waiting) {
  const absl::Time end = absl::Now() + duration;
  while (keep_waiting()) {
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return true;
    }
    absl::SleepFor(std::min(left, kSlice));
  }
  return false;
}

}  // namespace nightshift
