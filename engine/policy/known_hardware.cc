#include "engine/policy/known_hardware.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace nightshift {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// What of a data sheet's peak programs reach: assumptions, said in each profile's source.
constexpr double kTensorShare = 0.70;  // of 16-bit tensor peaks, large matmuls
constexpr double kVectorShare = 0.85;  // of vector peaks, large matmuls
constexpr double kPromptShare = 0.50;  // of tensor peaks, attention without a stored matrix
constexpr double kDeviceMemoryShare = 0.85;
constexpr double kHostMemoryShare = 0.75;
constexpr double kHostCopyShare = 0.35;  // a copy reads, fetches and writes each byte
constexpr double kLinkShare = 0.80;      // of a PCIe link's raw rate, pinned memory
constexpr double kDiskShare = 0.90;      // of sequential figures, 32 reads of 1 MiB on their way
constexpr double kDeviceStepSeconds = 100e-6;  // a layer of a batch: some 15 launches
constexpr double kHostStepSeconds = 50e-6;
constexpr char kAssumptions[] =
    "assumed of those peaks: 70 % of 16-bit tensor and 85 % of vector operations in large matmuls, "
    "50 % of tensor operations in prompt attention, few rows bound by reading weights; 85 % of "
    "device and 75 % of host memory bandwidth; 80 % of the link from pinned memory; 90 % of the "
    "disk; 100 us a step; 16-bit figures stand for bf16; usable memory below the nominal";
constexpr char kHostAssumptions[] =
    "assumed of those peaks: 85 % of vector operations in large matmuls, half of that in prompt "
    "attention, few rows bound by reading weights; 75 % of memory bandwidth; 90 % of the disk; 50 "
    "us a step; usable memory below the nominal";

struct Gpu {
  double usable_gib = 0.0;
  double tensor_flops = 0.0;  // 16-bit, dense, f32 sums
  double vector_flops = 0.0;  // f32
  double memory_bytes_per_s = 0.0;
  double link_bytes_per_s = 0.0;  // each direction, raw
};

struct Host {
  double usable_gib = 0.0;
  double memory_bytes_per_s = 0.0;
  double vector_flops = 0.0;  // f32
  double dot_flops = 0.0;     // bf16; where there are no such instructions, vector_flops
};

struct Disk {
  double usable_bytes = 0.0;
  double read_bytes_per_s = 0.0;
  double write_bytes_per_s = 0.0;
};

struct Machine {
  const char* name;
  std::optional<Gpu> gpu;
  Host host;
  Disk disk;
  const char* source;
};

constexpr double kPcie4 = 31.5e9;
constexpr double kPcie5 = 63.0e9;

// The host of a server whose CPU nobody plans to compute with.
constexpr Host kServerHost = {.usable_gib = 480.0,
                              .memory_bytes_per_s = 307.2e9,
                              .vector_flops = 3.0e12,
                              .dot_flops = 3.0e12};
constexpr Disk kServerDisk = {
    .usable_bytes = 3.5e12, .read_bytes_per_s = 6.8e9, .write_bytes_per_s = 4.0e9};

const std::array<Machine, 8>& Machines() {
  static const std::array<Machine, 8> kMachines = {{
      {.name = "a10g",
       .gpu = Gpu{.usable_gib = 22.0,
                  .tensor_flops = 70e12,
                  .vector_flops = 31.5e12,
                  .memory_bytes_per_s = 600e9,
                  .link_bytes_per_s = kPcie4},
       .host = {.usable_gib = 120.0,
                .memory_bytes_per_s = 85e9,
                .vector_flops = 1.4e12,
                .dot_flops = 1.4e12},
       .disk = {.usable_bytes = 850e9, .read_bytes_per_s = 3.0e9, .write_bytes_per_s = 1.5e9},
       .source = "NVIDIA A10G (24 GB, 600 GB/s, 70 TFLOP/s 16-bit tensor, PCIe 4.0 x16) in an AWS "
                 "g5.8xlarge (32 vCPU of AMD EPYC 7R32, 128 GiB, 900 GB NVMe); of its memory "
                 "bandwidth, vector rate and disk (3.0 and 1.5 GB/s) nothing is published, they "
                 "are assumed"},
      {.name = "a100",
       .gpu = Gpu{.usable_gib = 77.0,
                  .tensor_flops = 312e12,
                  .vector_flops = 19.5e12,
                  .memory_bytes_per_s = 1935e9,
                  .link_bytes_per_s = kPcie4},
       .host = {.usable_gib = 480.0,
                .memory_bytes_per_s = 204.8e9,
                .vector_flops = 2.0e12,
                .dot_flops = 2.0e12},
       .disk = kServerDisk,
       .source = "NVIDIA A100 80 GB PCIe data sheet (312 TFLOP/s bf16 dense, 19.5 f32, 1935 GB/s, "
                 "PCIe 4.0 x16); a server with 512 GiB of DDR4-3200 in 8 channels (204.8 GB/s) and "
                 "one Samsung PM9A3 3.84 TB (6.8 and 4.0 GB/s); the host's 2 TFLOP/s are assumed"},
      {.name = "rtx-3090",
       .gpu = Gpu{.usable_gib = 22.5,
                  .tensor_flops = 71e12,
                  .vector_flops = 35.6e12,
                  .memory_bytes_per_s = 936e9,
                  .link_bytes_per_s = kPcie4},
       .host = {.usable_gib = 112.0,
                .memory_bytes_per_s = 51.2e9,
                .vector_flops = 1.1e12,
                .dot_flops = 1.1e12},
       .disk = {.usable_bytes = 900e9, .read_bytes_per_s = 7.0e9, .write_bytes_per_s = 5.0e9},
       .source = "NVIDIA GA102 white paper (GeForce RTX 3090: 24 GB, 71 TFLOP/s 16-bit tensor with "
                 "f32 sums, 35.6 f32, 936 GB/s, PCIe 4.0 x16); 125 GB of memory and a disk of 1 TB "
                 "as in FlexGen (Sheng et al. 2023), appendix, table 12; DDR4-3200 in 2 channels "
                 "(51.2 GB/s), a Samsung 980 PRO 1 TB (7.0 and 5.0 GB/s) and 8 cores with AVX2 "
                 "(1.1 TFLOP/s) are assumed"},
      {.name = "rtx-4090",
       .gpu = Gpu{.usable_gib = 22.5,
                  .tensor_flops = 165.2e12,
                  .vector_flops = 82.6e12,
                  .memory_bytes_per_s = 1008e9,
                  .link_bytes_per_s = kPcie4},
       .host = {.usable_gib = 116.0,
                .memory_bytes_per_s = 89.6e9,
                .vector_flops = 2.0e12,
                .dot_flops = 2.0e12},
       .disk = {.usable_bytes = 1.8e12, .read_bytes_per_s = 7.45e9, .write_bytes_per_s = 6.9e9},
       .source = "NVIDIA Ada white paper (GeForce RTX 4090: 24 GB, 165.2 TFLOP/s 16-bit tensor "
                 "with f32 sums, 82.6 f32, 1008 GB/s, PCIe 4.0 x16); a desktop with 128 GiB of "
                 "DDR5-5600 in 2 channels (89.6 GB/s) and a Samsung 990 PRO 2 TB (7.45 and 6.9 "
                 "GB/s); the host's 2 TFLOP/s are assumed"},
      {.name = "h100",
       .gpu = Gpu{.usable_gib = 77.0,
                  .tensor_flops = 989.4e12,
                  .vector_flops = 66.9e12,
                  .memory_bytes_per_s = 3350e9,
                  .link_bytes_per_s = kPcie5},
       .host = kServerHost,
       .disk = kServerDisk,
       .source = "NVIDIA H100 SXM data sheet (80 GB, 989.4 TFLOP/s bf16 dense, 66.9 f32, 3350 "
                 "GB/s, PCIe 5.0 x16); a server with 512 GiB of DDR5-4800 in 8 channels (307.2 "
                 "GB/s) and one Samsung PM9A3 3.84 TB (6.8 and 4.0 GB/s); the host's 3 TFLOP/s are "
                 "assumed"},
      {.name = "h200",
       .gpu = Gpu{.usable_gib = 136.0,
                  .tensor_flops = 989.4e12,
                  .vector_flops = 66.9e12,
                  .memory_bytes_per_s = 4800e9,
                  .link_bytes_per_s = kPcie5},
       .host = kServerHost,
       .disk = kServerDisk,
       .source = "NVIDIA H200 SXM data sheet (141 GB, 989.4 TFLOP/s bf16 dense, 66.9 f32, 4800 "
                 "GB/s, PCIe 5.0 x16); a server with 512 GiB of DDR5-4800 in 8 channels (307.2 "
                 "GB/s) and one Samsung PM9A3 3.84 TB (6.8 and 4.0 GB/s); the host's 3 TFLOP/s are "
                 "assumed"},
      {.name = "desktop-avx2",
       .gpu = std::nullopt,
       .host = {.usable_gib = 58.0,
                .memory_bytes_per_s = 51.2e9,
                .vector_flops = 1.13e12,
                .dot_flops = 1.13e12},
       .disk = {.usable_bytes = 1.8e12, .read_bytes_per_s = 7.0e9, .write_bytes_per_s = 5.1e9},
       .source = "a desktop with an AMD Ryzen 7 5800X (8 cores, AVX2: 32 f32 operations a cycle "
                 "and core, 4.4 GHz assumed on all cores; bf16 as fast as f32), 64 GiB of "
                 "DDR4-3200 in 2 channels (51.2 GB/s) and a Samsung 980 PRO 2 TB (7.0 and 5.1 "
                 "GB/s), by their data sheets"},
      {.name = "desktop-avx512",
       .gpu = std::nullopt,
       .host = {.usable_gib = 120.0,
                .memory_bytes_per_s = 83.2e9,
                .vector_flops = 2.3e12,
                .dot_flops = 4.6e12},
       .disk = {.usable_bytes = 1.8e12, .read_bytes_per_s = 7.45e9, .write_bytes_per_s = 6.9e9},
       .source = "a desktop with an AMD Ryzen 9 7950X (16 cores at 4.5 GHz, AVX-512 with bf16 "
                 "dots: 32 f32 and 64 bf16 operations a cycle and core), 128 GiB of DDR5-5200 in 2 "
                 "channels (83.2 GB/s) and a Samsung 990 PRO 2 TB (7.45 and 6.9 GB/s), by their "
                 "data sheets"},
  }};
  return kMachines;
}

RateCurve Flat(double size, double rate) {
  return {.points = {{.size = size, .rate = rate}}};
}

// A matmul reads its weights and multiplies, one after the other: what real kernels overlap they
// lose at edges.
RateCurve MatmulCurve(double flops, double memory_bytes_per_s, int64_t weight_bytes) {
  RateCurve curve;
  for (int64_t rows = 1; rows <= 4096; rows *= 2) {
    const double reading =
        static_cast<double>(2 * rows) * memory_bytes_per_s / static_cast<double>(weight_bytes);
    curve.points.push_back(
        {.size = static_cast<double>(rows), .rate = 1.0 / (1.0 / flops + 1.0 / reading)});
  }
  return curve;
}

std::vector<MatmulRate> MatmulRates(double f32_flops, double bf16_flops,
                                    double memory_bytes_per_s) {
  std::vector<MatmulRate> rates = {{.compute = ComputeType::kBF16,
                                    .weights = DType::kBF16,
                                    .flops = MatmulCurve(bf16_flops, memory_bytes_per_s, 2)}};
  for (const DType weights : {DType::kF32, DType::kF16, DType::kBF16}) {
    rates.push_back({.compute = ComputeType::kF32,
                     .weights = weights,
                     .flops = MatmulCurve(f32_flops, memory_bytes_per_s, FloatBytes(weights))});
  }
  return rates;
}

std::vector<PromptAttentionRate> PromptRates(double f32_flops, double bf16_flops) {
  std::vector<PromptAttentionRate> rates;
  for (const ComputeType compute : {ComputeType::kBF16, ComputeType::kF32}) {
    for (const int64_t width : {64, 128}) {
      const double flops = compute == ComputeType::kBF16 ? bf16_flops : f32_flops;
      rates.push_back({.compute = compute, .head_width = width, .flops = Flat(1024, flops)});
    }
  }
  return rates;
}

// Bound by reading keys and values, or by the multiply-adds of the queries that share them: one
// operation a byte and query in 16 bits, half of one in 32.
std::vector<DecodeAttentionRate> DecodeRates(double memory_bytes_per_s, double f32_flops,
                                             double bf16_flops) {
  std::vector<DecodeAttentionRate> rates;
  for (const ComputeType compute : {ComputeType::kBF16, ComputeType::kF32}) {
    for (const int64_t width : {64, 128}) {
      for (const int64_t queries : {1, 4, 8}) {
        const double bytes_bound = compute == ComputeType::kBF16
                                       ? bf16_flops / static_cast<double>(queries)
                                       : 2.0 * f32_flops / static_cast<double>(queries);
        rates.push_back({.compute = compute,
                         .head_width = width,
                         .queries_per_kv_head = queries,
                         .bytes = Flat(1024, std::min(memory_bytes_per_s, bytes_bound))});
      }
    }
  }
  return rates;
}

// Of 4-bit groups and 8-bit groups to 16-bit weights: reads codes and scales, writes elements.
std::vector<UnpackRate> UnpackRates(double memory_bytes_per_s) {
  const auto rate = [&](DType dtype, double stored_bytes) {
    return UnpackRate{.dtype = dtype, .elements_per_s = memory_bytes_per_s / (stored_bytes + 2.0)};
  };
  return {rate(DType::kI8G32, 34.0 / 32.0), rate(DType::kI4G32, 18.0 / 32.0),
          rate(DType::kU4G32, 20.0 / 32.0), rate(DType::kU4G64, 36.0 / 64.0),
          rate(DType::kQ4K, 144.0 / 256.0)};
}

ComputeRates GpuRates(const Gpu& gpu) {
  const double memory = kDeviceMemoryShare * gpu.memory_bytes_per_s;
  const double f32 = kVectorShare * gpu.vector_flops;
  return {.matmul = MatmulRates(f32, kTensorShare * gpu.tensor_flops, memory),
          .prompt_attention =
              PromptRates(kPromptShare * gpu.vector_flops, kPromptShare * gpu.tensor_flops),
          .decode_attention = DecodeRates(memory, f32, kPromptShare * gpu.tensor_flops),
          .unpack = UnpackRates(memory),
          .row_bytes_per_s = memory,
          .memory_bytes_per_s = memory,
          .step_seconds = kDeviceStepSeconds};
}

ComputeRates HostRates(const Host& host) {
  const double memory = kHostMemoryShare * host.memory_bytes_per_s;
  const double f32 = kVectorShare * host.vector_flops;
  const double bf16 = kVectorShare * host.dot_flops;
  return {.matmul = MatmulRates(f32, bf16, memory),
          .prompt_attention = PromptRates(f32 / 2.0, bf16 / 2.0),
          .decode_attention = DecodeRates(memory, f32 / 2.0, bf16 / 2.0),
          .unpack = UnpackRates(memory),
          .row_bytes_per_s = memory,
          .memory_bytes_per_s = memory,
          .step_seconds = kHostStepSeconds};
}

// Small transfers are bound by the disk's answer, some 100 us with 32 on their way.
RateCurve DiskCurve(double bytes_per_s) {
  RateCurve curve;
  for (const double bytes : {4096.0, 65536.0, 1048576.0}) {
    curve.points.push_back({.size = bytes, .rate = std::min(bytes_per_s, 32.0 * bytes / 100e-6)});
  }
  return curve;
}

int64_t Bytes(double bytes) {
  return static_cast<int64_t>(bytes);
}

HardwareProfile ProfileOf(const Machine& machine) {
  HardwareProfile profile;
  profile.name = machine.name;
  profile.source =
      absl::StrCat(machine.source, "; ", machine.gpu ? kAssumptions : kHostAssumptions);
  profile.host_bytes = Bytes(machine.host.usable_gib * kGiB);
  profile.disk_bytes = Bytes(machine.disk.usable_bytes);
  profile.disk_read = DiskCurve(kDiskShare * machine.disk.read_bytes_per_s);
  profile.disk_write = DiskCurve(kDiskShare * machine.disk.write_bytes_per_s);
  profile.copy_bytes_per_s = kHostCopyShare * machine.host.memory_bytes_per_s;
  profile.host = HostRates(machine.host);
  if (!machine.gpu) {
    profile.device = std::exchange(profile.host, ComputeRates{});
    return profile;
  }
  profile.unified_memory = false;
  profile.device_bytes = Bytes(machine.gpu->usable_gib * kGiB);
  profile.upload = Flat(1 << 20, kLinkShare * machine.gpu->link_bytes_per_s);
  profile.download = profile.upload;
  profile.device = GpuRates(*machine.gpu);
  return profile;
}

// The paper's machine, in variants of what its report leaves open.
struct T4Variant {
  const char* name;
  double disk_read_gib = 2.0;
  double host_attention_bytes_per_s = 12.3e9;
};
constexpr T4Variant kT4Variants[] = {
    {.name = "t4"},
    {.name = "t4-attention-30", .host_attention_bytes_per_s = 30e9},
    {.name = "t4-attention-60", .host_attention_bytes_per_s = 60e9},
    {.name = "t4-disk-2.65", .disk_read_gib = 2.65},
    {.name = "t4-disk-2.65-attention-30",
     .disk_read_gib = 2.65,
     .host_attention_bytes_per_s = 30e9},
    {.name = "t4-disk-2.65-attention-60",
     .disk_read_gib = 2.65,
     .host_attention_bytes_per_s = 60e9},
};

constexpr char kT4Source[] =
    "FlexGen (Sheng et al. 2023), section 6: NVIDIA T4 16 GB, 208 GB of memory, NVMe of 1.5 TB "
    "that writes about 1 GB/s; usable 15, 200 and 1500 GiB and rates as its released cost model "
    "has them for that machine: 12.89 GiB/s to the device, 0.97 GiB/s back from memory that is not "
    "pinned, matmuls 21.24 TFLOP/s in prompts and 4.3 with 64 rows, attention 9.97 TFLOP/s in "
    "prompts and 79 GB/s of keys and values in decoding; NVIDIA T4 data sheet: 320 GB/s, 8.1 "
    "TFLOP/s f32, PCIe 3.0 x16. Assumed: 75 % of that bandwidth, matmuls of few rows bound by it, "
    "those rates in attention for the pairs only that causality allows, 12 GB/s back from pinned "
    "memory (the paper's figure 2), memory of the host 64 GB/s, 25 GB/s of copies, 1 TFLOP/s; 100 "
    "us a step; 16-bit figures stand for bf16";

RateCurve T4Matmul(double memory_bytes_per_s) {
  return {.points = {{.size = 1, .rate = memory_bytes_per_s},
                     {.size = 4, .rate = 4 * memory_bytes_per_s},
                     {.size = 16, .rate = 16 * memory_bytes_per_s},
                     {.size = 64, .rate = 4.3e12},
                     {.size = 1024, .rate = 21.24e12}}};
}

HardwareProfile ProfileOf(const T4Variant& variant) {
  constexpr double kMemory = 0.75 * 320e9;
  constexpr double kF32 = kVectorShare * 8.1e12;
  constexpr double kHostMemory = 64e9;
  constexpr double kHostFlops = 1e12;
  HardwareProfile profile;
  profile.name = variant.name;
  profile.source = absl::StrCat(kT4Source, ". Variant: the disk reads ", variant.disk_read_gib,
                                " GiB/s, the host attends to ",
                                variant.host_attention_bytes_per_s / 1e9, " GB/s");
  profile.unified_memory = false;
  profile.device_bytes = Bytes(15 * kGiB);
  profile.host_bytes = Bytes(200 * kGiB);
  profile.disk_bytes = Bytes(1500 * kGiB);
  profile.disk_read = DiskCurve(variant.disk_read_gib * kGiB);
  profile.disk_write = DiskCurve(1e9);
  profile.upload = Flat(1 << 20, 12.89 * kGiB);
  profile.download = Flat(1 << 20, 12e9);
  profile.pageable_download_bytes_per_s = 0.97 * kGiB;
  profile.copy_bytes_per_s = 25e9;
  profile.device = {.matmul = MatmulRates(kF32, 21.24e12, kMemory),
                    .prompt_attention = PromptRates(kF32 / 2.0, 9.97e12),
                    .decode_attention = DecodeRates(79e9, kF32, 9.97e12),
                    .unpack = UnpackRates(kMemory),
                    .row_bytes_per_s = kMemory,
                    .memory_bytes_per_s = kMemory,
                    .step_seconds = kDeviceStepSeconds};
  profile.device.matmul.front().flops = T4Matmul(kMemory);
  profile.host = HostRates({.usable_gib = 0.0,
                            .memory_bytes_per_s = kHostMemory / kHostMemoryShare,
                            .vector_flops = kHostFlops,
                            .dot_flops = kHostFlops});
  profile.host.decode_attention =
      DecodeRates(variant.host_attention_bytes_per_s, kHostFlops, kHostFlops);
  return profile;
}

}  // namespace

std::vector<std::string> KnownHardwareNames() {
  std::vector<std::string> names;
  for (const T4Variant& variant : kT4Variants) {
    names.emplace_back(variant.name);
  }
  for (const Machine& machine : Machines()) {
    names.emplace_back(machine.name);
  }
  return names;
}

absl::StatusOr<HardwareProfile> KnownHardware(absl::string_view name) {
  for (const T4Variant& variant : kT4Variants) {
    if (name == variant.name) {
      return ProfileOf(variant);
    }
  }
  for (const Machine& machine : Machines()) {
    if (name == machine.name) {
      return ProfileOf(machine);
    }
  }
  return absl::NotFoundError(absl::StrCat("hardware ", name.substr(0, 64),
                                          " is not known; there are ",
                                          absl::StrJoin(KnownHardwareNames(), ", ")));
}

}  // namespace nightshift
