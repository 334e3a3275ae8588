// Runs that cover all combinations of few choices of many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace nightshift {

// A small set of runs, each one choice a factor (factor i has num_choices[i] of them), in which
// every combination of choices of `strength` factors occurs. Greedy: each run is the one of some
// random tries that covers most of what is left, so about as many as the largest product of
// `strength` numbers of choices times the logarithm of the number of factors. Always the same ones.
inline std::vector<std::vector<size_t>> CoveringArray(const std::vector<size_t>& num_choices,
                                                      size_t strength) {
  using Combination = std::vector<size_t>;  // factor, choice, factor, choice, ...
  std::set<Combination> left;
  const auto for_each = [&](const std::vector<size_t>& run, const auto& use) {
    Combination combination;
    const auto descend = [&](const auto& self, size_t first, size_t depth) -> void {
      if (depth == 0) {
        use(combination);
        return;
      }
      for (size_t factor = first; factor + depth <= num_choices.size(); ++factor) {
        combination.push_back(factor);
        combination.push_back(run[factor]);
        self(self, factor + 1, depth - 1);
        combination.resize(combination.size() - 2);
      }
    };
    descend(descend, 0, strength);
  };
  std::mt19937 generator(1);
  const auto random_run = [&] {
    std::vector<size_t> run;
    for (const size_t choices : num_choices) {
      run.push_back(std::uniform_int_distribution<size_t>(0, choices - 1)(generator));
    }
    return run;
  };
  // All combinations, met by counting through the choices of each set of factors.
  const auto list_all = [&](const auto& self, Combination& combination, size_t first,
                            size_t depth) -> void {
    if (depth == 0) {
      left.insert(combination);
      return;
    }
    for (size_t factor = first; factor + depth <= num_choices.size(); ++factor) {
      for (size_t choice = 0; choice < num_choices[factor]; ++choice) {
        combination.push_back(factor);
        combination.push_back(choice);
        self(self, combination, factor + 1, depth - 1);
        combination.resize(combination.size() - 2);
      }
    }
  };
  Combination none;
  list_all(list_all, none, 0, strength);
  std::vector<std::vector<size_t>> runs;
  while (!left.empty()) {
    std::vector<size_t> best;
    size_t best_count = 0;
    for (int attempt = 0; attempt < 30; ++attempt) {
      std::vector<size_t> run = random_run();
      // One that is left is in every try.
      const Combination& wanted = *left.begin();
      for (size_t i = 0; i < wanted.size(); i += 2) {
        run[wanted[i]] = wanted[i + 1];
      }
      size_t count = 0;
      for_each(run, [&](const Combination& combination) { count += left.count(combination); });
      if (count > best_count) {
        best_count = count;
        best = run;
      }
    }
    for_each(best, [&](const Combination& combination) { left.erase(combination); });
    runs.push_back(best);
  }
  return runs;
}

}  // namespace nightshift
