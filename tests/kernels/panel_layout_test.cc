#include "kernels/panel_layout.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/dtype.h"

namespace nightshift {
namespace {

template <typename T>
std::vector<T> Pack(DType dtype, int64_t outputs, int64_t inputs) {
  std::vector<T> source;
  for (int64_t i = 0; i < outputs * inputs; ++i) {
    source.push_back(static_cast<T>(i + 1));
  }
  std::vector<T> packed(static_cast<size_t>(PanelElements(outputs, inputs)), T{77});
  PackPanels(reinterpret_cast<const std::byte*>(source.data()), dtype, outputs, inputs,
             reinterpret_cast<std::byte*>(packed.data()));
  return packed;
}

// Walks the layout [N/64][K/2][64][2] in order.
template <typename T>
void ExpectPacked(DType dtype, int64_t outputs, int64_t inputs) {
  const std::vector<T> packed = Pack<T>(dtype, outputs, inputs);
  size_t index = 0;
  for (int64_t panel = 0; panel < RoundUp(outputs, 64) / 64; ++panel) {
    for (int64_t pair = 0; pair < RoundUp(inputs, 32) / 2; ++pair) {
      for (int64_t lane = 0; lane < 128; ++lane, ++index) {
        const int64_t n = panel * 64 + lane / 2;
        const int64_t k = pair * 2 + lane % 2;
        const bool is_real = n < outputs && k < inputs;
        ASSERT_EQ(packed[index], is_real ? static_cast<T>(n * inputs + k + 1) : T{0})
            << "n " << n << " k " << k;
        ASSERT_EQ(static_cast<int64_t>(index), PanelOffset(n, k, RoundUp(inputs, 32)));
      }
    }
  }
  ASSERT_EQ(index, packed.size());
}

TEST(PanelLayoutTest, PutsEachElementInItsPlaceAndZerosAround) {
  for (const int64_t outputs : {1, 63, 64, 65, 130}) {
    for (const int64_t inputs : {1, 2, 31, 32, 33, 64}) {
      ExpectPacked<uint16_t>(DType::kBF16, outputs, inputs);
      ExpectPacked<uint16_t>(DType::kF16, outputs, inputs);
      ExpectPacked<float>(DType::kF32, outputs, inputs);
    }
  }
}

TEST(PanelLayoutTest, RefusesQuantisedTypes) {
  std::byte memory[16] = {};
  EXPECT_DEATH(PackPanels(memory, DType::kI8G32, 1, 1, memory), "IsFloat");
}

TEST(DTypeTest, NamesAndSizesOfFloatTypes) {
  EXPECT_STREQ(DTypeName(DType::kBF16), "BF16");
  EXPECT_STREQ(DTypeName(DType::kU4G64), "U4G64");
  EXPECT_EQ(FloatBytes(DType::kF32), 4);
  EXPECT_EQ(FloatBytes(DType::kF16), 2);
  EXPECT_FALSE(IsFloat(DType::kI4G32));
  EXPECT_STREQ(ComputeTypeName(ComputeType::kBF16), "bf16");
}

}  // namespace
}  // namespace nightshift
