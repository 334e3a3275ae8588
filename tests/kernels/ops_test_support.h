// Fixtures of the op tests: every dispatch target of this machine and the emulated CUDA device, packed
// weights, pages.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "kernels/convert.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/device.h"
#include "kernels/group_format.h"
#include "kernels/panel_layout.h"
#include "tests/support/naive_ops.h"
#if defined(EMULATED_CUDA)
#include "tests/support/emulated_cuda_ops.h"
#endif

namespace nightshift {

// AVX-512 with the instructions of kernels/cpu/bf16_dots.h.
inline constexpr int64_t kBF16DotsTarget = HWY_AVX3 | HWY_AVX3_DL;

// The targets that the library is built for and this machine has.
inline std::vector<int64_t> CpuTargets() {
  std::vector<int64_t> targets;
  if (cpu::HasBF16Dots()) targets.push_back(kBF16DotsTarget);
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  return targets;
}

// Not a dispatch target: the CUDA device on the emulator.
inline constexpr int64_t kCudaTarget = 0;

// The same, and the emulated CUDA device where the test is linked with it.
inline std::vector<int64_t> OpsTargets() {
  std::vector<int64_t> targets = CpuTargets();
#if defined(EMULATED_CUDA)
  targets.push_back(kCudaTarget);
#endif
  return targets;
}

// Runs its tests on one target, the parameter.
class OpsTargetTest : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (!IsCuda()) hwy::SetSupportedTargetsForTest(GetParam());
  }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }

  static bool IsCuda() { return GetParam() == kCudaTarget; }

  static std::unique_ptr<Device> CreateDevice(int num_threads) {
#if defined(EMULATED_CUDA)
    if (IsCuda()) return CreateEmulatedCudaOps();
#endif
    auto device = CreateCpuDevice(num_threads);
    EXPECT_TRUE(device.ok()) << device.status();
    return std::move(device).value();
  }
};

inline std::string TargetName(int64_t target) {
  if (target == kCudaTarget) return "CUDA";
  return target == kBF16DotsTarget ? "AVX3_BF16" : hwy::TargetName(target);
}

inline std::string TargetTestName(const testing::TestParamInfo<int64_t>& info) {
  return TargetName(info.param);
}

#define INSTANTIATE_ON_CPU_TARGETS(suite) \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, testing::ValuesIn(CpuTargets()), TargetTestName)
#define INSTANTIATE_ON_OPS_TARGETS(suite) \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, testing::ValuesIn(OpsTargets()), TargetTestName)

// Bytes at a 4096-byte border.
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t count)
      : memory_(static_cast<std::byte*>(
            std::aligned_alloc(4096, static_cast<size_t>(RoundUp(count, 4096))))) {}
  std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

// A matrix of activations that owns its rows; `padding` columns lie between rows.
class Matrix {
 public:
  Matrix(int64_t rows, int64_t columns, int64_t padding = 0)
      : rows_(rows),
        columns_(columns),
        stride_(columns + padding),
        values_(static_cast<size_t>(rows * stride_), kUntouched) {}
  Matrix(int64_t columns, const std::vector<float>& values)
      : Matrix(static_cast<int64_t>(values.size()) / columns, columns) {
    values_ = values;
  }
  MatrixView view() { return {values_.data(), rows_, columns_, stride_}; }
  float at(int64_t row, int64_t column) const {
    return values_[static_cast<size_t>(row * stride_ + column)];
  }
  std::vector<float> Row(int64_t row) const {
    const auto first = values_.begin() + row * stride_;
    return {first, first + columns_};
  }
  const std::vector<float>& values() const { return values_; }

  static constexpr float kUntouched = 12345.0F;

 private:
  int64_t rows_;
  int64_t columns_;
  int64_t stride_;
  std::vector<float> values_;
};

// Random weights [N, K] of a float type or of integer groups: as floats, and packed as one shard.
struct RandomWeight {
  RandomWeight(DType dtype_in, int64_t outputs_in, int64_t inputs_in, uint64_t seed)
      : dtype(dtype_in),
        outputs(outputs_in),
        inputs(inputs_in),
        packed(RoundUp(outputs_in, kPanelOutputs) / kPanelOutputs *
               PanelBytes(dtype_in, inputs_in)) {
    if (IsFloat(dtype)) {
      values = naive::RoundTo(dtype, naive::RandomValues(outputs * inputs, seed));
      PackFloats();
    } else {
      FillGroups(seed);
    }
  }
  // Floats of the type that are given.
  RandomWeight(DType dtype_in, int64_t outputs_in, int64_t inputs_in, std::vector<float> values_in)
      : dtype(dtype_in),
        outputs(outputs_in),
        inputs(inputs_in),
        values(std::move(values_in)),
        packed(PanelElements(outputs_in, inputs_in) * FloatBytes(dtype_in)) {
    PackFloats();
  }
  WeightShardView shard() const { return Shard(0, outputs); }
  // Rows [first, first + count) as a shard; `first` is a multiple of 64.
  WeightShardView Shard(int64_t first, int64_t count) const {
    const int64_t offset = first / kPanelOutputs * PanelBytes(dtype, inputs);
    return {packed.data() + offset, dtype, first, count, inputs};
  }

  DType dtype;
  int64_t outputs;
  int64_t inputs;
  std::vector<float> values;
  AlignedBytes packed;

 private:
  void PackFloats() {
    const int64_t count = outputs * inputs;
    std::vector<std::byte> typed(static_cast<size_t>(count * FloatBytes(dtype)));
    RoundFromF32(values.data(), count, dtype, typed.data());
    PackPanels(typed.data(), dtype, outputs, inputs, packed.data());
  }
  // Codes of every size, scales of both signs; codes of the padding are no zeros. The values by
  // engine/model/pack_format.md, section 1.
  void FillGroups(uint64_t seed) {
    const GroupFormat format = *GroupFormatOf(dtype);
    const PanelPlanes planes = PlanesOf(dtype, inputs);
    const int64_t panels = RoundUp(outputs, kPanelOutputs) / kPanelOutputs;
    const std::vector<float> draws = naive::RandomValues(panels * planes.bytes, seed);
    for (int64_t i = 0; i < panels * planes.bytes; ++i) {
      const int64_t in_panel = i % planes.bytes;
      if (in_panel < planes.scales) {
        packed.data()[i] =
            static_cast<std::byte>(static_cast<int>(draws[static_cast<size_t>(i)] * 1e4F));
      } else if (in_panel % 2 == 0) {
        const uint16_t half = F32ToF16(0.03F * draws[static_cast<size_t>(i)]);
        std::memcpy(packed.data() + i, &half, sizeof(half));
      }
    }
    const auto half_at = [&](int64_t byte) {
      uint16_t bits = 0;
      std::memcpy(&bits, packed.data() + byte, sizeof(bits));
      return F16ToF32(bits);
    };
    for (int64_t n = 0; n < outputs; ++n) {
      for (int64_t k = 0; k < inputs; ++k) {
        const int64_t panel = n / 64 * planes.bytes;
        const int64_t element = k / 2 * 128 + n % 64 * 2 + k % 2;
        const int64_t number = (k / format.group * 64 + n % 64) * 2;
        int code = 0;
        if (format.bits == 4) {
          const int pair = std::to_integer<int>(packed.data()[panel + element / 2]);
          code = (k % 2 == 0 ? pair % 16 : pair / 16) - (format.has_minimum ? 0 : 8);
        } else {
          code = std::to_integer<int>(packed.data()[panel + element]);
          code -= !format.has_minimum && code > 127 ? 256 : 0;
        }
        const double product = static_cast<double>(half_at(panel + planes.scales + number)) * code;
        const double minimum = format.has_minimum
                                   ? static_cast<double>(half_at(panel + planes.minimums + number))
                                   : 0.0;
        values.push_back(static_cast<float>(product + minimum));
      }
    }
  }
};

// Bits, so that NaNs and the sign of zero count.
inline std::vector<uint32_t> BitsOf(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!values.empty()) std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

inline void ExpectWithin(const std::vector<float>& actual, const naive::Result& expected) {
  ASSERT_EQ(actual.size(), expected.values.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(actual[i]), expected.values[i], expected.tolerances[i])
        << "element " << i;
  }
}

}  // namespace nightshift
