#include "kernels/cpu/paced_ops.h"

#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/ops_test_support.h"
#include "tests/support/fake_clock.h"

namespace nightshift {
namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kWidth = 64;
constexpr int64_t kHeadWidth = 16;

Matrix RandomMatrix(uint64_t seed, int64_t rows = kRows) {
  return Matrix(kWidth, naive::RandomValues(rows * kWidth, seed));
}

// What ops read, and what they change.
struct World {
  RandomWeight weight{DType::kF32, kWidth, kWidth, 1};
  std::vector<WeightShardView> shards = {weight.shard()};
  std::vector<float> norm = naive::RandomValues(kWidth, 2);
  std::vector<float> frequencies = naive::RandomValues(kHeadWidth / 2, 3);
  std::vector<int32_t> ids = {7, 0, 63, 7, 12};
  std::vector<int64_t> rows = {4, 1, 2, 0, 3};
  KvPageLayout layout{.dtype = DType::kF32, .kv_heads = 4, .head_width = kHeadWidth};
  AlignedBytes page{layout.page_bytes()};
  std::vector<std::byte*> pages = {page.data()};
  AttentionSpan span{.num_rows = kRows, .pages = pages};
  Matrix x = RandomMatrix(4);
  Matrix out = RandomMatrix(5);
  HeadRequest request{.row = 1, .num_candidates = 3};
  HeadState state{.max_logit = -HUGE_VALF, .sum_exp = 0.0, .tempered_sum_exp = 0.0,
                  .best_noisy = -HUGE_VALF, .noisy_winner = -1, .noisy_winner_logit = 0.0F,
                  .candidates = {}, .unadjusted = {}};

  // All that a call may have changed.
  std::vector<float> Values() const {
    std::vector<float> values = x.values();
    values.insert(values.end(), out.values().begin(), out.values().end());
    values.push_back(state.max_logit);
    for (const Candidate& candidate : state.candidates) {
      values.push_back(candidate.logit);
    }
    return values;
  }
};

struct NamedCall {
  const char* name;
  std::function<void(Ops&, World&)> call;
};

std::vector<NamedCall> Calls() {
  return {
      {"EmbeddingGather",
       [](Ops& ops, World& w) {
         ops.EmbeddingGather({kWidth, kWidth, w.shards}, w.ids, true, w.out.view());
       }},
      {"RmsNorm",
       [](Ops& ops, World& w) { ops.RmsNorm(w.x.view(), w.norm.data(), 1e-3F, w.out.view()); }},
      {"LayerNorm",
       [](Ops& ops, World& w) {
         ops.LayerNorm(w.x.view(), w.norm.data(), w.norm.data(), 1e-3F, w.out.view());
       }},
      {"HeadRmsNorm",
       [](Ops& ops, World& w) {
         ops.HeadRmsNorm(w.x.view(), kHeadWidth, w.norm.data(), 1e-3F);
       }},
      {"MatMul",
       [](Ops& ops, World& w) {
         ops.MatMul({.x = w.x.view(), .weight = w.shards[0], .bias = w.norm.data(),
                     .out = w.out.view(), .accumulate = true});
       }},
      {"Rope",
       [](Ops& ops, World& w) {
         ops.Rope({.x = w.x.view(), .heads = 4, .head_width = kHeadWidth,
                   .inverse_frequencies = w.frequencies, .positions = w.ids});
       }},
      {"StoreKv and Attention",
       [](Ops& ops, World& w) {
         ops.StoreKv({.k = w.x.view(), .v = w.x.view(), .layout = w.layout, .spans = {&w.span, 1}});
         ops.Attention({.q = w.x.view(), .out = w.out.view(), .layout = w.layout, .num_heads = 4,
                        .scale = 0.25F, .spans = {&w.span, 1}});
       }},
      {"Activate", [](Ops& ops, World& w) { ops.Activate(Activation::kSilu, w.x.view()); }},
      {"GatedActivate",
       [](Ops& ops, World& w) {
         ops.GatedActivate(Activation::kGeluTanh, w.out.view(), w.x.view());
       }},
      {"Scale", [](Ops& ops, World& w) { ops.Scale(0.3F, w.x.view()); }},
      {"AddScaled", [](Ops& ops, World& w) { ops.AddScaled(w.x.view(), 0.3F, w.out.view()); }},
      {"SoftCap", [](Ops& ops, World& w) { ops.SoftCap(0.5F, w.x.view()); }},
      {"AddScaledRows",
       [](Ops& ops, World& w) {
         ops.AddScaledRows(w.x.view(), w.rows, std::span(w.norm).first(kRows), w.out.view());
       }},
      {"GatherRows", [](Ops& ops, World& w) { ops.GatherRows(w.x.view(), w.rows, w.out.view()); }},
      {"HeadReduce",
       [](Ops& ops, World& w) {
         ops.HeadReduce({.logits = w.x.view(), .requests = {&w.request, 1},
                         .states = {&w.state, 1}});
       }},
  };
}

TEST(PacedOpsTest, HandsEveryOpOn) {
  const auto device = CreateCpuDevice(1).value();
  const FakeClock clock;
  cpu::PacedOps paced(device->host_ops(ComputeType::kF32), 1e9, clock);
  for (const NamedCall& call : Calls()) {
    World before;
    World plain_world;
    World paced_world;
    call.call(device->ops(ComputeType::kF32), plain_world);
    call.call(paced, paced_world);
    EXPECT_EQ(BitsOf(paced_world.Values()), BitsOf(plain_world.Values())) << call.name;
    EXPECT_NE(BitsOf(paced_world.Values()), BitsOf(before.Values())) << call.name;
  }
}

// Values whose time at 1 MFLOP/s is worth a wait.
TEST(PacedOpsTest, OnlyMatMulAndAttentionTakeTime) {
  const auto device = CreateCpuDevice(1).value();
  const FakeClock clock;
  cpu::PacedOps paced(device->ops(ComputeType::kF32), 1e6, clock);
  for (const NamedCall& call : Calls()) {
    World world;
    const int64_t start_us = clock.MonotonicMicros();
    call.call(paced, world);
    const bool takes_time = std::string(call.name) == "MatMul" ||
                            std::string(call.name) == "StoreKv and Attention";
    EXPECT_EQ(clock.MonotonicMicros() > start_us, takes_time) << call.name;
  }
}

}  // namespace
}  // namespace nightshift
