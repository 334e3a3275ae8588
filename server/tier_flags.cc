#include "server/tier_flags.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "kernels/base/status_macros.h"
#include "server/memory_limit.h"

namespace nightshift {
namespace {

absl::Status WrongFlag(const char* key, const std::string& text, const std::string& must) {
  return absl::InvalidArgumentError(absl::StrCat("--", key, " is \"", text, "\", must be ", must));
}

absl::Status ReadRate(const char* key, const std::string& text, double& bytes_per_s) {
  int64_t bytes = 0;
  RETURN_IF_ERROR(ReadSizeFlag(key, text, bytes));
  bytes_per_s = static_cast<double>(bytes);
  return absl::OkStatus();
}

template <typename Value>
absl::Status ReadChoice(const char* key, const std::string& text,
                        const std::vector<std::pair<std::string, Value>>& choices, Value& value) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : choices) {
    if (text == name) {
      value = choice;
      return absl::OkStatus();
    }
    names.push_back(name);
  }
  return WrongFlag(key, text, absl::StrJoin(names, " or "));
}

}  // namespace

absl::Status ReadShareFlag(const char* key, const std::string& text, TierShares& shares) {
  if (text.empty()) {
    return absl::OkStatus();
  }
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  double device = 0.0;
  double host = 0.0;
  if (parts.size() != 2 || !absl::SimpleAtod(parts[0], &device) ||
      !absl::SimpleAtod(parts[1], &host) || !(device >= 0.0) || !(host >= 0.0) ||
      !(device + host <= 100.0)) {
    return WrongFlag(key, text,
                     "two numbers of per cent, as 20,30: on the device and on the host; the rest, "
                     "up to 100, is on disk");
  }
  shares = {device / 100.0, host / 100.0};
  return absl::OkStatus();
}

std::vector<TierFlag> ListTierFlags(TierFlags& flags) {
  return {
      {"device", &flags.device,
       "what computes: cpu; cuda, a GPU or nothing; or auto, a GPU if one can be used, else the CPU"},
      {"gpu", &flags.gpu, "which one, as CUDA counts them"},
      {"device-budget", &flags.device_budget,
       "bytes of the GPU's memory (default: 85 % of it); on the CPU of a device with memory of its "
       "own, made of this machine's: for trying other machines' shapes (default: one memory)"},
      {"upload-rate", &flags.upload_rate, "of such a device, bytes a second, as 8GiB"},
      {"download-rate", &flags.download_rate, "of that device, bytes a second"},
      {"device-flops", &flags.device_flops, "of that device, operations a second, as 2e12"},
      {"spill-budget", &flags.spill_budget,
       "bytes of disk for keys, values and activations (default: none)"},
      {"spill-folder", &flags.spill_folder, "folder on that disk"},
      {"weight-shares", &flags.weight_shares,
       "per cent of weights on the device and on the host, as 20,30; the rest is read from disk "
       "in every sweep (default: planned)"},
      {"kv-shares", &flags.kv_shares, "the same of keys and values (default: all on the device)"},
      {"activation-shares", &flags.activation_shares,
       "the same of activations (default: all on the device)"},
      {"schedule", &flags.schedule,
       "rolling; or zigzag or row, which other systems run, to compare with"},
      {"weight-buffer", &flags.weight_buffer,
       "where streamed weights wait: ring, sweeps of one batch; two-layers, of several"},
      {"weight-checks", &flags.weight_checks,
       "reads of streamed weights that are held to their checksums: every or first"},
      {"overlap", &flags.overlap, "on; or off, one step after the other, to compare with"},
      {"attention", &flags.attention,
       "device; or host, for decoding requests whose keys lie beside the device"},
  };
}

absl::StatusOr<DeviceChoice> ReadDeviceFlags(const TierFlags& flags) {
  DeviceChoice choice;
  RETURN_IF_ERROR(ReadChoice<DeviceKind>(
      "device", flags.device,
      {{"cpu", DeviceKind::kCpu}, {"auto", DeviceKind::kAuto}, {"cuda", DeviceKind::kCuda}},
      choice.kind));
  if (!absl::SimpleAtoi(flags.gpu, &choice.gpu) || choice.gpu < 0) {
    return WrongFlag("gpu", flags.gpu, "a number, 0 the first one");
  }
  return choice;
}

absl::StatusOr<TierOptions> ReadTierFlags(const TierFlags& flags) {
  TierOptions tiers;
  RETURN_IF_ERROR(ReadSizeFlag("device-budget", flags.device_budget, tiers.device_budget_bytes));
  RETURN_IF_ERROR(ReadRate("upload-rate", flags.upload_rate, tiers.upload_bytes_per_s));
  RETURN_IF_ERROR(ReadRate("download-rate", flags.download_rate, tiers.download_bytes_per_s));
  if (!flags.device_flops.empty() &&
      (!absl::SimpleAtod(flags.device_flops, &tiers.device_flops_per_s) ||
       !std::isfinite(tiers.device_flops_per_s) || tiers.device_flops_per_s < 0.0)) {
    return WrongFlag("device-flops", flags.device_flops, "a number, as 2e12");
  }
  RETURN_IF_ERROR(ReadSizeFlag("spill-budget", flags.spill_budget, tiers.disk_budget_bytes));
  tiers.spill_folder = flags.spill_folder;
  RETURN_IF_ERROR(ReadShareFlag("weight-shares", flags.weight_shares, tiers.weights));
  RETURN_IF_ERROR(ReadShareFlag("kv-shares", flags.kv_shares, tiers.kv));
  RETURN_IF_ERROR(ReadShareFlag("activation-shares", flags.activation_shares, tiers.activations));
  RETURN_IF_ERROR(ReadChoice<ScheduleKind>("schedule", flags.schedule,
                                           {{"rolling", ScheduleKind::kRolling},
                                            {"zigzag", ScheduleKind::kZigzag},
                                            {"row", ScheduleKind::kRow}},
                                           tiers.schedule));
  RETURN_IF_ERROR(ReadChoice<WeightBuffering>(
      "weight-buffer", flags.weight_buffer,
      {{"ring", WeightBuffering::kRing}, {"two-layers", WeightBuffering::kTwoLayers}},
      tiers.buffering));
  RETURN_IF_ERROR(
      ReadChoice<bool>("overlap", flags.overlap, {{"on", true}, {"off", false}}, tiers.overlap));
  RETURN_IF_ERROR(ReadChoice<bool>("attention", flags.attention,
                                   {{"device", false}, {"host", true}}, tiers.host_attention));
  RETURN_IF_ERROR(tiers.Validate());
  return tiers;
}

}  // namespace nightshift
