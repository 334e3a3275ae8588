#include "kernels/kv_page.h"

namespace nightshift {

bool IsKvType(DType dtype, ComputeType compute) {
  return dtype == DType::kU4G64 || dtype == DType::kU8G64 ||
         dtype == ComputedDType(compute);
}

const char* KvTypeName(DType dtype) {
  return dtype == DType::kU4G64 ? "int4" : dtype == DType::kU8G64 ? "int8" : DTypeName(dtype);
}

}  // namespace nightshift
