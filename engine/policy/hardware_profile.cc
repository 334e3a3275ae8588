#include "engine/policy/hardware_profile.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "engine/policy/profile_fields.h"
#include "kernels/base/check.h"

namespace nightshift {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 53;
// So wide that no machine is outside, so narrow that no time or product of two overflows.
constexpr double kLeastRate = 1.0;
constexpr double kMostRate = 1e18;
constexpr double kMostSize = 1e15;
constexpr double kMostSpread = 1e6;
constexpr double kMostStepSeconds = 1.0;
constexpr int64_t kMostHeadWidth = 4096;
constexpr double kMostInputs = 1 << 20;
constexpr size_t kMostText = 4096;

// Keeps the first problem.
class FieldCheck {
 public:
  void Range(const std::string& field, double value, double low, double high) {
    if (!(value >= low && value <= high)) {
      Refuse(field, absl::StrCat("is ", value, ", must be ", low, " to ", high));
    }
  }
  void Bytes(const std::string& field, int64_t value, int64_t low) {
    if (value < low || value > kMostBytes) {
      Refuse(field, absl::StrCat("is ", value, ", must be ", low, " to ", kMostBytes));
    }
  }
  void Rate(const std::string& field, double value) { Range(field, value, kLeastRate, kMostRate); }
  void Count(const std::string& field, size_t count, size_t least, size_t most) {
    if (count < least || count > most) {
      Refuse(field, absl::StrCat("has ", count, " entries, must have ", least, " to ", most));
    }
  }
  void Text(const std::string& field, const std::string& text) {
    if (text.size() > kMostText) {
      Refuse(field, absl::StrCat("has ", text.size(), " bytes, must have at most ", kMostText));
    }
  }
  void Refuse(const std::string& field, const std::string& problem) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("hardware profile: ", field, " ", problem));
    }
  }
  void Curve(const std::string& field, const CurveFields& fields, const RateCurve& curve,
             size_t least_points) {
    Count(field, curve.points.size(), least_points, kMostProfileEntries);
    double before = 0.0;
    for (size_t i = 0; i < curve.points.size(); ++i) {
      const RatePoint& point = curve.points[i];
      const std::string at = absl::StrCat(field, "[", i, "].");
      if (!(point.size > before && point.size <= kMostSize)) {
        Refuse(at + fields.size, absl::StrCat("is ", point.size, ", must be above ", before,
                                              " and at most ", kMostSize));
      }
      Rate(at + fields.rate, point.rate);
      Range(at + kSpreadField, point.spread, 0.0, kMostSpread);
      before = point.size;
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// The entries of a list, each of another kind: `key` says what an entry is for.
template <typename Entry, typename Key>
void CheckKinds(FieldCheck& check, const std::string& field, const std::vector<Entry>& entries,
                size_t least, const Key& key) {
  check.Count(field, entries.size(), least, kMostProfileEntries);
  for (size_t i = 0; i < entries.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (key(entries[i]) == key(entries[j])) {
        check.Refuse(absl::StrCat(field, "[", i, "]"),
                     absl::StrCat("is for ", key(entries[i]), ", as is entry ", j));
      }
    }
  }
}

void CheckRates(FieldCheck& check, const std::string& field, const ComputeRates& rates,
                bool needs_matmul, bool needs_all) {
  const auto at = [&](const char* list, size_t index) {
    return absl::StrCat(field, ".", list, "[", index, "].");
  };
  CheckKinds(check, field + ".matmul", rates.matmul, needs_matmul ? 1 : 0,
             [](const MatmulRate& rate) {
               return absl::StrCat(ComputeTypeName(rate.compute), ", ", DTypeName(rate.weights),
                                   " and ", rate.inputs, " inputs");
             });
  for (size_t i = 0; i < rates.matmul.size(); ++i) {
    check.Range(at("matmul", i) + "inputs", static_cast<double>(rates.matmul[i].inputs), 1,
                kMostInputs);
    check.Curve(at("matmul", i) + kRatesField, kMatmulCurve, rates.matmul[i].flops, 1);
  }
  CheckKinds(check, field + ".prompt_attention", rates.prompt_attention, needs_matmul ? 1 : 0,
             [](const PromptAttentionRate& rate) {
               return absl::StrCat(ComputeTypeName(rate.compute), " and heads of ",
                                   rate.head_width);
             });
  for (size_t i = 0; i < rates.prompt_attention.size(); ++i) {
    const PromptAttentionRate& rate = rates.prompt_attention[i];
    const std::string entry = at("prompt_attention", i);
    check.Range(entry + "head_width", static_cast<double>(rate.head_width), 1, kMostHeadWidth);
    check.Curve(entry + kRatesField, kPromptAttentionCurve, rate.flops, 1);
  }
  CheckKinds(check, field + ".decode_attention", rates.decode_attention, needs_all ? 1 : 0,
             [](const DecodeAttentionRate& rate) {
               return absl::StrCat(ComputeTypeName(rate.compute), ", heads of ", rate.head_width,
                                   " and ", rate.queries_per_kv_head, " queries a kv head",
                                   rate.kv ? absl::StrCat(", kv ", DTypeName(*rate.kv)) : "");
             });
  for (size_t i = 0; i < rates.decode_attention.size(); ++i) {
    const DecodeAttentionRate& rate = rates.decode_attention[i];
    const std::string entry = at("decode_attention", i);
    check.Range(entry + "head_width", static_cast<double>(rate.head_width), 1, kMostHeadWidth);
    if (rate.kv && IsFloat(*rate.kv)) {
      check.Refuse(entry + "kv", absl::StrCat("is ", DTypeName(*rate.kv), ", no type of groups"));
    }
    check.Range(entry + "queries_per_kv_head", static_cast<double>(rate.queries_per_kv_head), 1,
                kMostHeadWidth);
    check.Curve(entry + kRatesField, kDecodeAttentionCurve, rate.bytes, 1);
  }
  CheckKinds(check, field + ".unpack", rates.unpack, 0, [](const UnpackRate& rate) {
    return absl::StrCat(DTypeName(rate.dtype), " and ", ComputeTypeName(rate.compute));
  });
  for (size_t i = 0; i < rates.unpack.size(); ++i) {
    check.Rate(at("unpack", i) + "elements_per_s", rates.unpack[i].elements_per_s);
  }
  const auto scalar = [&](const char* name, double rate, bool is_needed) {
    if (is_needed || rate != 0.0) {
      check.Rate(absl::StrCat(field, ".", name), rate);
    }
  };
  scalar("row_bytes_per_s", rates.row_bytes_per_s, needs_matmul);
  scalar("memory_bytes_per_s", rates.memory_bytes_per_s, needs_all);
  check.Range(field + ".step_seconds", rates.step_seconds, 0.0, kMostStepSeconds);
}

void CheckLinks(FieldCheck& check, const HardwareProfile& profile) {
  const bool is_discrete = !profile.unified_memory;
  const auto link = [&](const char* field, const RateCurve& curve) {
    if (!is_discrete && !curve.empty()) {
      check.Refuse(field, "has entries, must have none where host and device share one memory");
    }
    check.Curve(field, kBytesCurve, curve, is_discrete ? 1 : 0);
  };
  link("upload", profile.upload);
  link("download", profile.download);
  check.Range("pageable_upload_bytes_per_s", profile.pageable_upload_bytes_per_s, 0.0, kMostRate);
  check.Range("pageable_download_bytes_per_s", profile.pageable_download_bytes_per_s, 0.0,
              kMostRate);
}

}  // namespace

double RateCurve::At(double size) const {
  CHECK(!points.empty());
  const auto above =
      std::upper_bound(points.begin(), points.end(), size,
                       [](double value, const RatePoint& point) { return value < point.size; });
  if (above == points.begin()) {
    return points.front().rate;
  }
  if (above == points.end()) {
    return points.back().rate;
  }
  const RatePoint& low = *(above - 1);
  const double part =
      (std::log(size) - std::log(low.size)) / (std::log(above->size) - std::log(low.size));
  return low.rate + part * (above->rate - low.rate);
}

absl::Status ValidateHardwareProfile(const HardwareProfile& profile) {
  FieldCheck check;
  check.Text("name", profile.name);
  check.Text("source", profile.source);
  check.Text("date", profile.date);
  check.Text("fingerprint", profile.fingerprint);
  if (profile.unified_memory && profile.device_bytes != 0) {
    check.Refuse("device_bytes", absl::StrCat("is ", profile.device_bytes,
                                              ", must be 0 where the memory is the host's"));
  }
  check.Bytes("device_bytes", profile.device_bytes, profile.unified_memory ? 0 : 1);
  check.Bytes("host_bytes", profile.host_bytes, 1);
  check.Bytes("disk_bytes", profile.disk_bytes, 0);
  check.Curve("disk_read", kBytesCurve, profile.disk_read, 1);
  check.Curve("disk_write", kBytesCurve, profile.disk_write, 1);
  check.Curve("disk_read_by_depth", kDepthCurve, profile.disk_read_by_depth, 0);
  CheckLinks(check, profile);
  check.Rate("copy_bytes_per_s", profile.copy_bytes_per_s);
  CheckRates(check, "device", profile.device, true, true);
  CheckRates(check, "host", profile.host, false, !profile.unified_memory);
  check.Count("spreads", profile.spreads.size(), 0, kMostProfileEntries);
  for (const auto& [name, spread] : profile.spreads) {
    check.Text("spreads", name);
    check.Range("spreads." + name, spread, 0.0, kMostSpread);
  }
  return check.status();
}

}  // namespace nightshift
