#include <cmath>
#include <string>

#include "tests/kernels/ops_test_support.h"

namespace nightshift {
namespace {

constexpr int64_t kColumns[] = {1, 3, 16, 17, 64, 333, 1000};
constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kSilu,
                                       Activation::kGeluTanh, Activation::kGeluErf};

class RowOpsTest : public OpsTargetTest {
 protected:
  RowOpsTest() : device_(CreateDevice(2)) {}
  Ops& ops() { return device_->ops(ComputeType::kF32); }

 private:
  std::unique_ptr<Device> device_;
};

TEST_P(RowOpsTest, RmsNormAgreesWithTheOracle) {
  for (const int64_t columns : kColumns) {
    const std::vector<float> weight = naive::RandomValues(columns, 1);
    Matrix x(columns, naive::RandomValues(5 * columns, 2));
    Matrix out(5, columns, 3);
    ops().RmsNorm(x.view(), weight.data(), 1e-5F, out.view());
    for (int64_t row = 0; row < 5; ++row) {
      ExpectWithin(out.Row(row), naive::RmsNorm(x.Row(row), weight, 1e-5));
    }
  }
}

TEST_P(RowOpsTest, LayerNormAgreesWithTheOracle) {
  for (const int64_t columns : kColumns) {
    const std::vector<float> weight = naive::RandomValues(columns, 3);
    const std::vector<float> bias = naive::RandomValues(columns, 4);
    Matrix x(columns, naive::RandomValues(5 * columns, 5));
    Matrix out(5, columns, 3);
    ops().LayerNorm(x.view(), weight.data(), bias.data(), 1e-5F, out.view());
    for (int64_t row = 0; row < 5; ++row) {
      ExpectWithin(out.Row(row), naive::LayerNorm(x.Row(row), weight, bias, 1e-5));
    }
  }
}

TEST_P(RowOpsTest, NormsWorkInPlaceAndDoNotDependOnOtherRows) {
  const int64_t columns = 333;
  const std::vector<float> weight = naive::RandomValues(columns, 6);
  Matrix x(columns, naive::RandomValues(513 * columns, 7));
  Matrix last(columns, x.Row(512));
  ops().RmsNorm(x.view(), weight.data(), 1e-6F, x.view());
  ops().LayerNorm(x.view(), weight.data(), weight.data(), 1e-6F, x.view());
  ops().RmsNorm(last.view(), weight.data(), 1e-6F, last.view());
  ops().LayerNorm(last.view(), weight.data(), weight.data(), 1e-6F, last.view());
  EXPECT_EQ(BitsOf(x.Row(512)), BitsOf(last.Row(0)));
}

TEST_P(RowOpsTest, HeadRmsNormAgreesWithTheOracleHeadByHead) {
  for (const int64_t width : kColumns) {
    const std::vector<float> weight = naive::RandomValues(width, 13);
    Matrix x(3 * width, naive::RandomValues(5 * 3 * width, 14));
    const std::vector<float> before = x.values();
    ops().HeadRmsNorm(x.view(), width, weight.data(), 1e-6F);
    for (int64_t head = 0; head < 15; ++head) {
      const auto first = before.begin() + head * width;
      const auto after = x.values().begin() + head * width;
      ExpectWithin({after, after + width},
                   naive::RmsNorm(std::vector<float>(first, first + width), weight, 1e-6));
    }
  }
}

TEST_P(RowOpsTest, ScalesAndAddsWithOneRoundingEach) {
  for (const int64_t columns : kColumns) {
    const Matrix x(columns, naive::RandomValues(3 * columns, 15));
    Matrix scaled = x;
    Matrix sum(columns, naive::RandomValues(3 * columns, 16));
    const std::vector<float> before = sum.values();
    ops().Scale(0.6F, scaled.view());
    Matrix added = x;
    ops().AddScaled(added.view(), 0.6F, sum.view());
    for (size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(scaled.values()[i], 0.6F * x.values()[i]);
      const double product = static_cast<double>(0.6F) * static_cast<double>(x.values()[i]);
      const double start = static_cast<double>(before[i]);
      ASSERT_NEAR(static_cast<double>(sum.values()[i]), start + product,
                  2.0 * naive::kF32Rounding * (std::abs(start) + std::abs(product)));
    }
  }
}

TEST_P(RowOpsTest, SoftCapAgreesWithTheOracleOverItsRange) {
  for (const float cap : {0.5F, 30.0F}) {
    std::vector<float> values;
    for (float x = -100.0F; x < 100.0F; x += 0.0371F) {
      values.push_back(x);
    }
    values.insert(values.end(), {0.0F, 1e-20F, -1e-6F, 1e30F, -1e30F});
    const float nan = std::nanf("");
    values.push_back(nan);
    Matrix x(static_cast<int64_t>(values.size()), values);
    ops().SoftCap(cap, x.view());
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      const double expected =
          naive::SoftCap(static_cast<double>(values[i]), static_cast<double>(cap));
      ASSERT_NEAR(static_cast<double>(x.values()[i]), expected,
                  8.0 * naive::kF32Rounding * std::abs(expected))
          << values[i] << " cap " << cap;
    }
    EXPECT_TRUE(std::isnan(x.values().back()));
  }
}

// From the activation itself: 8 roundings of the result, and of the input through the slope,
// which is below 1.2 everywhere.
void ExpectActivated(Activation activation, float x, float factor, float actual) {
  const double expected =
      naive::Activate(activation, static_cast<double>(x)) * static_cast<double>(factor);
  const double size = std::abs(expected) + std::abs(static_cast<double>(x * factor));
  ASSERT_NEAR(static_cast<double>(actual), expected, 8.0 * naive::kF32Rounding * size)
      << "activation " << static_cast<int>(activation) << " of " << x;
}

TEST_P(RowOpsTest, ActivationsAgreeWithTheOracleOverTheirRange) {
  for (const Activation activation : kActivations) {
    std::vector<float> values;
    for (float x = -30.0F; x < 30.0F; x += 0.0137F) {
      values.push_back(x);
    }
    values.insert(values.end(), {0.0F, -0.0F, 1e-20F, -1e-20F, 150.0F, -150.0F, 1e30F, -1e30F});
    Matrix x(static_cast<int64_t>(values.size()), values);
    ops().Activate(activation, x.view());
    for (size_t i = 0; i < values.size(); ++i) {
      ExpectActivated(activation, values[i], 1.0F, x.values()[i]);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(RowOpsTest, GatedActivationsMultiplyByTheSecondMatrix) {
  for (const Activation activation : kActivations) {
    for (const int64_t columns : kColumns) {
      Matrix gate(columns, naive::RandomValues(3 * columns, 8));
      Matrix up(columns, naive::RandomValues(3 * columns, 9));
      const std::vector<float> before = gate.values();
      ops().GatedActivate(activation, gate.view(), up.view());
      for (size_t i = 0; i < before.size(); ++i) {
        ExpectActivated(activation, before[i], up.values()[i], gate.values()[i]);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(RowOpsTest, ActivationsDoNotDependOnTheColumn) {
  for (const Activation activation : kActivations) {
    Matrix x(37, std::vector<float>(37 * 2, 0.7321F));
    ops().Activate(activation, x.view());
    EXPECT_EQ(BitsOf(x.values()), BitsOf(std::vector<float>(37 * 2, x.at(0, 0))));
  }
}

TEST_P(RowOpsTest, RopeAgreesWithTheOracle) {
  const std::vector<int32_t> positions = {0, 1, 77, 4095, 131071};
  for (const int64_t width : {2, 16, 24, 64, 80}) {
    for (const int64_t pairs : {int64_t{1}, width / 2}) {
      std::vector<float> frequencies;
      for (int64_t i = 0; i < pairs; ++i) {
        frequencies.push_back(
            std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(pairs)));
      }
      Matrix x(3 * width, naive::RandomValues(5 * 3 * width, 10));
      const std::vector<float> before = x.values();
      ops().Rope({.x = x.view(),
                  .heads = 3,
                  .head_width = width,
                  .inverse_frequencies = frequencies,
                  .magnitude = 1.25F,
                  .positions = positions});
      for (int64_t head = 0; head < 15; ++head) {
        const auto first = before.begin() + head * width;
        naive::Result expected = {naive::Rope(std::vector<float>(first, first + width), frequencies,
                                              positions[static_cast<size_t>(head / 3)], 1.25),
                                  {}};
        expected.tolerances.assign(static_cast<size_t>(width), 8.0 * naive::kF32Rounding);
        const auto after = x.values().begin() + head * width;
        ExpectWithin({after, after + width}, expected);
      }
    }
  }
}

TEST_P(RowOpsTest, RopeFollowsItsArgumentsFromCallToCall) {
  const auto rotate = [&](int32_t position, float frequency, float magnitude) {
    Matrix x(2, std::vector<float>{1.0F, 0.0F});
    ops().Rope({.x = x.view(),
                .heads = 1,
                .head_width = 2,
                .inverse_frequencies = {&frequency, 1},
                .magnitude = magnitude,
                .positions = {&position, 1}});
    return x.at(0, 0);
  };
  EXPECT_NEAR(rotate(1, 1.0F, 1.0F), std::cos(1.0F), 1e-6F);
  EXPECT_NEAR(rotate(2, 1.0F, 1.0F), std::cos(2.0F), 1e-6F);
  EXPECT_NEAR(rotate(2, 0.5F, 1.0F), std::cos(1.0F), 1e-6F);
  EXPECT_NEAR(rotate(2, 0.5F, 2.0F), 2.0F * std::cos(1.0F), 1e-6F);
  EXPECT_NEAR(rotate(1, 1.0F, 1.0F), std::cos(1.0F), 1e-6F);
}

TEST_P(RowOpsTest, EmbeddingGatherReadsRowsOfEveryShardAndType) {
  const std::vector<int32_t> ids = {0, 63, 64, 129, 5, 128};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kU4G64, DType::kI4G32,
                            DType::kU8G32, DType::kI8G64}) {
    const RandomWeight table(dtype, 130, 37, 11);
    const WeightShardView shards[] = {table.Shard(0, 64), table.Shard(64, 66)};
    const WeightView view = {.outputs = 130, .inputs = 37, .shards = shards};
    Matrix out(6, 37, 2);
    ops().EmbeddingGather(view, ids, false, out.view());
    for (int64_t row = 0; row < 6; ++row) {
      const auto first = table.values.begin() + ids[static_cast<size_t>(row)] * 37;
      EXPECT_EQ(out.Row(row), std::vector<float>(first, first + 37)) << DTypeName(dtype);
    }
    ops().EmbeddingGather(view, ids, true, out.view());
    EXPECT_EQ(out.at(3, 36), 2.0F * table.values[129 * 37 + 36]);
  }
}

TEST_P(RowOpsTest, EmbeddingGatherInBf16ReadsWhatAMatmulWouldMultiplyBy) {
  const auto device = CreateDevice(1);
  const std::vector<int32_t> ids = {69, 3};
  for (const DType dtype : {DType::kU4G64, DType::kI8G32}) {
    const RandomWeight table(dtype, 70, 100, 13);
    const WeightShardView shard = table.shard();
    Matrix out(2, 100);
    device->ops(ComputeType::kBF16)
        .EmbeddingGather({.outputs = 70, .inputs = 100, .shards = {&shard, 1}}, ids, false,
                         out.view());
    for (int64_t row = 0; row < 2; ++row) {
      const auto first = table.values.begin() + ids[static_cast<size_t>(row)] * 100;
      EXPECT_EQ(out.Row(row), naive::RoundTo(DType::kBF16, {first, first + 100}));
    }
  }
}

TEST_P(RowOpsTest, ScaledRowsAreAddedWhereTheyBelong) {
  const int64_t columns = 37;
  Matrix out(columns, naive::RandomValues(columns * 6, 31));
  const Matrix before = out;
  Matrix x(columns, naive::RandomValues(columns * 3, 32));
  const std::vector<int64_t> rows = {5, 0, 2};
  const std::vector<float> factors = {0.25F, -3.0F, 0.7F};
  ops().AddScaledRows(x.view(), rows, factors, out.view());
  Matrix one_by_one = before;
  for (int64_t i = 0; i < 3; ++i) {
    const size_t index = static_cast<size_t>(i);
    ops().AddScaled(x.view().Rows(i, 1), factors[index], one_by_one.view().Rows(rows[index], 1));
  }
  EXPECT_EQ(BitsOf(out.values()), BitsOf(one_by_one.values()));
  EXPECT_NE(out.Row(5), before.Row(5));
  EXPECT_EQ(out.Row(1), before.Row(1));
}

TEST_P(RowOpsTest, GatherRowsCopiesTheNamedRows) {
  Matrix x(9, naive::RandomValues(4 * 9, 12));
  Matrix out(3, 9, 1);
  const std::vector<int64_t> rows = {3, 0, 3};
  ops().GatherRows(x.view(), rows, out.view());
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(out.Row(i), x.Row(rows[static_cast<size_t>(i)]));
  }
}

INSTANTIATE_ON_OPS_TARGETS(RowOpsTest);

}  // namespace
}  // namespace nightshift
