#include "kernels/dtype.h"

#include "kernels/base/check.h"

namespace nightshift {

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI8G32:
      return "I8G32";
    case DType::kI4G32:
      return "I4G32";
    case DType::kU4G32:
      return "U4G32";
    case DType::kU4G64:
      return "U4G64";
    case DType::kU8G32:
      return "U8G32";
    case DType::kU8G64:
      return "U8G64";
    case DType::kI8G64:
      return "I8G64";
    case DType::kI4G64:
      return "I4G64";
    case DType::kQ2K:
      return "Q2_K";
    case DType::kQ3K:
      return "Q3_K";
    case DType::kQ4K:
      return "Q4_K";
    case DType::kQ5K:
      return "Q5_K";
    case DType::kQ6K:
      return "Q6_K";
  }
  return "unknown";
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

int64_t FloatBytes(DType dtype) {
  CHECK(IsFloat(dtype));
  return dtype == DType::kF32 ? 4 : 2;
}

double StoredBits(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 32;
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kI8G32:
      return 8 + 16.0 / 32;
    case DType::kI4G32:
      return 4 + 16.0 / 32;
    case DType::kU4G32:
      return 4 + 32.0 / 32;
    case DType::kU4G64:
      return 4 + 32.0 / 64;
    case DType::kU8G32:
      return 8 + 32.0 / 32;
    case DType::kU8G64:
      return 8 + 32.0 / 64;
    case DType::kI8G64:
      return 8 + 16.0 / 64;
    case DType::kI4G64:
      return 4 + 16.0 / 64;
    // Bytes of GGUF's super-blocks of 256.
    case DType::kQ2K:
      return 84 * 8.0 / 256;
    case DType::kQ3K:
      return 110 * 8.0 / 256;
    case DType::kQ4K:
      return 144 * 8.0 / 256;
    case DType::kQ5K:
      return 176 * 8.0 / 256;
    case DType::kQ6K:
      return 210 * 8.0 / 256;
  }
  return 0;
}

const char* ComputeTypeName(ComputeType type) {
  switch (type) {
    case ComputeType::kF32:
      return "f32";
    case ComputeType::kBF16:
      return "bf16";
    case ComputeType::kInt8:
      return "int8";
  }
  return "unknown";
}

std::optional<ComputeType> ComputeTypeNamed(std::string_view name) {
  for (const ComputeType type : {ComputeType::kF32, ComputeType::kBF16, ComputeType::kInt8}) {
    if (name == ComputeTypeName(type)) {
      return type;
    }
  }
  return std::nullopt;
}

}  // namespace nightshift
