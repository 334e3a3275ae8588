// Machines with round figures, for tests of plans: what they take can be computed by hand.
#pragma once

#include "engine/policy/hardware_profile.h"

namespace nightshift {

inline ComputeRates PlainRates(double flops_per_s, double bytes_per_s) {
  ComputeRates rates;
  // Few rows are bound by reading the weights: 2 bytes a weight, 2 operations a row.
  MatmulRate matmul;
  for (const double rows : {1.0, 8.0, 64.0, 512.0}) {
    const double read = rows * bytes_per_s;
    matmul.flops.points.push_back({.size = rows, .rate = read < flops_per_s ? read : flops_per_s});
  }
  rates.matmul = {matmul};
  rates.prompt_attention = {
      {.head_width = 128, .flops = {{{.size = 512, .rate = flops_per_s / 2}}}}};
  rates.decode_attention = {{.head_width = 128,
                             .queries_per_kv_head = 1,
                             .bytes = {{{.size = 512, .rate = bytes_per_s}}}}};
  rates.unpack = {{.dtype = DType::kU4G64, .elements_per_s = bytes_per_s / 4}};
  rates.row_bytes_per_s = bytes_per_s / 2;
  rates.memory_bytes_per_s = bytes_per_s;
  rates.step_seconds = 5e-6;
  return rates;
}

// A box without a GPU: 64 GiB, a disk of 2 GB/s.
inline HardwareProfile PlainBox() {
  HardwareProfile profile;
  profile.name = "box";
  profile.source = "round figures";
  profile.unified_memory = true;
  profile.host_bytes = int64_t{64} << 30;
  profile.disk_bytes = int64_t{1000} << 30;
  profile.disk_read = {{{.size = 1 << 20, .rate = 2e9}}};
  profile.disk_write = {{{.size = 1 << 20, .rate = 1e9}}};
  profile.copy_bytes_per_s = 10e9;
  profile.device = PlainRates(1e12, 40e9);
  return profile;
}

// A host with a small GPU: 16 GiB and 200 GiB, links of 12 GB/s.
inline HardwareProfile PlainGpuHost() {
  HardwareProfile profile = PlainBox();
  profile.name = "gpu host";
  profile.unified_memory = false;
  profile.device_bytes = int64_t{16} << 30;
  profile.host_bytes = int64_t{200} << 30;
  profile.upload = {{{.size = 1 << 20, .rate = 12e9}}};
  profile.download = {{{.size = 1 << 20, .rate = 12e9}}};
  profile.pageable_upload_bytes_per_s = 6e9;
  profile.pageable_download_bytes_per_s = 6e9;
  profile.device = PlainRates(20e12, 250e9);
  profile.device.step_seconds = 20e-6;
  profile.host = PlainRates(1e12, 60e9);
  return profile;
}

}  // namespace nightshift
