#include "server/tools/calibrate.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "engine/policy/hardware_file.h"
#include "engine/policy/machine.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr double kGiga = 1e9;
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

void AppendLine(std::string& text, const std::string& name, const std::string& value) {
  absl::StrAppendFormat(&text, "%-26s %s\n", name, value);
}

// "64 KiB", "512": a size as short as it is exact.
std::string SizeName(double size, bool is_bytes) {
  constexpr double kKibi = 1024.0;
  const char* unit = "";
  for (const char* larger : {"Ki", "Mi", "Gi"}) {
    if (!is_bytes || size < kKibi) {
      break;
    }
    size /= kKibi;
    unit = larger;
  }
  return is_bytes ? absl::StrFormat("%g %sB", size, unit) : absl::StrFormat("%g", size);
}

// Rates in 10^9 a second, by size, with their spread.
void AppendCurve(std::string& text, const std::string& name, const RateCurve& curve,
                 bool is_bytes) {
  std::string value;
  for (const RatePoint& point : curve.points) {
    absl::StrAppendFormat(&value, "%s%s: %.3g", value.empty() ? "" : ", ",
                          SizeName(point.size, is_bytes), point.rate / kGiga);
    if (point.spread > 0.0) {
      absl::StrAppendFormat(&value, " (%.0f %%)", 100.0 * point.spread);
    }
  }
  AppendLine(text, name, value.empty() ? "none" : value);
}

void AppendScalar(std::string& text, const std::string& name, double rate) {
  AppendLine(text, name, absl::StrFormat("%.3g", rate / kGiga));
}

void AppendAttention(std::string& text, const ComputeRates& rates) {
  for (const PromptAttentionRate& rate : rates.prompt_attention) {
    AppendCurve(text,
                absl::StrCat("  ", ComputeTypeName(rate.compute), ", heads of ", rate.head_width),
                rate.flops, false);
  }
}

void AppendDecodeAttention(std::string& text, const ComputeRates& rates) {
  for (const DecodeAttentionRate& rate : rates.decode_attention) {
    AppendCurve(text,
                absl::StrCat("  ", ComputeTypeName(rate.compute),
                             rate.kv ? absl::StrCat(" of ", DTypeName(*rate.kv)) : "", ", ",
                             rate.head_width, ", ", rate.queries_per_kv_head, " a kv head"),
                rate.bytes, false);
  }
}

void AppendRates(std::string& text, const ComputeRates& rates) {
  text += "matmul, GFLOP/s by rows\n";
  for (const MatmulRate& rate : rates.matmul) {
    AppendCurve(text,
                absl::StrCat("  ", ComputeTypeName(rate.compute), " by ", DTypeName(rate.weights),
                             ", ", rate.inputs, " inputs"),
                rate.flops, false);
  }
  text += "attention of prompts, GFLOP/s by tokens\n";
  AppendAttention(text, rates);
  text += "decode attention, GB/s of keys and values by positions\n";
  AppendDecodeAttention(text, rates);
  text += "expansion of stored weights, 10^9 elements/s\n";
  for (const ComputeType compute : {ComputeType::kBF16, ComputeType::kF32}) {
    std::string value;
    for (const UnpackRate& rate : rates.unpack) {
      if (rate.compute == compute) {
        absl::StrAppendFormat(&value, "%s%s %.3g", value.empty() ? "" : ", ", DTypeName(rate.dtype),
                              rate.elements_per_s / kGiga);
      }
    }
    AppendLine(text, absl::StrCat("  for ", ComputeTypeName(compute)), value);
  }
  AppendScalar(text, "ops on rows, GB/s", rates.row_bytes_per_s);
  AppendLine(text, "a step beside its work", absl::StrFormat("%.1f us", rates.step_seconds * 1e6));
}

}  // namespace

absl::Status CalibrateOptions::Resolve() {
  constexpr double kLeastSeconds = 5.0;
  constexpr double kMostSeconds = 600.0;
  constexpr int kMostThreads = 4096;
  const double seconds = calibration.measure.most_seconds;
  if (!(seconds >= kLeastSeconds && seconds <= kMostSeconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--seconds is ", seconds, ", must be ", kLeastSeconds, " to ", kMostSeconds));
  }
  const int threads = calibration.discrete.num_threads;
  if (threads < 0 || threads > kMostThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads is ", threads, ", must be 0 to ", kMostThreads));
  }
  if (output.empty()) {
    output = DefaultHardwarePath();
  }
  if (calibration.folder.empty()) {
    calibration.folder = std::filesystem::path(DefaultHardwarePath()).parent_path().string();
    std::error_code error;
    std::filesystem::create_directories(calibration.folder, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat("make the folder ", calibration.folder, ": ",
                                                     error.message(), "; name another: --folder"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Calibration> RunCalibrate(const CalibrateOptions& options, const Clock& clock) {
  RETURN_IF_ERROR(PrepareHardwarePath(options.output));
  ASSIGN_OR_RETURN(Calibration calibration, Calibrate(options.calibration, clock));
  RETURN_IF_ERROR(StoreHardwareProfile(options.output, calibration.profile));
  return calibration;
}

std::string ProfileNote(const std::string& given, const HardwareProfile& profile,
                        const std::string& folder, int64_t memory_limit_bytes) {
  const auto device = CreateCpuDevice(0);
  if (!device.ok()) {
    return "";
  }
  const auto machine = ThisMachine((*device)->description(), memory_limit_bytes, folder);
  const std::string why = machine.ok() ? WhyStale(profile, *machine) : "";
  if (why.empty()) {
    return "";
  }
  if (given.empty()) {
    return absl::StrCat("the profile of ", profile.date, " is stale: ", why,
                        "; measure again: nightshift calibrate");
  }
  const std::string what =
      profile.fingerprint.empty()
          ? absl::StrCat("the profile ", profile.name, " is of published figures, this machine is ",
                         absl::StrReplaceAll(Fingerprint(*machine), {{"\n", ", "}}))
          : absl::StrCat("the profile of ", profile.date, " is of another machine: ", why);
  return absl::StrCat("--hardware ", given, ": ", what,
                      "; plans are for that machine; for this one: nightshift calibrate, and no "
                      "--hardware");
}

std::string CalibrationText(const CalibrateOptions& options, const Calibration& calibration) {
  const HardwareProfile& profile = calibration.profile;
  std::string text = absl::StrCat(profile.fingerprint, "\n");
  AppendLine(
      text, "usable memory",
      absl::StrFormat("host %.1f GiB%s, disk %.1f GiB",
                      static_cast<double>(profile.host_bytes) / kGibibyte,
                      profile.unified_memory
                          ? ""
                          : absl::StrFormat(", device %.1f GiB",
                                            static_cast<double>(profile.device_bytes) / kGibibyte),
                      static_cast<double>(profile.disk_bytes) / kGibibyte));
  text += "rates by size, and by how much the turns differed; GB/s\n";
  AppendCurve(text, "disk reads", profile.disk_read, true);
  AppendCurve(text, "disk writes", profile.disk_write, true);
  AppendCurve(text, "disk reads by depth", profile.disk_read_by_depth, false);
  if (!profile.unified_memory) {
    AppendCurve(text, "upload", profile.upload, true);
    AppendCurve(text, "download", profile.download, true);
  }
  AppendScalar(text, "reading memory", profile.device.memory_bytes_per_s);
  AppendScalar(text, "copying memory", profile.copy_bytes_per_s);
  AppendRates(text, profile.device);
  if (!profile.host.decode_attention.empty()) {
    text += "decode attention by the host, GB/s of keys and values by positions\n";
    AppendDecodeAttention(text, profile.host);
  }
  if (calibration.counts.rounds > 1) {
    absl::StrAppendFormat(&text,
                          "%d turns of each in %.1f s; rates varied by %.0f %% in the median\n",
                          calibration.counts.rounds, calibration.seconds,
                          100.0 * calibration.counts.median_spread);
  } else {
    absl::StrAppendFormat(&text, "one turn of each in %.1f s: by how much rates vary is not known\n",
                          calibration.seconds);
  }
  absl::StrAppend(&text, "profile in ", options.output, "\n");
  return text;
}

}  // namespace nightshift
