// Element types and the arithmetic of their sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace nightshift {

// Numbers are the pack format's type numbers (engine/model/pack_format.md): never reuse one.
enum class DType : uint8_t {
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  // Integer groups along the reduction dimension, fp16 scale (and fp16 minimum if asymmetric).
  kI8G32 = 16,   // 8-bit symmetric, groups of 32: Q8_0
  kI4G32 = 17,   // 4-bit symmetric around 8, groups of 32: Q4_0
  kU4G32 = 18,   // 4-bit asymmetric with minimum, groups of 32: Q4_1
  kU4G64 = 19,   // 4-bit asymmetric with minimum, groups of 64: FlexGen's compression
  kU8G32 = 20,   // 8-bit asymmetric with minimum, groups of 32
  kU8G64 = 21,   // 8-bit asymmetric with minimum, groups of 64
  kI8G64 = 22,   // 8-bit symmetric, groups of 64
  kI4G64 = 23,   // 4-bit symmetric, groups of 64
  // Super-blocks of 256 along the reduction dimension, bit for bit as GGUF has them.
  kQ2K = 32,
  kQ3K = 33,
  kQ4K = 34,
  kQ5K = 35,
  kQ6K = 36,
};

const char* DTypeName(DType dtype);

// True for F32, F16, BF16: types that one element stands for itself in.
bool IsFloat(DType dtype);

// Bytes of one element of a float type.
int64_t FloatBytes(DType dtype);

// Bits that an element of a long row takes as stored, its share of scales and minima included.
double StoredBits(DType dtype);

// How a matmul multiplies: kF32 widens weights and keeps inputs in f32; kBF16 rounds weights and
// inputs to bf16 and accumulates in f32; kInt8 is kBF16, but for weights of integer groups, which
// it multiplies as integers by inputs rounded to 8 bits in groups as large. Part of a job's numeric
// mode.
enum class ComputeType : uint8_t { kF32 = 1, kBF16 = 2, kInt8 = 3 };

const char* ComputeTypeName(ComputeType type);
// The type of that name.
std::optional<ComputeType> ComputeTypeNamed(std::string_view name);

// How all but weights of integer groups is computed.
constexpr ComputeType FloatComputeType(ComputeType type) {
  return type == ComputeType::kInt8 ? ComputeType::kBF16 : type;
}

// What keys and values are kept as that are not packed.
constexpr DType ComputedDType(ComputeType type) {
  return type == ComputeType::kF32 ? DType::kF32 : DType::kBF16;
}

}  // namespace nightshift
