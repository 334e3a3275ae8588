// Appends keys and values to pages (kernels/kv_page.h): floats, or integer groups with keys
// transformed (kernels/cpu/hadamard.h), to the same bits as the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/kv_page.h"
#include "kernels/tensor_view.h"

namespace nightshift::cuda {

// Heads are no wider.
inline constexpr int64_t kMaxHeadWidth = 256;

// KvPageLayout in numbers that kernels read.
struct DevicePageLayout {
  DType dtype = DType::kF32;
  int64_t kv_heads = 0;
  int64_t head_width = 0;
  int64_t plane_bytes = 0;
  // Of integer groups.
  int64_t padded_width = 0;
  int64_t head_code_bytes = 0;
  int64_t numbers = 0;  // offset of all heads' numbers in a plane
  int64_t num_groups = 0;
  int transform_block = 1;  // the largest power of two that divides head_width
  float key_factor = 1.0F;
  float query_factor = 1.0F;
};
DevicePageLayout DevicePageLayoutOf(const KvPageLayout& layout);

// Rows that follow each other in one page.
struct PageRun {
  std::byte* page = nullptr;
  int64_t first_row = 0;  // of k and v
  int32_t first_slot = 0;
  int32_t num_rows = 0;
};

struct StoreArgs {
  MatrixView k;
  MatrixView v;
  DevicePageLayout layout;
  const PageRun* runs = nullptr;  // on the device; no two of one page
  int64_t num_runs = 0;
};

// Asynchronous on the launcher's stream.
void LaunchStoreKv(Launcher& launcher, const StoreArgs& args);

}  // namespace nightshift::cuda
