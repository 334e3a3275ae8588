#include "client/interrupts.h"

#include <atomic>

namespace nightshift {
namespace {

// A signal handler has no other way to its object. `count` says how many came, `acknowledged` how
// many of them are dealt with.
struct SignalCounts {
  std::atomic<int> count = 0;
  std::atomic<int> acknowledged = 0;
};
SignalCounts& Counts() {
  static SignalCounts counts;
  return counts;
}
static_assert(std::atomic<int>::is_always_lock_free);

void OnSignal(int /*signal*/) {
  Counts().count.fetch_add(1);
}

}  // namespace

Interrupts::Interrupts() {
  Counts().count = 0;
  Counts().acknowledged = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  sigemptyset(&action.sa_mask);
  // One signal each: the next one of its kind has its default effect and ends the process.
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigaction(SIGINT, &action, &earlier_int_);
  sigaction(SIGTERM, &action, &earlier_term_);
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &earlier_int_, nullptr);
  sigaction(SIGTERM, &earlier_term_, nullptr);
}

bool Interrupts::requested() const {
  return Counts().count > Counts().acknowledged;
}

void Interrupts::Acknowledge() {
  Counts().acknowledged = Counts().count.load();
}

}  // namespace nightshift
