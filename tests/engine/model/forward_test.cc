// The parts of a layer against the whole layer, bit for bit.
#include "engine/model/forward.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/kv_cache.h"
#include "engine/memory/pool.h"
#include "engine/memory/resident_weights.h"
#include "engine/model/pack.h"
#include "kernels/base/lane.h"
#include "kernels/device.h"
#include "tests/support/naive_ops.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

// Positions [first, first + count) of a sequence.
struct Part {
  size_t sequence = 0;
  int64_t first_position = 0;
  int64_t count = 0;
};

// A model, its pages for two sequences, and hidden rows.
class World {
 public:
  World(const std::string& model, ComputeType compute_type, std::unique_ptr<Device> device)
      : device_(std::move(device)),
        pack_(Pack::Open(TinyPack(model)).value()),
        pool_("host", int64_t{64} << 20),
        weights_(ResidentWeights::Load(
                     *pack_,
                     PlaceWeights(pack_->manifest(), compute_type, {.device_bytes = INT64_MAX / 2}),
                     compute_type, {}, pool_, pool_, *device_)
                     .value()),
        cache_(KvCache::Create(pool_, pool_, "", KvLayoutOf(config(), compute_type, std::nullopt),
                               KvLayers(config()),
                               {.device = 4 * KvLayers(config()).ids_per_stretch()})
                   .value()),
        ops_(device_->ops(compute_type)),
        host_ops_(device_->host_ops(compute_type)),
        forward_(config(), cache_->layout(), ops_) {
    for (int i = 0; i < 2; ++i) {
      tables_.push_back(std::make_unique<PageTable>(*cache_));
      CHECK(tables_.back()->Grow(2 * kPagePositions).ok());
    }
  }

  const ModelConfig& config() const { return pack_->manifest().config; }
  const LayerWeights& weights(int64_t layer) const {
    return weights_->weights().layers[static_cast<size_t>(layer)];
  }
  Device& device() { return *device_; }
  Forward& forward() { return forward_; }
  Ops& ops() { return ops_; }
  Ops& host_ops() { return host_ops_; }
  std::byte* page(size_t sequence, int64_t layer, int64_t stretch) const {
    const PagePlace place = tables_[sequence]->PlaceOf(layer, stretch).value();
    return cache_->Page(place.slot, place.id);
  }

  // The pages of both sequences at all layers.
  std::vector<std::byte> PageBytes() const {
    std::vector<std::byte> bytes;
    for (size_t sequence = 0; sequence < tables_.size(); ++sequence) {
      for (int64_t layer = 0; layer < config().num_layers; ++layer) {
        for (int64_t stretch = 0; stretch < tables_[sequence]->num_stretches(); ++stretch) {
          const std::byte* bytes_of_page = page(sequence, layer, stretch);
          bytes.insert(bytes.end(), bytes_of_page, bytes_of_page + cache_->layout().page_bytes());
        }
      }
    }
    return bytes;
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pack> pack_;
  Pool pool_;
  std::unique_ptr<ResidentWeights> weights_;
  std::unique_ptr<KvCache> cache_;
  std::vector<std::unique_ptr<PageTable>> tables_;
  Ops& ops_;
  Ops& host_ops_;
  Forward forward_;
};

// A batch of some parts, one after the other, at one layer; owns what LayerBatch points to.
class BatchOf {
 public:
  BatchOf(const World& world, int64_t layer, const std::vector<Part>& parts)
      : slides_(IsSliding(world.config(), layer)) {
    pages_.reserve(parts.size());  // the spans keep addresses in it
    for (const Part& part : parts) {
      pages_.emplace_back();
      for (int64_t i = 0; i < PagesFor(part.first_position + part.count); ++i) {
        pages_.back().push_back(world.page(part.sequence, layer, i));
      }
      spans_.push_back({.first_row = num_rows(),
                        .num_rows = part.count,
                        .first_position = part.first_position,
                        .pages = pages_.back()});
      for (int64_t i = 0; i < part.count; ++i) {
        positions_.push_back(static_cast<int32_t>(part.first_position + i));
      }
    }
  }

  int64_t num_rows() const { return static_cast<int64_t>(positions_.size()); }
  LayerBatch all() const { return {slides_, positions_, spans_}; }
  LayerBatch OnlySpan(size_t span) const {
    return {slides_, positions_, std::span(spans_).subspan(span, 1)};
  }

 private:
  bool slides_;
  std::vector<std::vector<std::byte*>> pages_;
  std::vector<AttentionSpan> spans_;
  std::vector<int32_t> positions_;
};

// A matrix of hidden rows, random at first.
struct Hidden {
  Hidden(const ModelConfig& config, int64_t rows, uint64_t seed)
      : values(naive::RandomValues(rows * config.model_width, seed)),
        view{values.data(), rows, config.model_width, config.model_width} {}
  Hidden(const Hidden&) = delete;

  std::vector<float> values;
  MatrixView view;
};

// The first batch is a prompt; in the second its next chunk and another sequence.
const std::vector<Part> kFirst = {{0, 0, 37}};
const std::vector<Part> kSecond = {{0, 37, 5}, {1, 0, 9}};

struct Result {
  std::vector<float> first;
  std::vector<float> second;
  std::vector<std::byte> pages;

  bool operator==(const Result&) const = default;
};

// Scratch of exactly the size that is said to be needed, in which old values lie.
std::vector<float> ScratchOf(const World& world, int64_t rows) {
  return naive::RandomValues(Forward::ScratchFloats(world.config(), rows), 99);
}

Result RunLayers(World& world) {
  Hidden first(world.config(), 37, 1);
  Hidden second(world.config(), 14, 2);
  std::vector<float> scratch = ScratchOf(world, 37);
  for (int64_t layer = 0; layer < world.config().num_layers; ++layer) {
    const BatchOf first_batch(world, layer, kFirst);
    const BatchOf second_batch(world, layer, kSecond);
    world.forward().Layer(world.weights(layer), first_batch.all(), scratch, first.view);
    world.forward().Layer(world.weights(layer), second_batch.all(), scratch, second.view);
  }
  return {first.values, second.values, world.PageBytes()};
}

std::span<std::byte> BytesOf(float* first, float* last) {
  return std::as_writable_bytes(std::span(first, static_cast<size_t>(last - first)));
}

// As an executor of a discrete device goes about it: both batches begin before one is mixed, and
// one span of the second is mixed on the host from copies of its rows.
class PartsOnLanes {
 public:
  explicit PartsOnLanes(World& world)
      : world_(world),
        scratch_(ScratchOf(world, 37)),
        first_(world.config(), 37, 1),
        second_(world.config(), 14, 2),
        first_memory_(static_cast<size_t>(AttentionRows::Floats(world.config(), 37))),
        second_memory_(static_cast<size_t>(AttentionRows::Floats(world.config(), 14))),
        host_memory_(second_memory_.size()),
        first_rows_(AttentionRows::Carve(world.config(), 37, first_memory_)),
        second_rows_(AttentionRows::Carve(world.config(), 14, second_memory_)),
        host_rows_(AttentionRows::Carve(world.config(), 14, host_memory_)) {}

  Result Run() {
    {
      Lanes lanes(clock_);
      for (int64_t layer = 0; layer < world_.config().num_layers; ++layer) {
        IssueLayer(layer, lanes);
      }
    }
    for (Fence& fence : fences_) {
      EXPECT_OK(fence.Wait());
    }
    return {first_.values, second_.values, world_.PageBytes()};
  }

 private:
  struct Lanes {
    explicit Lanes(const Clock& clock)
        : compute(clock), download(clock), host(clock), upload(clock) {}
    Lane compute;
    Lane download;
    Lane host;
    Lane upload;
  };

  void IssueLayer(int64_t layer, Lanes& lanes) {
    Forward& forward = world_.forward();
    const LayerWeights& weights = world_.weights(layer);
    const BatchOf& first = batches_.emplace_back(world_, layer, kFirst);
    const BatchOf& second = batches_.emplace_back(world_, layer, kSecond);
    Fence* begun = Issue(lanes.compute, {}, [&] {
      forward.BeginLayer(weights, second.all(), scratch_, second_.view, second_rows_);
      forward.BeginLayer(weights, first.all(), scratch_, first_.view, first_rows_);
      return absl::OkStatus();
    });
    Fence* downloaded = Issue(lanes.download, {begun}, [&] {
      return world_.device().Download(BytesOf(second_rows_.q.data, second_rows_.mixed.data),
                                      BytesOf(host_rows_.q.data, host_rows_.mixed.data));
    });
    Fence* mixed = Issue(lanes.host, {downloaded}, [&] {
      forward.Mix(second.OnlySpan(1), host_rows_, world_.host_ops());
      return absl::OkStatus();
    });
    Issue(lanes.compute, {}, [&] {
      forward.Mix(first.all(), first_rows_, world_.ops());
      forward.FinishLayer(weights, first_rows_.mixed, scratch_, first_.view);
      forward.Mix(second.OnlySpan(0), second_rows_, world_.ops());
      return absl::OkStatus();
    });
    Fence* uploaded = Issue(lanes.upload, {mixed}, [&] {
      return world_.device().Upload(BytesOf(host_rows_.mixed.row(5), host_rows_.mixed.row(14)),
                                    BytesOf(second_rows_.mixed.row(5), second_rows_.mixed.row(14)));
    });
    Issue(lanes.compute, {uploaded}, [&] {
      forward.FinishLayer(weights, second_rows_.mixed, scratch_, second_.view);
      return absl::OkStatus();
    });
  }
  Fence* Issue(Lane& lane, std::vector<Fence*> waits, std::function<absl::Status()> work) {
    Fence* done = &fences_.emplace_back();
    lane.Issue(std::move(waits), std::move(work), done);
    return done;
  }

  World& world_;
  const RealClock clock_;
  std::vector<float> scratch_;
  Hidden first_;
  Hidden second_;
  std::vector<float> first_memory_;
  std::vector<float> second_memory_;
  std::vector<float> host_memory_;
  AttentionRows first_rows_;
  AttentionRows second_rows_;
  AttentionRows host_rows_;
  std::deque<BatchOf> batches_;
  std::deque<Fence> fences_;
};

class ForwardPartsTest : public testing::TestWithParam<const char*> {};

TEST_P(ForwardPartsTest, OnLanesInAnotherOrderTheyGiveTheBitsOfTheLayer) {
  const RealClock clock;
  for (const ComputeType compute_type : {ComputeType::kF32, ComputeType::kBF16}) {
    World whole(GetParam(), compute_type, CreateCpuDevice(2).value());
    World parts(GetParam(), compute_type,
                CreateDiscreteCpuDevice({.num_threads = 2}, clock).value());
    const Result expected = RunLayers(whole);
    EXPECT_EQ(PartsOnLanes(parts).Run(), expected);
    EXPECT_NE(expected.first, Hidden(whole.config(), 37, 1).values);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, ForwardPartsTest,
    testing::Values("opt", "opt_postnorm", "llama", "llama3_rope", "llama_linear_rope",
                    "llama_tied", "llama_yarn_rope", "mistral", "qwen2", "qwen3", "gemma2",
                    "gemma3", "gemma3_linear", "phi3", "olmo2", "granite", "stablelm", "gpt_neox",
                    "falcon", "mixtral", "qwen3_moe", "qwen3_moe_sparse", "qwen3_moe_step",
                    "qwen2_sliding", "phi3_longrope", "stablelm_parallel", "gpt_neox_sequential",
                    "falcon_heads"),
    [](const testing::TestParamInfo<const char*>& model) { return std::string(model.param); });

TEST(AttentionRowsTest, QueriesKeysAndValuesAreOneStretchOfMemory) {
  ModelConfig config;
  config.num_heads = 3;
  config.num_kv_heads = 1;
  config.head_width = 20;
  std::vector<float> memory(static_cast<size_t>(AttentionRows::Floats(config, 7)));
  const AttentionRows rows = AttentionRows::Carve(config, 7, memory);
  EXPECT_EQ(rows.q.data, memory.data());
  EXPECT_EQ(rows.k.data, rows.q.data + 7 * rows.q.stride);
  EXPECT_EQ(rows.v.data, rows.k.data + 7 * rows.k.stride);
  EXPECT_EQ(rows.mixed.data, rows.v.data + 7 * rows.v.stride);
  EXPECT_EQ(rows.mixed.data + 7 * rows.mixed.stride, memory.data() + memory.size());
}

}  // namespace
}  // namespace nightshift
