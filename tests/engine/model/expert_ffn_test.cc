#include "engine/model/expert_ffn.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/device.h"
#include "kernels/panel_layout.h"
#include "tests/support/naive_ops.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr int64_t kWidth = 48;
constexpr int64_t kInner = 40;
constexpr int64_t kExperts = 6;
constexpr int64_t kPerToken = 2;

// A random weight [N, K] of F32.
class RandomMatrix {
 public:
  RandomMatrix(int64_t outputs, int64_t inputs, uint64_t seed)
      : values_(naive::RandomValues(outputs * inputs, seed)),
        packed_(static_cast<size_t>(PanelElements(outputs, inputs)) + 16) {
    void* aligned = packed_.data();
    size_t space = packed_.size() * sizeof(float);
    std::align(64, 1, aligned, space);
    std::byte* const data = static_cast<std::byte*>(aligned);
    PackPanels(reinterpret_cast<const std::byte*>(values_.data()), DType::kF32, outputs, inputs,
               data);
    shard_ = {data, DType::kF32, 0, outputs, inputs};
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;

  MatMulWeights weights() const {
    return {.matrix = {shard_.outputs, shard_.inputs, std::span(&shard_, 1)}};
  }
  double at(int64_t n, int64_t k) const {
    return static_cast<double>(values_[static_cast<size_t>(n * shard_.inputs + k)]);
  }

 private:
  std::vector<float> values_;
  std::vector<float> packed_;
  WeightShardView shard_;
};

// Ops of the CPU that count how often each weight is multiplied.
class CountingOps : public Ops {
 public:
  explicit CountingOps(Ops& ops) : ops_(ops) {}
  std::map<const std::byte*, int> uses;

  void MatMul(const MatMulArgs& args) override {
    ++uses[args.weight.data];
    ops_.MatMul(args);
  }
  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override {
    ops_.RmsNorm(x, weight, epsilon, out);
  }
  void GatedActivate(Activation activation, MatrixView gate, MatrixView up) override {
    ops_.GatedActivate(activation, gate, up);
  }
  void GatherRows(MatrixView x, std::span<const int64_t> rows, MatrixView out) override {
    ops_.GatherRows(x, rows, out);
  }
  void AddScaledRows(MatrixView x, std::span<const int64_t> rows, std::span<const float> factors,
                     MatrixView out) override {
    ops_.AddScaledRows(x, rows, factors, out);
  }
  // Ops that experts have no use for.
  void EmbeddingGather(const WeightView&, std::span<const int32_t>, bool, MatrixView) override {
    ADD_FAILURE();
  }
  void LayerNorm(MatrixView, const float*, const float*, float, MatrixView) override {
    ADD_FAILURE();
  }
  void HeadRmsNorm(MatrixView, int64_t, const float*, float) override { ADD_FAILURE(); }
  void Rope(const RopeArgs&) override { ADD_FAILURE(); }
  void StoreKv(const StoreKvArgs&) override { ADD_FAILURE(); }
  void Attention(const AttentionArgs&) override { ADD_FAILURE(); }
  void Activate(Activation, MatrixView) override { ADD_FAILURE(); }
  void Scale(float, MatrixView) override { ADD_FAILURE(); }
  void AddScaled(MatrixView, float, MatrixView) override { ADD_FAILURE(); }
  void SoftCap(float, MatrixView) override { ADD_FAILURE(); }
  void HeadReduce(const HeadReduceArgs&) override { ADD_FAILURE(); }

 private:
  Ops& ops_;
};

// Brings shards of experts in the order that was told, and at once.
class TellingAccess : public WeightAccess {
 public:
  std::vector<WeightShardView> all;  // by tensor, of one shard each
  std::vector<size_t> hit;
  std::vector<size_t> told;  // tensors, all calls
  size_t num_acquired = 0;

  void BeginExperts(const ExpertDemand& demand) override {
    EXPECT_EQ(num_acquired, told.size());
    hit.assign(demand.hit.begin(), demand.hit.end());
    for (const ShardIndex& shard : demand.streamed) {
      told.push_back(shard.tensor);
    }
  }
  WeightShardView AcquireOfExpert(ShardIndex expected) override {
    EXPECT_EQ(expected.tensor, told.at(num_acquired));
    ++num_acquired;
    return all[expected.tensor];
  }
  void ReleaseOfExpert() override {}
  WeightShardView Acquire(ShardIndex) override { return {}; }
  void Release() override { ADD_FAILURE(); }
  void ReadAside(std::span<const ShardIndex>,
                 const std::function<void(const WeightShardView&)>&) override {
    ADD_FAILURE();
  }
};

class ExpertFeedForwardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, CreateCpuDevice(2));
    config_.model_width = kWidth;
    config_.num_layers = 1;
    config_.experts = ExpertConfig{
        .count = kExperts, .per_token = kPerToken, .ffn_width = kInner, .layers = {true}};
    norm_.assign(kWidth, 1.0F);
    router_ = std::make_unique<RandomMatrix>(kExperts, kWidth, 1);
    for (uint64_t i = 0; i < kExperts; ++i) {
      gates_.push_back(std::make_unique<RandomMatrix>(kInner, kWidth, 10 + i));
      ups_.push_back(std::make_unique<RandomMatrix>(kInner, kWidth, 20 + i));
      downs_.push_back(std::make_unique<RandomMatrix>(kWidth, kInner, 30 + i));
      weights_.experts.push_back(
          {gates_.back()->weights(), ups_.back()->weights(), downs_.back()->weights()});
    }
    weights_.ffn_norm.weight = norm_.data();
    weights_.router = router_->weights();
  }
  // `hidden` [T, E] after the branch.
  std::vector<float> Run(std::vector<float> hidden, int64_t piece_rows, Ops& ops,
                         WeightAccess* access = nullptr) {
    const int64_t rows = static_cast<int64_t>(hidden.size()) / kWidth;
    std::vector<float> scratch(
        static_cast<size_t>(ExpertFeedForward::ScratchFloats(config_, rows, piece_rows)));
    ExpertFeedForward(config_, piece_rows, ops, access)
        .Run(weights_, scratch, {hidden.data(), rows, kWidth, kWidth});
    return hidden;
  }
  // One row, in double.
  std::vector<double> Naive(std::span<const float> hidden) const {
    const std::vector<double> x = naive::RmsNorm(hidden, norm_, 1e-5).values;
    std::vector<float> logits;
    for (int64_t n = 0; n < kExperts; ++n) {
      logits.push_back(static_cast<float>(Dot(*router_, n, x)));
    }
    std::vector<ExpertChoice> choices(kPerToken);
    ChooseExperts(logits, true, choices);
    std::vector<double> out(hidden.begin(), hidden.end());
    for (const ExpertChoice& choice : choices) {
      const size_t expert = static_cast<size_t>(choice.expert);
      std::vector<double> inner;
      for (int64_t n = 0; n < kInner; ++n) {
        inner.push_back(naive::Activate(Activation::kSilu, Dot(*gates_[expert], n, x)) *
                        Dot(*ups_[expert], n, x));
      }
      for (int64_t n = 0; n < kWidth; ++n) {
        out[static_cast<size_t>(n)] +=
            static_cast<double>(choice.weight) * Dot(*downs_[expert], n, inner);
      }
    }
    return out;
  }
  static double Dot(const RandomMatrix& weight, int64_t n, const std::vector<double>& x) {
    double sum = 0.0;
    for (size_t k = 0; k < x.size(); ++k) {
      sum += weight.at(n, static_cast<int64_t>(k)) * x[k];
    }
    return sum;
  }
  Ops& ops() { return device_->ops(ComputeType::kF32); }

  std::unique_ptr<Device> device_;
  ModelConfig config_;
  std::vector<float> norm_;
  std::unique_ptr<RandomMatrix> router_;
  std::vector<std::unique_ptr<RandomMatrix>> gates_;
  std::vector<std::unique_ptr<RandomMatrix>> ups_;
  std::vector<std::unique_ptr<RandomMatrix>> downs_;
  LayerWeights weights_;
};

TEST_F(ExpertFeedForwardTest, RowsGetTheWeightedSumOfTheirExperts) {
  const std::vector<float> hidden = naive::RandomValues(20 * kWidth, 5);
  const std::vector<float> out = Run(hidden, 7, ops());
  for (size_t row = 0; row < 20; ++row) {
    const std::vector<double> expected = Naive(std::span(hidden).subspan(row * kWidth, kWidth));
    for (size_t i = 0; i < kWidth; ++i) {
      // Sums of 48 terms of some tens.
      EXPECT_NEAR(static_cast<double>(out[row * kWidth + i]), expected[i], 1e-3) << row;
    }
  }
}

TEST_F(ExpertFeedForwardTest, ARowHasTheSameBitsInEverySweepAndPiece) {
  const std::vector<float> hidden = naive::RandomValues(65 * kWidth, 6);
  const std::vector<float> whole = Run(hidden, 512, ops());
  EXPECT_EQ(Run(hidden, 1, ops()), whole);
  EXPECT_EQ(Run(hidden, 10, ops()), whole);
  for (size_t row = 0; row < 65; row += 8) {
    const auto first = static_cast<std::ptrdiff_t>(row * kWidth);
    const std::vector<float> alone(hidden.begin() + first, hidden.begin() + first + kWidth);
    EXPECT_EQ(Run(alone, 512, ops()),
              std::vector<float>(whole.begin() + first, whole.begin() + first + kWidth));
  }
}

TEST_F(ExpertFeedForwardTest, EachExpertRunsOnceForAllItsRows) {
  CountingOps counting(ops());
  Run(naive::RandomValues(100 * kWidth, 7), 100, counting);
  // The router and three matrices of each expert.
  EXPECT_EQ(counting.uses.size(), 1U + 3U * kExperts);
  for (const auto& [data, uses] : counting.uses) {
    EXPECT_EQ(uses, 1);
  }
}

// What is not in memory is told as soon as the rows are routed, in the order of the file, so that it
// can be read ahead; what no row chose is not told.
TEST_F(ExpertFeedForwardTest, TellsWhatIsNotInMemoryInOrderBeforeItIsUsed) {
  const std::vector<float> hidden = naive::RandomValues(3 * kWidth, 9);
  const std::vector<float> expected = Run(hidden, 100, ops());
  TellingAccess access;
  std::vector<WeightShardView> streamed;
  streamed.reserve(3 * kExperts);
  for (size_t i = 0; i < kExperts; ++i) {
    ExpertWeights& expert = weights_.experts[i];
    for (MatMulWeights* matrix : {&expert.gate, &expert.up, &expert.down}) {
      matrix->tensor = access.all.size();
      access.all.push_back(matrix->matrix.shards[0]);
      streamed.push_back(access.all.back());
      if (i != 2) {
        streamed.back().data = nullptr;
      }
      matrix->matrix.shards = std::span(&streamed.back(), 1);
    }
  }
  EXPECT_EQ(Run(hidden, 100, ops(), &access), expected);
  EXPECT_EQ(access.num_acquired, access.told.size());
  EXPECT_TRUE(std::is_sorted(access.told.begin(), access.told.end()));
  const bool hits_resident = std::count(access.hit.begin(), access.hit.end(), 2) > 0;
  EXPECT_EQ(access.told.size(), 3 * (access.hit.size() - (hits_resident ? 1 : 0)));
  // In pieces an expert is brought once for each.
  EXPECT_EQ(Run(hidden, 1, ops(), &access), expected);
  EXPECT_EQ(access.num_acquired, access.told.size());
}

TEST_F(ExpertFeedForwardTest, ExpertsThatNoRowChoosesDoNotRun) {
  CountingOps counting(ops());
  Run(naive::RandomValues(kWidth, 8), 100, counting);
  EXPECT_EQ(counting.uses.size(), 1U + 3U * kPerToken);
}

}  // namespace
}  // namespace nightshift
