// Times competing functions in turns, so that all of them see the same machine.
#pragma once

#include <functional>
#include <vector>

namespace nightshift {

// Seconds of one call of each function: the best of 2 to 5 rounds, fewer where they are long. In a
// round each function is called until `round_seconds` are over, at least once. With one thread it
// is the thread's CPU time, which other work on the machine disturbs least; else the time that
// passes.
std::vector<double> TimeInTurns(const std::vector<std::function<void()>>& functions,
                                int num_threads, double round_seconds);

}  // namespace nightshift
