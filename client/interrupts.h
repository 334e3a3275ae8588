// Interrupts: the first Ctrl-C (or SIGTERM) asks the command to end in good order, the second ends
// it.
#pragma once

#include <csignal>

namespace nightshift {

// One a process, while it lives: handlers are process-wide. Every wait of a command asks
// `requested`.
class Interrupts {
 public:
  Interrupts();
  // Puts the earlier handlers back.
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  bool requested() const;
  // The interrupt is dealt with; waits go on. The next one ends the process all the same.
  void Acknowledge();

 private:
  struct sigaction earlier_int_ = {};
  struct sigaction earlier_term_ = {};
};

}  // namespace nightshift
