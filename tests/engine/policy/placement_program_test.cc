#include "engine/policy/placement_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "tests/support/status_matchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nightshift {
namespace {

using enum ShareId;
using ::testing::DoubleNear;
using ::testing::Each;

LinearForm Form(std::initializer_list<std::pair<ShareId, double>> summands, double constant = 0) {
  LinearForm form;
  form.constant = constant;
  for (const auto& [share, value] : summands) {
    form[share] = value;
  }
  return form;
}

double At(const Shares& shares, ShareId share) {
  return shares[static_cast<size_t>(share)];
}

// 100 bytes of weights and nothing else: 40 fit on the device, 30 on the host. Each phase computes
// for 0.5 s; all weights are uploaded in 1 s or read in 10 s.
PlacementProgram WeightsOnly() {
  PlacementProgram program;
  program.phases = {{.name = "sweep",
                     .times = 1,
                     .serial = {},
                     .overlapped = {{"upload", Form({{kWeightsHost, 1}, {kWeightsDisk, 1}})},
                                    {"read", Form({{kWeightsDisk, 10}})},
                                    {"compute", Form({}, 0.5)}}}};
  program.capacities = {{Tier::kDevice, "device", Form({{kWeightsDevice, 100}}), 40},
                        {Tier::kHost, "host", Form({{kWeightsHost, 100}}), 30},
                        {Tier::kDisk, "disk", Form({{kWeightsDisk, 100}}), 1000}};
  return program;
}

TEST(PlacementProgramTest, FillsFastTiersFirst) {
  ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(WeightsOnly()));
  EXPECT_NEAR(At(solution.shares, kWeightsDevice), 0.4, 1e-8);
  EXPECT_NEAR(At(solution.shares, kWeightsHost), 0.3, 1e-8);
  EXPECT_NEAR(At(solution.shares, kWeightsDisk), 0.3, 1e-8);
  EXPECT_NEAR(solution.seconds, 3.0, 1e-7);
  EXPECT_NEAR(solution.phase_seconds[0], 3.0, 1e-7);
  EXPECT_NEAR(solution.capacity_bytes[1], 30, 1e-6);
}

TEST(PlacementProgramTest, WhatIsSerialAddsUp) {
  PlacementProgram program = WeightsOnly();
  program.phases[0].serial = {{"upload", program.phases[0].overlapped[0].seconds}};
  program.phases[0].overlapped.erase(program.phases[0].overlapped.begin());
  ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(program));
  EXPECT_NEAR(solution.seconds, 3.6, 1e-7);
}

TEST(PlacementProgramTest, SecondsAreCountedPerRequest) {
  PlacementProgram program = WeightsOnly();
  program.requests = 6;
  program.phases[0].times = 8;
  ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(program));
  EXPECT_NEAR(solution.seconds, 24.0, 1e-6);
  EXPECT_NEAR(solution.seconds_per_request, 4.0, 1e-7);
}

TEST(PlacementProgramTest, AmongEqualsLeastIsOnDiskThenLeastOnTheHost) {
  PlacementProgram program = WeightsOnly();
  program.phases[0].overlapped[2].seconds.constant = 20;  // computing hides every placement
  ASSERT_OK_AND_ASSIGN(PlacementSolution solution, SolvePlacement(program));
  EXPECT_NEAR(At(solution.shares, kWeightsDisk), 0.3, 1e-7);
  EXPECT_NEAR(At(solution.shares, kWeightsDevice), 0.4, 1e-7);
  // Keys, values and activations take nothing anywhere: they need neither disk nor host.
  EXPECT_EQ(At(solution.shares, kKvDevice), 1);
  EXPECT_EQ(At(solution.shares, kActivationsDevice), 1);
  program.capacities[0].capacity_bytes = 200;
  ASSERT_OK_AND_ASSIGN(solution, SolvePlacement(program));
  EXPECT_EQ(At(solution.shares, kWeightsDevice), 1);
}

TEST(PlacementProgramTest, APriceIsWhatOneMoreByteSaves) {
  PlacementProgram program = WeightsOnly();
  program.requests = 5;
  ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(program));
  for (size_t i = 0; i < program.capacities.size(); ++i) {
    PlacementProgram more = program;
    more.capacities[i].capacity_bytes += 0.5;
    ASSERT_OK_AND_ASSIGN(const PlacementSolution better, SolvePlacement(more));
    EXPECT_NEAR(solution.byte_prices[i],
                (solution.seconds_per_request - better.seconds_per_request) / 0.5, 1e-6)
        << program.capacities[i].name;
  }
  EXPECT_NEAR(solution.byte_prices[0], 0.02, 1e-9);
  EXPECT_EQ(solution.byte_prices[2], 0);
}

TEST(PlacementProgramTest, FixedSharesStay) {
  PlacementProgram program = WeightsOnly();
  program.fixed[static_cast<size_t>(kWeightsDisk)] = 0.5;
  ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(program));
  EXPECT_EQ(At(solution.shares, kWeightsDisk), 0.5);
  EXPECT_NEAR(At(solution.shares, kWeightsDevice), 0.4, 1e-7);
  EXPECT_NEAR(solution.seconds, 5.0, 1e-7);
}

TEST(PlacementProgramTest, UnitsDoNotMatter) {
  for (const double bytes : {1e-3, 1.0, 1e12}) {
    for (const double seconds : {1e-9, 1.0, 1e9}) {
      PlacementProgram program = WeightsOnly();
      for (CostTerm& term : program.phases[0].overlapped) {
        term.seconds *= seconds;
      }
      for (CapacityRow& row : program.capacities) {
        row.bytes *= bytes;
        row.capacity_bytes *= bytes;
      }
      ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(program));
      EXPECT_NEAR(solution.seconds / seconds, 3.0, 1e-7) << bytes << " " << seconds;
      EXPECT_NEAR(solution.byte_prices[0] * bytes / seconds, 0.1, 1e-7) << bytes << " " << seconds;
    }
  }
}

TEST(PlacementProgramTest, ATermThatCouldBeHugeDoesNotBlurASmallOne) {
  PlacementProgram program = WeightsOnly();
  program.capacities[0].capacity_bytes = 1000;
  program.phases[0].overlapped[0].seconds *= 1e6;
  program.phases[0].overlapped[1].seconds *= 1e6;
  program.phases[0].overlapped[2].seconds.constant = 0;
  // Keys on the device cost 3e-6 s, on the host 1e-6 s.
  program.phases[0].overlapped.push_back(
      {"attention", Form({{kKvDevice, 3e-6}, {kKvHost, 1e-6}, {kKvDisk, 1}})});
  ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(program));
  EXPECT_NEAR(solution.seconds, 1e-6, 1e-12);
  EXPECT_NEAR(At(solution.shares, kWeightsDevice), 1, 1e-9);
}

// Weights, keys and activations of random sizes, speeds and capacities.
PlacementProgram RandomProgram(std::mt19937_64& random) {
  const auto draw = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>()(random));
  };
  PlacementProgram program;
  program.requests = draw(1, 1000);
  for (const char* phase_name : {"prefill", "decode"}) {
    CostPhase phase{.name = phase_name, .times = draw(1, 1000), .serial = {}, .overlapped = {}};
    for (const char* term_name : {"upload", "download", "read", "write", "compute"}) {
      CostTerm term{term_name, {}};
      term.seconds.constant = draw(1e-6, 1e-2);
      for (double& coefficient : term.seconds.of) {
        coefficient = draw(1e-6, 1.0);
      }
      phase.overlapped.push_back(term);
    }
    phase.serial.push_back({"serial", phase.overlapped[0].seconds});
    program.phases.push_back(phase);
  }
  const double bytes[] = {draw(1e9, 1e12), draw(1e9, 1e12), draw(1e7, 1e10)};
  for (size_t tier = 0; tier < 3; ++tier) {
    CapacityRow row{static_cast<Tier>(tier), "row", {}, draw(1e9, 3e12)};
    row.bytes.constant = draw(1, 1e8);
    for (size_t kind = 0; kind < 3; ++kind) {
      row.bytes.of[3 * kind + tier] = bytes[kind];
    }
    program.capacities.push_back(row);
  }
  return program;
}

Shares RandomShares(std::mt19937_64& random) {
  Shares shares;
  std::uniform_real_distribution<double> draw;
  for (size_t group = 0; group < kNumShares; group += 3) {
    const double a = draw(random);
    const double b = draw(random);
    shares[group] = std::min(a, b);
    shares[group + 1] = std::abs(a - b);
    shares[group + 2] = 1 - std::max(a, b);
    if (draw(random) < 0.5) {  // a corner
      std::fill_n(shares.begin() + static_cast<ptrdiff_t>(group), 3, 0.0);
      shares[group + random() % 3] = 1;
    }
  }
  return shares;
}

bool Fits(const PlacementProgram& program, const Shares& shares) {
  return std::all_of(
      program.capacities.begin(), program.capacities.end(),
      [&](const CapacityRow& row) { return row.bytes.At(shares) <= row.capacity_bytes; });
}

TEST(PlacementProgramTest, NoRandomPlacementIsBetter) {
  std::mt19937_64 random(5);
  int num_solved = 0;
  int num_compared = 0;
  for (int i = 0; i < 60; ++i) {
    const PlacementProgram program = RandomProgram(random);
    const auto solution = SolvePlacement(program);
    for (int j = 0; j < 2000; ++j) {
      const Shares shares = RandomShares(random);
      if (Fits(program, shares)) {
        ASSERT_OK(solution);
        EXPECT_GE(TotalSeconds(program, shares), solution->seconds * (1 - 1e-7));
        ++num_compared;
      }
    }
    if (solution.ok()) {
      ++num_solved;
      for (size_t row = 0; row < 3; ++row) {
        EXPECT_LE(solution->capacity_bytes[row],
                  program.capacities[row].capacity_bytes * (1 + 1e-6));
      }
      for (size_t group = 0; group < kNumShares; group += 3) {
        EXPECT_NEAR(
            solution->shares[group] + solution->shares[group + 1] + solution->shares[group + 2], 1,
            1e-12);
      }
    }
  }
  EXPECT_GT(num_solved, 30);
  EXPECT_GT(num_compared, 10000);
}

TEST(PlacementProgramTest, TheObjectiveAloneIsTheSame) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 50; ++i) {
    const PlacementProgram program = RandomProgram(random);
    const auto solution = SolvePlacement(program);
    const auto seconds = LeastSecondsPerRequest(program);
    EXPECT_EQ(seconds.status().code(), solution.status().code());
    if (solution.ok()) {
      EXPECT_NEAR(*seconds, solution->seconds_per_request, 1e-7 * *seconds);
    }
  }
}

TEST(PlacementProgramTest, TheSameProgramGivesTheSameBits) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20; ++i) {
    const PlacementProgram program = RandomProgram(random);
    const auto first = SolvePlacement(program);
    const auto second = SolvePlacement(program);
    ASSERT_EQ(first.ok(), second.ok());
    if (first.ok()) {
      EXPECT_EQ(first->shares, second->shares);
      EXPECT_EQ(first->byte_prices, second->byte_prices);
    }
  }
}

TEST(PlacementProgramTest, TellsWhichTierLacksHowMuch) {
  PlacementProgram program = WeightsOnly();
  program.capacities[2].capacity_bytes = 10;
  EXPECT_THAT(SolvePlacement(program),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "the disk lacks 20 bytes (disk: 30 bytes of 10 bytes)"));
  ASSERT_OK_AND_ASSIGN(const PlacementShortfall shortfall, FindShortfall(program));
  EXPECT_NEAR(shortfall.bytes[2], 20, 1e-6);
  EXPECT_EQ(shortfall.bytes[0], 0);
  program.fixed[static_cast<size_t>(kWeightsDisk)] = 0;
  EXPECT_THAT(SolvePlacement(program),
              StatusIs(absl::StatusCode::kResourceExhausted, "the host lacks 30 bytes"));
}

TEST(PlacementProgramTest, ABudgetOfFourBytesLacksTheRest) {
  PlacementProgram program = WeightsOnly();
  for (CapacityRow& row : program.capacities) {
    row.capacity_bytes = 4;
    row.bytes *= 1e9;
  }
  EXPECT_THAT(SolvePlacement(program),
              StatusIs(absl::StatusCode::kResourceExhausted, "the disk lacks 93.13 GiB"));
}

TEST(PlacementProgramTest, AMissedDeadlineTellsTheLeastTime) {
  PlacementProgram program = WeightsOnly();
  program.max_seconds = 3.5;
  EXPECT_OK(SolvePlacement(program));
  program.max_seconds = 2.5;
  EXPECT_THAT(SolvePlacement(program),
              StatusIs(absl::StatusCode::kResourceExhausted, "at least 3 s of 2.5 s"));
  program.max_seconds.reset();
  program.held_share = 0.5;
  program.max_held_seconds = 1.6;
  EXPECT_OK(SolvePlacement(program));
  program.max_held_seconds = 1.4;
  EXPECT_THAT(SolvePlacement(program),
              StatusIs(absl::StatusCode::kResourceExhausted, "at least 1.5 s of 1.4 s"));
}

TEST(PlacementProgramTest, BadNumbersAreRefusedByName) {
  const auto refusal = [](void (*change)(PlacementProgram&)) {
    PlacementProgram program = WeightsOnly();
    change(program);
    return SolvePlacement(program).status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.requests = 0; }),
              StatusIs(invalid, "the number of requests is 0"));
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.phases[0].times = -1; }),
              StatusIs(invalid, "sweep: times is -1"));
  EXPECT_THAT(refusal([](PlacementProgram& p) {
                p.phases[0].overlapped[1].seconds[kWeightsDisk] =
                    std::numeric_limits<double>::infinity();
              }),
              StatusIs(invalid, "sweep, read: a number is not finite"));
  EXPECT_THAT(
      refusal([](PlacementProgram& p) { p.phases[0].overlapped[1].seconds[kWeightsDisk] = -3; }),
      StatusIs(invalid, "sweep, read: -3 seconds"));
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.capacities[1].capacity_bytes = -7; }),
              StatusIs(invalid, "host: the capacity is -7"));
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.capacities[1].bytes.constant = -7; }),
              StatusIs(invalid, "host: -7 bytes"));
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.fixed[1] = 1.5; }),
              StatusIs(invalid, "the share of weights on the host is 1.5"));
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.fixed[3] = p.fixed[4] = 0.7; }),
              StatusIs(invalid, "keys and values on the device on are fixed to a sum of 1.4"));
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.max_seconds = 0; }),
              StatusIs(invalid, "a bound on seconds is 0"));
  EXPECT_THAT(refusal([](PlacementProgram& p) { p.held_share = 2; }),
              StatusIs(invalid, "request is held is 2"));
}

TEST(PlacementProgramTest, WithoutMemoryAtAllNothingDividesByZero) {
  PlacementProgram program = WeightsOnly();
  for (CapacityRow& row : program.capacities) {
    row.capacity_bytes = 0;
  }
  EXPECT_THAT(SolvePlacement(program),
              StatusIs(absl::StatusCode::kResourceExhausted, "the disk lacks 100 bytes"));
  for (CapacityRow& row : program.capacities) {
    row.bytes = {};
  }
  for (CostTerm& term : program.phases[0].overlapped) {
    term.seconds = {};
  }
  ASSERT_OK_AND_ASSIGN(const PlacementSolution solution, SolvePlacement(program));
  EXPECT_EQ(solution.seconds, 0);
  EXPECT_THAT(solution.byte_prices, Each(DoubleNear(0, 0)));
}

}  // namespace
}  // namespace nightshift
