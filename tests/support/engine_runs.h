// Runs requests through an engine to their ends, for tests that compare runs.
#pragma once

#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/status_matchers.h"

namespace nightshift {

// All that a run gives for one request; equal only if every logprob is equal in bits.
struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logprob_bits;  // of each token and its alternatives
  std::vector<int32_t> alternatives;
  std::vector<uint32_t> prompt_logprob_bits;  // of the prompt's tokens and their alternatives
  std::vector<int32_t> prompt_alternatives;
  FinishReason finish_reason = FinishReason::kNone;
  std::string stop_reason;
  std::string text;
  int64_t kept_tokens = 0;

  bool operator==(const Outcome&) const = default;
};

using Outcomes = std::map<uint64_t, Outcome>;

inline void AddLogprob(const TokenLogprob& token, std::vector<uint32_t>& bits,
                       std::vector<int32_t>& alternatives) {
  bits.push_back(std::bit_cast<uint32_t>(token.logprob));
  for (const TopLogprob& top : token.top) {
    alternatives.push_back(top.token);
    bits.push_back(std::bit_cast<uint32_t>(top.logprob));
  }
}

inline void AddRecord(const SweepRecord& record, Outcome& outcome) {
  if (record.token.has_value()) {
    outcome.tokens.push_back(record.token->token);
    AddLogprob(*record.token, outcome.logprob_bits, outcome.alternatives);
  }
  if (record.finished) {
    outcome.finish_reason = record.finish_reason;
    outcome.stop_reason = record.stop_reason;
    outcome.text = record.text;
    outcome.kept_tokens = record.kept_tokens;
    for (const TokenLogprob& token : record.prompt_logprobs) {
      AddLogprob(token, outcome.prompt_logprob_bits, outcome.prompt_alternatives);
    }
  }
}

struct RunOptions {
  int64_t block = 64;  // most requests held at one time
  // Every so many sweeps a random half of the held requests is suspended and waits again; 0: never.
  int64_t suspend_every_sweeps = 0;
  // The next of these is applied every so many sweeps, in a circle; 0: never.
  int64_t plan_every_sweeps = 0;
  std::vector<EngineOptions> plans = {};
  uint32_t seed = 1;
};

struct RunReport {
  Outcomes outcomes;
  int64_t sweeps = 0;
  int64_t suspended = 0;
  int64_t plans = 0;
  int64_t evicted = 0;
  SweepTimes times;
  int64_t prompt_tokens = 0;  // computed
  int64_t shared_tokens = 0;  // taken from others
  int64_t told_tokens = 0;    // the same, as requests tell when they finish
};

// Admits `requests` in order as far as there is room and sweeps until all have finished.
inline RunReport RunToEnd(Engine& engine, const std::vector<EngineRequest>& requests,
                          const RunOptions& options) {
  RunReport report;
  std::mt19937 generator(options.seed);
  std::deque<EngineRequest> waiting(requests.begin(), requests.end());
  std::map<uint64_t, bool> held;
  const auto wait_again = [&](std::vector<EngineRequest> back) {
    for (EngineRequest& request : back) {
      EXPECT_EQ(request.generated, report.outcomes[request.id].tokens);
      held.erase(request.id);
      waiting.push_back(std::move(request));
    }
  };
  while (!waiting.empty() || !held.empty()) {
    while (!waiting.empty() && static_cast<int64_t>(held.size()) < options.block) {
      const AdmitOutcome admitted = engine.Admit({waiting.front()})[0];
      if (admitted.status.code() == absl::StatusCode::kResourceExhausted && !held.empty()) {
        break;
      }
      if (!admitted.status.ok()) {
        ADD_FAILURE() << admitted.status;
        return report;
      }
      held[admitted.id] = true;
      waiting.pop_front();
    }
    absl::StatusOr<SweepResult> swept = engine.Sweep();
    if (!swept.ok()) {
      ADD_FAILURE() << swept.status();
      return report;
    }
    ++report.sweeps;
    report.times.Add(swept->times);
    report.prompt_tokens += swept->prompt_tokens;
    report.shared_tokens += swept->shared_tokens;
    for (const SweepRecord& record : swept->records) {
      AddRecord(record, report.outcomes[record.id]);
      report.told_tokens += record.shared_tokens;
      if (record.finished) {
        held.erase(record.id);
      }
    }
    report.evicted += static_cast<int64_t>(swept->evicted.size());
    wait_again(std::move(swept->evicted));
    EXPECT_EQ(engine.num_held(), static_cast<int64_t>(held.size()));
    if (options.suspend_every_sweeps > 0 && report.sweeps % options.suspend_every_sweeps == 0) {
      std::vector<uint64_t> ids;
      for (const auto& [id, is_held] : held) {
        if (generator() % 2 == 0) {
          ids.push_back(id);
        }
      }
      report.suspended += static_cast<int64_t>(ids.size());
      wait_again(engine.Suspend(ids));
    }
    if (options.plan_every_sweeps > 0 && report.sweeps % options.plan_every_sweeps == 0) {
      const size_t next = static_cast<size_t>(report.plans) % options.plans.size();
      absl::StatusOr<std::vector<EngineRequest>> suspended = engine.ApplyPlan(options.plans[next]);
      if (!suspended.ok()) {
        ADD_FAILURE() << suspended.status();
        return report;
      }
      ++report.plans;
      report.suspended += static_cast<int64_t>(suspended->size());
      wait_again(*std::move(suspended));
    }
  }
  return report;
}

}  // namespace nightshift
