// TimeLeft: when jobs will be done, from what tokens cost and what is left of them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace nightshift {

// Seconds of the engine for one token, while the block is full.
struct TokenCosts {
  double prompt_seconds = 0.0;
  double output_seconds = 0.0;
};

// How long sweeps take against what was predicted of them: the plan's word at first, then more and
// more what was observed. One thread.
class Pace {
 public:
  void Add(double predicted_seconds, double observed_seconds);
  // By what predicted seconds are to be multiplied.
  double ratio() const;
  // Of that: about its share that may be wrong, from 0.35 down to 0.1.
  double uncertainty() const;

 private:
  double predicted_seconds_ = 0.0;
  double observed_seconds_ = 0.0;
};

// What is left of a job.
struct JobLeft {
  std::string id;
  int32_t priority = 0;  // a higher one goes first
  double prompt_tokens = 0.0;
  double output_tokens = 0.0;        // as predicted
  double least_output_tokens = 0.0;  // where completions end early
};

struct TimeLeft {
  double seconds = 0.0;
  double least_seconds = 0.0;
  double most_seconds = 0.0;
};

// By id. Jobs of one model: those of a higher priority go before a job, those of its own share the
// engine evenly with it until they end.
std::map<std::string, TimeLeft> TimesLeft(std::span<const JobLeft> jobs, const TokenCosts& costs,
                                          double ratio, double uncertainty);

}  // namespace nightshift
