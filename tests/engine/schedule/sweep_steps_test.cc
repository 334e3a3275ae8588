#include "engine/schedule/sweep_steps.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/schedule/virtual_lanes.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

// The steps of some sweeps, one behind the other, as data to look at.
struct Sweeps {
  StreamShape shape;
  std::vector<SweepShape> sweeps;
  std::vector<std::vector<Step>> steps_of_sweep;

  std::vector<Step> all() const {
    std::vector<Step> steps;
    for (const std::vector<Step>& sweep : steps_of_sweep) {
      steps.insert(steps.end(), sweep.begin(), sweep.end());
    }
    return steps;
  }
};

Sweeps MakeRun(StreamShape shape, std::vector<SweepShape> sweeps) {
  Sweeps run{shape, std::move(sweeps), {}};
  SweepSteps maker(std::move(shape));
  for (const SweepShape& sweep : run.sweeps) {
    run.steps_of_sweep.push_back(maker.Next(sweep));
  }
  return run;
}

// A model of `num_layers` layers of four shards, two of them before attention, and a head of two.
StreamShape Shape(int64_t num_layers, bool unified, int64_t shard_bytes = 10) {
  StreamShape shape;
  shape.num_layers = num_layers;
  shape.unified_memory = unified;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (int i = 0; i < 4; ++i) {
      shape.shards.push_back({shard_bytes, Tier::kDisk, layer, i >= 2});
    }
  }
  for (int i = 0; i < 2; ++i) {
    shape.shards.push_back({shard_bytes, Tier::kDisk, num_layers, false});
  }
  return shape;
}

SweepShape Sweep(int64_t num_layers, size_t num_batches) {
  SweepShape sweep;
  sweep.batches.resize(num_batches);
  sweep.slides.assign(static_cast<size_t>(num_layers), false);
  sweep.experts_together.assign(static_cast<size_t>(num_layers), false);
  return sweep;
}

// Runs the steps on lanes in virtual time, by step id.
std::map<int64_t, VirtualTimes> TimesOf(const std::vector<Step>& steps,
                                        const std::function<int64_t(const Step&)>& duration) {
  std::map<int64_t, int64_t> number;
  VirtualLanes lanes(kNumLanes);
  std::map<int64_t, VirtualTimes> times;
  for (const Step& step : steps) {
    std::vector<int64_t> waits;
    for (const int64_t id : step.waits) {
      waits.push_back(number.at(id));  // listed before: nothing waits for itself
    }
    number[step.id] = static_cast<int64_t>(number.size());
    times[step.id] = lanes.Run(static_cast<size_t>(LaneOf(step.kind)), duration(step), waits);
  }
  return times;
}

// A stretch of memory in use from one step's start to another's end.
struct Tenancy {
  int64_t offset = 0;
  int64_t bytes = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

void ExpectApart(std::vector<Tenancy> tenancies) {
  std::sort(tenancies.begin(), tenancies.end(),
            [](const Tenancy& a, const Tenancy& b) { return a.start_ns < b.start_ns; });
  for (size_t i = 0; i < tenancies.size(); ++i) {
    for (size_t j = i + 1; j < tenancies.size() && tenancies[j].start_ns < tenancies[i].end_ns;
         ++j) {
      ASSERT_TRUE(tenancies[i].offset + tenancies[i].bytes <= tenancies[j].offset ||
                  tenancies[j].offset + tenancies[j].bytes <= tenancies[i].offset)
          << "one is overwritten while it is in use";
    }
  }
}

// Whatever the steps last, a shard is in its ring from the start of what brings it until the last
// computation with it has ended, and nothing else is in its place meanwhile.
void ExpectRingsSafe(const Sweeps& run, const std::map<int64_t, VirtualTimes>& times) {
  std::map<int64_t, Tenancy> host;
  std::map<int64_t, Tenancy> device;
  for (const Step& step : run.all()) {
    const VirtualTimes at = times.at(step.id);
    auto& ring = run.shape.unified_memory ? host : device;
    if (step.kind == StepKind::kReadWeights) {
      host[step.position] = {step.offset, step.bytes, at.start_ns, at.end_ns};
    } else if (step.kind == StepKind::kUploadWeights) {
      device[step.position] = {step.offset, step.bytes, at.start_ns, at.end_ns};
      if (host.contains(step.position)) {
        ASSERT_LE(host[step.position].end_ns, at.start_ns) << "uploaded before it was read";
        host[step.position].end_ns = at.end_ns;
      }
    } else if (step.position >= 0) {
      ASSERT_TRUE(ring.contains(step.position));
      ASSERT_LE(ring[step.position].end_ns, at.start_ns) << "used before it was there";
      ring[step.position].end_ns = at.end_ns;
    }
  }
  for (const auto& ring : {host, device}) {
    std::vector<Tenancy> tenancies;
    for (const auto& [position, tenancy] : ring) {
      tenancies.push_back(tenancy);
    }
    ExpectApart(tenancies);
  }
}

bool UsesDeviceSlot(StepKind kind) {
  return kind == StepKind::kUploadKv || kind == StepKind::kDownloadKv ||
         kind == StepKind::kUploadActivations || kind == StepKind::kDownloadActivations;
}

bool UsesHostSlot(StepKind kind) {
  return kind == StepKind::kReadKv || kind == StepKind::kWriteKv ||
         kind == StepKind::kReadActivations || kind == StepKind::kWriteActivations;
}

// The same for staging slots: between the first and the last step of one (layer, batch) with a kind
// of slot no other (layer, batch) is in it. Kept for keys and values and for activations apart.
void ExpectSlotsSafe(const std::vector<Step>& sweep, const SweepShape& shape, bool unified,
                     const std::map<int64_t, VirtualTimes>& times) {
  using Use = std::tuple<int, size_t, int64_t, int64_t>;  // kind of slot, slot, layer, batch
  std::map<Use, Tenancy> uses;
  const auto use = [&](int kind, const Step& step) {
    const VirtualTimes at = times.at(step.id);
    const auto [found, is_first] =
        uses.try_emplace({kind, step.slot, step.layer, step.batch},
                         Tenancy{static_cast<int64_t>(step.slot), 1, at.start_ns, at.end_ns});
    found->second.start_ns = std::min(found->second.start_ns, at.start_ns);
    found->second.end_ns = std::max(found->second.end_ns, at.end_ns);
  };
  for (const Step& step : sweep) {
    const bool is_kv = step.kind == StepKind::kReadKv || step.kind == StepKind::kUploadKv ||
                       step.kind == StepKind::kDownloadKv || step.kind == StepKind::kWriteKv;
    if (UsesDeviceSlot(step.kind) || (unified && UsesHostSlot(step.kind))) {
      use(is_kv ? 0 : 1, step);
    }
    if (UsesHostSlot(step.kind) && !unified) {
      use(is_kv ? 2 : 3, step);
    }
    // A transfer between both slots uses both.
    const bool on_disk =
        step.batch >= 0 &&
        (is_kv ? shape.batches[static_cast<size_t>(step.batch)].kv[0].write_bytes > 0
               : shape.batches[static_cast<size_t>(step.batch)].activations == Tier::kDisk);
    if (UsesDeviceSlot(step.kind) && on_disk) {
      use(is_kv ? 2 : 3, step);
    }
    if (step.kind == StepKind::kCompute && step.batch >= 0 &&
        step.layer < static_cast<int64_t>(shape.slides.size())) {
      const BatchShape& batch = shape.batches[static_cast<size_t>(step.batch)];
      if (batch.activations != Tier::kDevice) {
        use(1, step);
      }
      if (step.layer >= 0 && batch.query_bytes == 0 &&
          batch.kv[0].write_bytes + batch.kv[0].download_bytes > 0) {
        use(0, step);
      }
      if (batch.query_bytes > 0 && step.layer >= 0) {
        use(4, step);  // queries on the device
      }
    }
    if (step.kind == StepKind::kHostAttention || step.kind == StepKind::kDownloadQueries ||
        step.kind == StepKind::kUploadMixed) {
      use(5, step);  // queries on the host
      if (step.kind == StepKind::kHostAttention && on_disk) {
        use(2, step);
      }
    }
  }
  std::map<int, std::vector<Tenancy>> by_kind;
  for (const auto& [key, tenancy] : uses) {
    by_kind[std::get<0>(key)].push_back(tenancy);
  }
  for (const auto& [kind, tenancies] : by_kind) {
    SCOPED_TRACE(testing::Message() << "kind of slot " << kind);
    ExpectApart(tenancies);
  }
}

int64_t CountKind(const std::vector<Step>& steps, StepKind kind) {
  return std::count_if(steps.begin(), steps.end(),
                       [&](const Step& step) { return step.kind == kind; });
}

TEST(SweepStepsTest, EachShardIsReadOnceASweepAndUsedOnceABatch) {
  for (const size_t batches : {1, 3}) {
    StreamShape shape = Shape(3, true);
    shape.host_ring_bytes = 90;
    const Sweeps run = MakeRun(shape, std::vector<SweepShape>(4, Sweep(3, batches)));
    std::map<int64_t, int64_t> reads;
    std::map<int64_t, size_t> uses;
    for (const Step& step : run.all()) {
      reads[step.position] += step.kind == StepKind::kReadWeights ? 1 : 0;
      uses[step.position] += step.kind == StepKind::kCompute ? 1 : 0;
    }
    for (int64_t position = 0; position < 4 * 14; ++position) {
      EXPECT_EQ(reads[position], 1) << position;
      EXPECT_EQ(uses[position], position % 14 < 12 ? batches : 1) << position;
    }
  }
}

TEST(SweepStepsTest, ReadingGoesOnAcrossTheEdgeOfASweepAsFarAsTheRingHasRoom) {
  StreamShape shape = Shape(3, true);
  shape.host_ring_bytes = 50;
  const Sweeps run = MakeRun(shape, {Sweep(3, 1), Sweep(3, 1)});
  EXPECT_EQ(CountKind(run.steps_of_sweep[0], StepKind::kReadWeights), 14 + 5);
  EXPECT_EQ(CountKind(run.steps_of_sweep[1], StepKind::kReadWeights), 14);
}

// With everything where it is computed on there is nothing but computations, and they wait for
// nothing.
TEST(SweepStepsTest, NothingIsMovedThatLiesOnTheDevice) {
  StreamShape shape;
  shape.num_layers = 4;
  const Sweeps run = MakeRun(shape, {Sweep(4, 3)});
  EXPECT_EQ(run.all().size(), 3U + 4U * 3U + 1U);
  for (const Step& step : run.all()) {
    EXPECT_EQ(step.kind, StepKind::kCompute);
    EXPECT_TRUE(step.waits.empty());
  }
}

// While batch k is computed, batch k+1 is loaded and batch k-1 stored, and the shards of the next
// layer come meanwhile: all six lanes but the host's attention work at one time.
TEST(SweepStepsTest, TransfersOfOtherBatchesAndLayersOverlapAComputation) {
  StreamShape shape = Shape(4, false);
  shape.host_ring_bytes = 100;
  shape.device_ring_bytes = 100;
  SweepShape sweep = Sweep(4, 4);
  for (BatchShape& batch : sweep.batches) {
    batch.kv[0] = {1, 1, 1, 1};
    batch.activations = Tier::kDisk;
    batch.activation_bytes = 1;
  }
  const Sweeps run = MakeRun(shape, {sweep});
  // A computation of 40 with each of four shards, a transfer of 10.
  const auto times = TimesOf(run.all(), [](const Step& step) {
    return step.kind == StepKind::kCompute ? (step.is_last_piece ? 0 : 40) : 10;
  });
  std::map<StepKind, int64_t> overlapped;
  for (const Step& computation : run.all()) {
    if (computation.kind != StepKind::kCompute || computation.layer != 1) {
      continue;
    }
    for (const Step& step : run.all()) {
      const bool is_other = step.layer != computation.layer || step.batch != computation.batch;
      if (is_other && times.at(step.id).start_ns < times.at(computation.id).end_ns &&
          times.at(step.id).end_ns > times.at(computation.id).start_ns) {
        ++overlapped[step.kind];
      }
    }
  }
  for (const StepKind kind :
       {StepKind::kReadWeights, StepKind::kUploadWeights, StepKind::kReadKv, StepKind::kUploadKv,
        StepKind::kReadActivations, StepKind::kUploadActivations, StepKind::kDownloadKv,
        StepKind::kWriteKv, StepKind::kDownloadActivations, StepKind::kWriteActivations}) {
    EXPECT_GT(overlapped[kind], 0) << StepKindName(kind);
  }
}

// The time of a sweep is that of its busiest lane, but for its two ends.
TEST(SweepStepsTest, ASweepLastsAsLongAsItsBusiestLane) {
  StreamShape shape = Shape(16, true);
  for (const size_t batches : {1, 4}) {
    for (const int64_t read_ns : {100, 400, 1600}) {
      shape.host_ring_bytes = batches == 1 ? 60 : 100;
      const Sweeps run = MakeRun(shape, std::vector<SweepShape>(3, Sweep(16, batches)));
      const auto times = TimesOf(run.all(), [&](const Step& step) -> int64_t {
        return step.kind == StepKind::kReadWeights ? read_ns
               : step.position >= 0                ? 400 / static_cast<int64_t>(batches)
                                                   : 0;
      });
      int64_t end_ns = 0;
      int64_t read_total_ns = 0;
      int64_t compute_total_ns = 0;
      for (const Step& step : run.all()) {
        const VirtualTimes at = times.at(step.id);
        (step.kind == StepKind::kReadWeights ? read_total_ns : compute_total_ns) +=
            at.end_ns - at.start_ns;
        if (step.kind == StepKind::kCompute) {
          end_ns = std::max(end_ns, at.end_ns);
        }
      }
      EXPECT_LE(static_cast<double>(end_ns),
                1.1 * static_cast<double>(std::max(read_total_ns, compute_total_ns)))
          << batches << " batches, " << read_ns;
    }
  }
}

// Weights of the next layer and keys of the next batches share lanes: neither holds up the other,
// wherever both come from.
TEST(SweepStepsTest, WeightsAndKeysDoNotWaitForEachOther) {
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    SCOPED_TRACE(tier == Tier::kHost ? "host" : "disk");
    StreamShape shape = Shape(16, false);
    for (StreamedShard& shard : shape.shards) {
      shard.tier = tier;
    }
    shape.host_ring_bytes = shape.device_ring_bytes = 100;
    shape.num_slots = 3;
    SweepShape sweep = Sweep(16, 4);
    for (BatchShape& batch : sweep.batches) {
      batch.kv[0] = {.read_bytes = tier == Tier::kDisk ? 1 : 0, .upload_bytes = 1};
    }
    const Sweeps run = MakeRun(shape, std::vector<SweepShape>(3, sweep));
    std::array<int64_t, kNumLanes> lanes = {};
    const auto times = TimesOf(run.all(), [&](const Step& step) -> int64_t {
      const int64_t duration = step.kind == StepKind::kReadWeights     ? 50
                               : step.kind == StepKind::kUploadWeights ? 80
                               : step.kind != StepKind::kCompute       ? 20
                               : step.position >= 0                    ? 25
                                                                       : 0;
      lanes[static_cast<size_t>(LaneOf(step.kind))] += duration;
      return duration;
    });
    int64_t end_ns = 0;
    for (const auto& [id, at] : times) {
      end_ns = std::max(end_ns, at.end_ns);
    }
    EXPECT_LE(static_cast<double>(end_ns),
              1.1 * static_cast<double>(*std::max_element(lanes.begin(), lanes.end())));
  }
}

TEST(SweepStepsTest, WithoutOverlapEachStepWaitsForTheOneBefore) {
  StreamShape shape = Shape(2, false);
  shape.host_ring_bytes = shape.device_ring_bytes = 100;
  shape.overlap = false;
  SweepShape sweep = Sweep(2, 2);
  sweep.batches[1].kv[0] = {1, 1, 1, 1};
  const Sweeps run = MakeRun(shape, {sweep, sweep});
  const std::vector<Step> steps = run.all();
  for (size_t i = 1; i < steps.size(); ++i) {
    EXPECT_THAT(steps[i].waits, testing::Contains(steps[i - 1].id));
  }
  EXPECT_EQ(CountKind(run.steps_of_sweep[0], StepKind::kReadWeights), 10);
}

// While the host attends for one batch, the device computes another.
TEST(SweepStepsTest, TheDeviceComputesTheNextBatchWhileTheHostAttends) {
  StreamShape shape;
  shape.num_layers = 3;
  shape.unified_memory = false;
  shape.num_slots = 3;
  SweepShape sweep = Sweep(3, 4);
  for (BatchShape& batch : sweep.batches) {
    batch.query_bytes = batch.mixed_bytes = 1;
  }
  const Sweeps run = MakeRun(shape, {sweep});
  const auto times = TimesOf(run.all(), [](const Step& step) -> int64_t {
    return step.kind == StepKind::kCompute         ? (step.layer < 3 ? 50 : 0)
           : step.kind == StepKind::kHostAttention ? 60
                                                   : 1;
  });
  int64_t end_ns = 0;
  for (const auto& [id, at] : times) {
    end_ns = std::max(end_ns, at.end_ns);
  }
  // 3 layers x 4 batches x 100 of the device; the host's 720 hide but for the ends of layers.
  EXPECT_LE(end_ns, 4 * 50 + 1200 + 3 * 70);
}

// 10,000 random schedules: none waits for itself, nothing is overwritten in use, every wait is for
// something that ends after the step's own lane would have been ready, or for its data.
TEST(SweepStepsTest, RandomSchedulesEndAndKeepTheirMemoryApart) {
  std::mt19937 generator(5);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(generator);
  };
  for (int round = 0; round < 10000; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    StreamShape shape;
    shape.num_layers = draw(1, 4);
    shape.unified_memory = draw(0, 1) == 1;
    shape.overlap = draw(0, 3) > 0;
    shape.num_slots = 2;
    int64_t largest = 1;
    int64_t largest_layer = 1;
    for (int64_t layer = 0; layer <= shape.num_layers; ++layer) {
      int64_t layer_bytes = 0;
      for (int64_t n = draw(0, 5), i = 0; i < n; ++i) {
        StreamedShard shard{draw(1, 9), Tier::kDisk, layer, i >= n / 2};
        if (!shape.unified_memory && draw(0, 1) == 1) {
          shard.tier = Tier::kHost;
        }
        layer_bytes += shard.bytes;
        largest = std::max(largest, shard.bytes);
        shape.shards.push_back(shard);
      }
      largest_layer = std::max(largest_layer, layer < shape.num_layers ? layer_bytes : 0);
    }
    const size_t num_batches = static_cast<size_t>(draw(1, 4));
    const int64_t least_ring =
        num_batches == 1 ? 2 * largest : ShardRing::BytesFor(largest_layer, largest);
    shape.host_ring_bytes = std::max(2 * largest, least_ring) + draw(0, 30);
    shape.device_ring_bytes = shape.unified_memory ? 0 : least_ring + draw(0, 30);
    std::vector<SweepShape> sweeps;
    const bool host_attention = !shape.unified_memory && draw(0, 2) == 0;
    shape.num_slots = host_attention ? 3 : 2;
    for (int64_t i = draw(1, 3); i > 0; --i) {
      SweepShape sweep = Sweep(shape.num_layers, num_batches);
      for (BatchShape& batch : sweep.batches) {
        const bool on_disk = draw(0, 1) == 1;
        const bool has_earlier = draw(0, 3) > 0;
        if (draw(0, 2) > 0) {
          KvMoves& kv = batch.kv[0];
          if (host_attention) {
            batch.query_bytes = batch.mixed_bytes = 1;
            kv = {on_disk && has_earlier ? 1 : 0, 0, 0, on_disk ? 1 : 0};
          } else if (shape.unified_memory) {
            kv = {has_earlier ? 1 : 0, 0, 0, 1};
          } else {
            kv = {on_disk && has_earlier ? 1 : 0, has_earlier ? 1 : 0, 1, on_disk ? 1 : 0};
          }
        }
        batch.activations = static_cast<Tier>(draw(0, 2));
        if (shape.unified_memory && batch.activations == Tier::kHost) {
          batch.activations = Tier::kDevice;
        }
        batch.activation_bytes = 1;
      }
      sweeps.push_back(sweep);
    }
    const Sweeps run = MakeRun(shape, sweeps);
    const std::vector<Step> steps = run.all();
    for (size_t i = 0; i < steps.size(); ++i) {
      ASSERT_EQ(steps[i].id, static_cast<int64_t>(i));
      ASSERT_TRUE(steps[i].waits.empty() || steps[i].waits.back() < steps[i].id);
    }
    const auto times = TimesOf(steps, [&](const Step&) { return draw(1, 20); });
    ASSERT_EQ(times.size(), steps.size());
    ExpectRingsSafe(run, times);
    for (size_t i = 0; i < run.sweeps.size(); ++i) {
      ExpectSlotsSafe(run.steps_of_sweep[i], run.sweeps[i], shape.unified_memory, times);
    }
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace nightshift
