#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/kernels/ops_test_support.h"

namespace nightshift {
namespace {

struct Types {
  ComputeType compute;
  DType weight;
};
constexpr Types kTypes[] = {
    {ComputeType::kF32, DType::kF32},    {ComputeType::kF32, DType::kF16},
    {ComputeType::kF32, DType::kBF16},   {ComputeType::kBF16, DType::kBF16},
    {ComputeType::kF32, DType::kU4G64},  {ComputeType::kF32, DType::kI8G32},
    {ComputeType::kBF16, DType::kI4G64}, {ComputeType::kBF16, DType::kU8G32},
    {ComputeType::kInt8, DType::kBF16},  {ComputeType::kInt8, DType::kI8G32},
    {ComputeType::kInt8, DType::kI4G32}, {ComputeType::kInt8, DType::kU4G32},
    {ComputeType::kInt8, DType::kU4G64}, {ComputeType::kInt8, DType::kU8G32},
    {ComputeType::kInt8, DType::kU8G64}, {ComputeType::kInt8, DType::kI8G64},
    {ComputeType::kInt8, DType::kI4G64}};
constexpr DType kGroupTypes[] = {DType::kI8G32, DType::kI4G32, DType::kU4G32, DType::kU4G64,
                                 DType::kU8G32, DType::kU8G64, DType::kI8G64, DType::kI4G64};

std::string Describe(const Types& types) {
  return std::string(ComputeTypeName(types.compute)) + " x " + DTypeName(types.weight);
}

// Rows of inputs as codes of 8 bits by the scale of their group stand for them.
std::vector<float> RoundToBytes(const std::vector<float>& x, int64_t inputs, int64_t group) {
  std::vector<float> rounded = x;
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(inputs)) {
    for (int64_t first = 0; first < inputs; first += group) {
      const auto begin = rounded.begin() + static_cast<int64_t>(row) + first;
      const auto end = begin + std::min(group, inputs - first);
      float most = 0.0F;
      std::for_each(begin, end, [&](float value) { most = std::max(most, std::abs(value)); });
      std::for_each(begin, end, [&](float& value) {
        value = most == 0.0F ? 0.0F : std::nearbyint(value * (127.0F / most)) * (most / 127.0F);
      });
    }
  }
  return rounded;
}

class MatMulTest : public OpsTargetTest {
 protected:
  // What the target multiplies: CUDA has no compute type int8.
  static std::vector<Types> TypesOfTarget() {
    std::vector<Types> types(std::begin(kTypes), std::end(kTypes));
    if (IsCuda()) {
      std::erase_if(types, [](const Types& one) {
        return one.compute == ComputeType::kInt8;
      });
    }
    return types;
  }
  // Multiplies all rows of `x` in one call.
  static std::vector<float> Multiply(Device& device, ComputeType compute,
                                     const RandomWeight& weight, const std::vector<float>& x) {
    Matrix input(weight.inputs, x);
    Matrix out(input.view().rows, weight.outputs);
    device.ops(compute).MatMul({.x = input.view(), .weight = weight.shard(), .out = out.view()});
    return out.values();
  }

  static void ExpectOracle(Device& device, const Types& types, int64_t rows, int64_t outputs,
                           int64_t inputs) {
    SCOPED_TRACE(Describe(types) + " " + std::to_string(rows) + "x" + std::to_string(outputs) +
                 "x" + std::to_string(inputs));
    const RandomWeight weight(types.weight, outputs, inputs, 1);
    std::vector<float> x = naive::RandomValues(rows * inputs, 2);
    const std::vector<float> out = Multiply(device, types.compute, weight, x);
    std::vector<float> values = weight.values;
    const std::optional<GroupFormat> groups = GroupFormatOf(types.weight);
    if (types.compute == ComputeType::kInt8 && groups) {
      x = RoundToBytes(x, inputs, groups->group);
    } else if (types.compute != ComputeType::kF32) {
      x = naive::RoundTo(DType::kBF16, x);
      values = naive::RoundTo(DType::kBF16, values);
    }
    ExpectWithin(out, naive::MatMul(x, values, {}, outputs, inputs));
  }
};

TEST_P(MatMulTest, AgreesWithTheOracleForEachTypeAndShape) {
  const auto device = CreateDevice(2);
  for (const Types& types : TypesOfTarget()) {
    for (const int64_t rows : {1, 2, 5, 13}) {
      for (const int64_t outputs : {1, 63, 64, 65, 200}) {
        for (const int64_t inputs : {1, 2, 31, 33, 100}) {
          ExpectOracle(*device, types, rows, outputs, inputs);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Whatever way they take by the number of rows: multiplied on the way, or expanded before.
TEST_P(MatMulTest, GroupsGiveTheBitsOfTheirValuesAsFloats) {
  if (IsCuda()) GTEST_SKIP() << "cuBLAS multiplies floats, a kernel of ours groups: in other orders";
  const auto device = CreateDevice(2);
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16}) {
    const DType plain = ComputedDType(compute);
    for (const DType type : kGroupTypes) {
      for (const int64_t inputs : {7, 100, 322}) {
        const RandomWeight groups(type, 70, inputs, static_cast<uint64_t>(inputs));
        const RandomWeight floats(plain, 70, inputs, groups.values);
        for (const int64_t rows : {1, 2, 3, 4, 5, 10, 12, 13, 25}) {
          SCOPED_TRACE(Describe({compute, type}) + ", " + std::to_string(rows) + " rows of " +
                       std::to_string(inputs));
          const std::vector<float> x = naive::RandomValues(rows * inputs, 2);
          ASSERT_EQ(BitsOf(Multiply(*device, compute, groups, x)),
                    BitsOf(Multiply(*device, compute, floats, x)));
        }
      }
    }
  }
}

TEST_P(MatMulTest, AgreesWithTheOracleOnSumsLongerThanABlock) {
  const auto device = CreateDevice(2);
  for (const Types& types : TypesOfTarget()) {
    ExpectOracle(*device, types, 7, 96, 2051);
  }
}

// On both sides of where rows become many, which take the weights in blocks of inputs.
TEST_P(MatMulTest, GivesARowTheSameBitsAloneAndAtEveryPosition) {
  const auto device = CreateDevice(2);
  for (const Types& types : TypesOfTarget()) {
    SCOPED_TRACE(Describe(types));
    const RandomWeight weight(types.weight, 80, 1700, 3);
    const std::vector<float> row = naive::RandomValues(weight.inputs, 4);
    const auto alone = BitsOf(Multiply(*device, types.compute, weight, row));
    const std::vector<int64_t> counts = IsCuda()
                                            ? std::vector<int64_t>{7, 64, 513}
                                            : std::vector<int64_t>{5, 6, 7, 8, 9, 24, 25, 64, 513};
    for (const int64_t rows : counts) {
      std::vector<float> x;
      for (int64_t i = 0; i < rows; ++i) {
        x.insert(x.end(), row.begin(), row.end());
      }
      const auto together = BitsOf(Multiply(*device, types.compute, weight, x));
      for (size_t i = 0; i < together.size(); ++i) {
        ASSERT_EQ(together[i], alone[i % alone.size()]) << rows << " rows, element " << i;
      }
    }
  }
}

TEST_P(MatMulTest, GivesTheSameBitsAmongOtherRowsAndForOneThreadAndTwo) {
  const auto one = CreateDevice(1);
  const auto two = CreateDevice(2);
  for (const Types& types : TypesOfTarget()) {
    SCOPED_TRACE(Describe(types));
    const RandomWeight weight(types.weight, 130, 333, 5);
    const std::vector<float> x = naive::RandomValues(301 * weight.inputs, 6);
    const std::vector<float> together = Multiply(*two, types.compute, weight, x);
    EXPECT_EQ(BitsOf(together), BitsOf(Multiply(*one, types.compute, weight, x)));
    for (const int64_t row : {0, 5, 6, 239, 240, 299, 300}) {
      const auto first = x.begin() + row * weight.inputs;
      const auto alone = Multiply(*one, types.compute, weight, {first, first + weight.inputs});
      const auto out = together.begin() + row * weight.outputs;
      EXPECT_EQ(BitsOf(alone), BitsOf({out, out + weight.outputs})) << "row " << row;
    }
  }
}

TEST_P(MatMulTest, WritesOnlyTheColumnsOfItsShard) {
  const auto device = CreateDevice(2);
  const RandomWeight weight(DType::kBF16, 150, 40, 7);
  Matrix x(weight.inputs, naive::RandomValues(3 * weight.inputs, 8));
  Matrix out(3, weight.outputs, 5);
  device->ops(ComputeType::kF32)
      .MatMul({.x = x.view(), .weight = weight.Shard(64, 64), .out = out.view()});
  const std::vector<float> whole = Multiply(*device, ComputeType::kF32, weight, x.values());
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t n = 0; n < weight.outputs; ++n) {
      const bool is_inside = n >= 64 && n < 128;
      EXPECT_EQ(out.at(row, n), is_inside ? whole[static_cast<size_t>(row * weight.outputs + n)]
                                          : Matrix::kUntouched);
    }
    for (int64_t n = 0; n < (row < 2 ? 5 : 0); ++n) {
      EXPECT_EQ(out.at(row, weight.outputs + n), Matrix::kUntouched) << "between rows";
    }
  }
}

// Of several types, so that what is prepared of x differs; one row more than are prepared together.
TEST_P(MatMulTest, MultipliesTheSameInputsByOneWeightAfterAnother) {
  const auto device = CreateDevice(2);
  const std::vector<float> values = naive::RandomValues(513 * 70, 9);
  for (const ComputeType compute : {ComputeType::kF32, ComputeType::kBF16, ComputeType::kInt8}) {
    if (IsCuda() && compute == ComputeType::kInt8) continue;
    SCOPED_TRACE(ComputeTypeName(compute));
    Matrix x(70, values);
    bool same_x = false;
    for (const DType type : {DType::kBF16, DType::kBF16, DType::kU4G64, DType::kI8G32, DType::kF32,
                             DType::kF16, DType::kBF16}) {
      if (compute != ComputeType::kF32 && (type == DType::kF32 || type == DType::kF16)) continue;
      const RandomWeight weight(type, 65, 70, 10);
      Matrix out(x.view().rows, weight.outputs);
      device->ops(compute).MatMul(
          {.x = x.view(), .weight = weight.shard(), .out = out.view(), .same_x = same_x});
      same_x = true;
      const auto fresh = CreateDevice(2);
      EXPECT_EQ(BitsOf(out.values()), BitsOf(Multiply(*fresh, compute, weight, values)))
          << DTypeName(type);
    }
  }
}

// So that a bad activation shows in the logits; one that is too small to have an inverse is 0.
TEST_P(MatMulTest, InputsThatAreNotFiniteAreNotHiddenByRoundingToBytes) {
  if (IsCuda()) GTEST_SKIP() << "the CUDA device has no compute type int8";
  const auto device = CreateDevice(2);
  const RandomWeight weight(DType::kU4G64, 64, 200, 14);
  for (const float bad : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = naive::RandomValues(weight.inputs, 15);
    x[100] = bad;
    for (const float out : Multiply(*device, ComputeType::kInt8, weight, x)) {
      EXPECT_TRUE(std::isnan(out));
    }
  }
  const std::vector<float> tiny(200, 1e-38F);
  for (const float out : Multiply(*device, ComputeType::kInt8, weight, tiny)) {
    EXPECT_EQ(out, 0.0F);
  }
}

TEST_P(MatMulTest, AddsTheBiasAndThenTheOldOutput) {
  const auto device = CreateDevice(1);
  const RandomWeight weight(DType::kF16, 70, 20, 9);
  const std::vector<float> bias = naive::RandomValues(70, 10);
  Matrix x(weight.inputs, naive::RandomValues(4 * weight.inputs, 11));
  Matrix out(weight.outputs, naive::RandomValues(4 * weight.outputs, 12));
  const std::vector<float> old = out.values();
  const std::vector<float> product = Multiply(*device, ComputeType::kF32, weight, x.values());
  device->ops(ComputeType::kF32)
      .MatMul({.x = x.view(),
               .weight = weight.shard(),
               .bias = bias.data(),
               .out = out.view(),
               .accumulate = true});
  for (size_t i = 0; i < old.size(); ++i) {
    EXPECT_EQ(out.values()[i], old[i] + (product[i] + bias[i % 70]));
  }
}

TEST_P(MatMulTest, DoesNothingForNoRows) {
  const auto device = CreateDevice(2);
  const RandomWeight weight(DType::kF32, 64, 32, 13);
  EXPECT_TRUE(Multiply(*device, ComputeType::kF32, weight, {}).empty());
}

INSTANTIATE_ON_OPS_TARGETS(MatMulTest);

}  // namespace
}  // namespace nightshift
