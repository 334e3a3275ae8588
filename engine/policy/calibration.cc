#include "engine/policy/calibration.h"

#include <algorithm>
#include <ctime>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/memory/pool.h"
#include "engine/policy/compute_probes.h"
#include "engine/policy/disk_probes.h"
#include "engine/policy/machine.h"
#include "kernels/base/memory_traffic.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A median of spreads above this is worth a word: a plan is then no better than that.
constexpr double kWideSpread = 0.4;
constexpr int64_t kCopySizes[] = {64 << 10, 1 << 20, 4 << 20, 16 << 20};

std::string DateOf(const Clock& clock) {
  const std::time_t seconds = clock.WallMicros() / 1'000'000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[sizeof("2024-01-02T03:04:05Z")];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

absl::StatusOr<std::unique_ptr<Device>> CreateDevice(const CalibrationOptions& options,
                                                     const Clock& clock) {
  return options.device_bytes > 0 ? CreateDiscreteCpuDevice(options.discrete, clock)
                                  : CreateCpuDevice(options.discrete.num_threads);
}

// What the machine has room for of the memory that is read.
absl::StatusOr<int64_t> MemoryBytes(const CalibrationOptions& options) {
  constexpr int64_t kShare = 4;
  const int64_t bytes = std::min(options.memory_bytes, options.host_bytes / kShare);
  const int64_t others = kProbeScratch + DiskProbes::kMemory;
  if (bytes < kLeastProbeMemory || bytes + others > options.host_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("measure this machine: needs ",
                     std::max(kShare * kLeastProbeMemory, kLeastProbeMemory + others),
                     " bytes of memory, ", options.host_bytes, " are free"));
  }
  return RoundUp(bytes, kDiskAlignment);
}

class Calibrator {
 public:
  Calibrator(const CalibrationOptions& options, const Clock& clock, Device& device)
      : options_(options), clock_(clock), device_(device) {}

  absl::StatusOr<Calibration> Run() {
    const int64_t start_us = clock_.MonotonicMicros();
    RETURN_IF_ERROR(Describe());
    ASSIGN_OR_RETURN(const int64_t memory_bytes, MemoryBytes(options_));
    Pool pool("calibration", memory_bytes + kProbeScratch + DiskProbes::kMemory);
    ASSIGN_OR_RETURN(const Buffer memory, pool.Reserve(memory_bytes, "what probes read"));
    ASSIGN_OR_RETURN(const Buffer scratch, pool.Reserve(kProbeScratch, "what probes write"));
    ASSIGN_OR_RETURN(const Buffer transfers,
                     pool.Reserve(DiskProbes::kMemory, "transfers of the disk"));
    FillProbeMemory(memory.bytes(), device_.workers());
    ASSIGN_OR_RETURN(const std::unique_ptr<DiskProbes> disk,
                     DiskProbes::Create(options_.folder, FileBytes(), options_.most_write_seconds,
                                        transfers.bytes(), clock_));
    AddMemory(memory.bytes());
    disk->AddTo(profile(), measurements_);
    AddComputing({.device = device_,
                  .memory = memory.bytes(),
                  .scratch = scratch.bytes(),
                  .most_rows = options_.most_rows});
    ASSIGN_OR_RETURN(result_.counts, MeasureInTurns(measurements_, options_.measure, clock_));
    Note(*disk);
    RETURN_IF_ERROR(ValidateHardwareProfile(profile()));
    result_.seconds = static_cast<double>(clock_.MonotonicMicros() - start_us) * 1e-6;
    return std::move(result_);
  }

 private:
  HardwareProfile& profile() { return result_.profile; }

  absl::Status Describe() {
    HardwareProfile& profile = this->profile();
    profile.name = "this machine";
    profile.source = absl::StrCat("measured by nightshift calibrate: ", device_.description());
    profile.date = DateOf(clock_);
    ASSIGN_OR_RETURN(profile.disk_bytes, FreeDiskBytes(options_.folder));
    ASSIGN_OR_RETURN(
        const MachineFacts facts,
        ThisMachine(device_.description(), options_.memory_limit_bytes, options_.folder));
    profile.fingerprint = Fingerprint(facts);
    profile.unified_memory = device_.unified_memory();
    profile.device_bytes = options_.device_bytes;
    profile.host_bytes = options_.host_bytes;
    return absl::OkStatus();
  }

  // The least file is asked for on a full disk, too, and refused there with numbers.
  int64_t FileBytes() {
    constexpr int64_t kShare = 4;
    return std::min(options_.disk_file_bytes,
                    std::max(profile().disk_bytes / kShare, DiskProbes::kLeastFile));
  }

  // A rate that is no curve, with its spread under `name`.
  void AddScalar(const std::string& name, std::function<absl::StatusOr<double>()> work,
                 double& rate) {
    measurements_.push_back({.name = name,
                             .work = std::move(work),
                             .keep = [this, name, &rate](double measured, double spread) {
                               rate = measured;
                               profile().spreads[name] = spread;
                             }});
  }

  void AddMemory(std::span<std::byte> memory) {
    WorkerPool& workers = device_.workers();
    const auto bytes = static_cast<int64_t>(memory.size());
    AddScalar(
        "device.memory_bytes_per_s",
        [memory, bytes, &workers] {
          ReadMemory(memory.data(), bytes, workers);
          return static_cast<double>(bytes);
        },
        profile().device.memory_bytes_per_s);
    // The halves are the same, so that copying changes nothing.
    AddScalar(
        "copy_bytes_per_s",
        [memory, half = bytes / 2 / kDiskAlignment * kDiskAlignment, &workers] {
          CopyMemory(memory.data(), half, memory.data() + half, workers);
          return static_cast<double>(half);
        },
        profile().copy_bytes_per_s);
    if (!device_.unified_memory()) {
      AddLink("upload", &Device::Upload, memory, profile().upload);
      AddLink("download", &Device::Download, memory, profile().download);
    }
  }

  using CopyCall = absl::Status (Device::*)(std::span<const std::byte>, std::span<std::byte>);
  void AddLink(const char* name, CopyCall copy, std::span<std::byte> memory, RateCurve& curve) {
    for (const int64_t size : kCopySizes) {
      const auto bytes = static_cast<size_t>(size);
      const size_t half = memory.size() / 2 / bytes * bytes;
      const auto offset = std::make_shared<size_t>(0);
      measurements_.push_back(
          {.name = absl::StrCat(name, " of ", size, " bytes"),
           .work = [this, copy, memory, bytes, half, offset]() -> absl::StatusOr<double> {
             *offset = (*offset + bytes) % half;
             RETURN_IF_ERROR((device_.*copy)(memory.subspan(*offset, bytes),
                                             memory.subspan(half + *offset, bytes)));
             return static_cast<double>(bytes);
           },
           .keep =
               [&curve, size](double rate, double spread) {
                 curve.points.push_back({static_cast<double>(size), rate, spread});
               }});
    }
  }

  void AddComputing(const ProbeBench& bench) {
    ComputeRates& rates = profile().device;
    AddMatmulProbes(bench, rates, measurements_);
    AddPromptAttentionProbes(bench, rates, measurements_);
    AddDecodeAttentionProbes(bench, AttentionBy::kDevice, rates, measurements_);
    AddUnpackProbes(bench, rates, measurements_);
    AddRowProbes(bench, rates, profile().spreads, measurements_);
    AddStepProbes(bench, clock_, rates, measurements_);
    if (!device_.unified_memory()) {
      AddDecodeAttentionProbes(bench, AttentionBy::kHost, profile().host, measurements_);
    }
  }

  void Note(const DiskProbes& disk) {
    if (!device_.unified_memory()) {
      // The discrete CPU device computes in the host's memory by the host's cores.
      profile().host.memory_bytes_per_s = profile().device.memory_bytes_per_s;
    }
    if (!disk.is_direct()) {
      result_.notes.push_back(absl::StrCat("the file system of ", options_.folder,
                                           " has no O_DIRECT: the disk's rates are those of the "
                                           "page cache"));
    }
    if (disk.file_bytes() < options_.disk_file_bytes) {
      result_.notes.push_back(
          absl::StrCat("the disk is slow or nearly full: measured on a file of ", disk.file_bytes(),
                       " bytes in place of ", options_.disk_file_bytes,
                       ", which something below it may keep in memory"));
    }
    if (result_.counts.rounds == 1) {
      result_.notes.push_back("one turn of each measurement took all of the time: no spread");
    }
    if (result_.counts.median_spread > kWideSpread) {
      result_.notes.push_back(absl::StrCat(
          "rates varied by ", static_cast<int>(100.0 * result_.counts.median_spread),
          " % in the median: something else ran; calibrate again when the machine is idle"));
    }
  }

  const CalibrationOptions& options_;
  const Clock& clock_;
  Device& device_;
  Calibration result_;
  std::vector<Measurement> measurements_;
};

}  // namespace

absl::StatusOr<Calibration> Calibrate(const CalibrationOptions& options, const Clock& clock) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Device> device, CreateDevice(options, clock));
  return Calibrator(options, clock, *device).Run();
}

}  // namespace nightshift
