// What hardware_profile.h declares of JSON.
#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "engine/model/stored_panel.h"
#include "engine/model/strict_json.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/profile_fields.h"
#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;
// Members keep the order in which a person reads them.
using OrderedJson = nlohmann::ordered_json;

constexpr char kFormat[] = "nightshift-hardware-1";
constexpr char kRefinementFormat[] = "nightshift-refinement-1";
constexpr char kWhat[] = "hardware profile";
constexpr size_t kMostBytes = size_t{1} << 20;  // of a text; a measured profile has 60 KiB

// Writing.

OrderedJson CurveToJson(const RateCurve& curve, const CurveFields& fields) {
  OrderedJson points = OrderedJson::array();
  for (const RatePoint& point : curve.points) {
    OrderedJson entry = {{fields.size, point.size}, {fields.rate, point.rate}};
    if (point.spread > 0.0) {
      entry[kSpreadField] = point.spread;
    }
    points.push_back(std::move(entry));
  }
  return points;
}

// Of attention to keys and values that are packed.
constexpr char kKvField[] = "kv";

OrderedJson RatesToJson(const ComputeRates& rates) {
  OrderedJson json = {{"matmul", OrderedJson::array()},
                      {"prompt_attention", OrderedJson::array()},
                      {"decode_attention", OrderedJson::array()},
                      {"unpack", OrderedJson::array()}};
  for (const MatmulRate& rate : rates.matmul) {
    json["matmul"].push_back({{"compute", ComputeTypeName(rate.compute)},
                              {"weights", DTypeName(rate.weights)},
                              {"inputs", rate.inputs},
                              {kRatesField, CurveToJson(rate.flops, kMatmulCurve)}});
  }
  for (const PromptAttentionRate& rate : rates.prompt_attention) {
    json["prompt_attention"].push_back(
        {{"compute", ComputeTypeName(rate.compute)},
         {"head_width", rate.head_width},
         {kRatesField, CurveToJson(rate.flops, kPromptAttentionCurve)}});
  }
  for (const DecodeAttentionRate& rate : rates.decode_attention) {
    OrderedJson entry = {{"compute", ComputeTypeName(rate.compute)}};
    if (rate.kv) {
      entry[kKvField] = DTypeName(*rate.kv);
    }
    entry["head_width"] = rate.head_width;
    entry["queries_per_kv_head"] = rate.queries_per_kv_head;
    entry[kRatesField] = CurveToJson(rate.bytes, kDecodeAttentionCurve);
    json["decode_attention"].push_back(std::move(entry));
  }
  for (const UnpackRate& rate : rates.unpack) {
    json["unpack"].push_back({{"weights", DTypeName(rate.dtype)},
                              {"compute", ComputeTypeName(rate.compute)},
                              {"elements_per_s", rate.elements_per_s}});
  }
  json["row_bytes_per_s"] = rates.row_bytes_per_s;
  json["memory_bytes_per_s"] = rates.memory_bytes_per_s;
  json["step_seconds"] = rates.step_seconds;
  return json;
}

OrderedJson LanesToJson(const ProfileRefinement& refinement) {
  OrderedJson json = OrderedJson::object();
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    const auto id = static_cast<LaneId>(lane);
    if (!refinement.recent(id).empty()) {
      json[LaneName(id)] = refinement.recent(id);
    }
  }
  return json;
}

// Reading.

// Refuses members that nobody would read: a misspelt name is not a default.
absl::Status CheckMembers(const Json& object, const std::string& what,
                          std::initializer_list<const char*> known) {
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": is not an object"));
  }
  for (auto member = object.begin(); member != object.end(); ++member) {
    if (std::none_of(known.begin(), known.end(),
                     [&](const char* name) { return member.key() == name; })) {
      return absl::InvalidArgumentError(absl::StrCat(
          what, ": there is no member ", absl::string_view(member.key()).substr(0, 64)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const Json*> ListOf(const Json& object, const std::string& what, const char* name) {
  const auto member = object.find(name);
  if (member == object.end()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", name, " is missing"));
  }
  if (!member->is_array() || member->size() > kMostProfileEntries) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", name, " is not a list of at most ",
                                                   kMostProfileEntries, " entries"));
  }
  return &*member;
}

std::string Within(const std::string& what, const char* list, size_t index) {
  return absl::StrCat(what, what == kWhat ? ", " : ".", list, "[", index, "]");
}

// Any number; what it may be is ValidateHardwareProfile's to say.
double AnyNumber(JsonReader& reader, const char* name) {
  return reader.RequiredNumber(name, -DBL_MAX, DBL_MAX);
}

absl::StatusOr<RateCurve> ReadCurve(const Json& object, const std::string& what, const char* name,
                                    const CurveFields& fields) {
  ASSIGN_OR_RETURN(const Json* points, ListOf(object, what, name));
  RateCurve curve;
  for (size_t i = 0; i < points->size(); ++i) {
    const std::string at = Within(what, name, i);
    RETURN_IF_ERROR(CheckMembers((*points)[i], at, {fields.size, fields.rate, kSpreadField}));
    JsonReader reader((*points)[i], at);
    RatePoint point;
    point.size = AnyNumber(reader, fields.size);
    point.rate = AnyNumber(reader, fields.rate);
    point.spread = reader.Number(kSpreadField, -DBL_MAX, DBL_MAX, 0.0);
    RETURN_IF_ERROR(reader.status());
    curve.points.push_back(point);
  }
  return curve;
}

ComputeType ReadCompute(JsonReader& reader) {
  const std::string text = reader.RequiredText("compute");
  if (const std::optional<ComputeType> type = ComputeTypeNamed(text)) {
    return *type;
  }
  reader.Refuse("compute", "is not f32, bf16 or int8");
  return ComputeType::kF32;
}

DType ReadDType(JsonReader& reader, const char* name) {
  const std::string text = reader.RequiredText(name);
  for (int64_t number = 0; number <= UINT8_MAX; ++number) {
    const std::optional<DType> dtype = StoredDType(number);
    if (dtype && text == DTypeName(*dtype)) {
      return *dtype;
    }
  }
  reader.Refuse(name, "is not a stored type, as BF16 or U4G64");
  return DType::kF32;
}

// The entries of one list of a ComputeRates; `read` takes an entry's reader, object and name.
template <typename Entry, typename Read>
absl::StatusOr<std::vector<Entry>> ReadEntries(const Json& object, const std::string& what,
                                               const char* name,
                                               std::initializer_list<const char*> members,
                                               const Read& read) {
  ASSIGN_OR_RETURN(const Json* list, ListOf(object, what, name));
  std::vector<Entry> entries;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = Within(what, name, i);
    RETURN_IF_ERROR(CheckMembers((*list)[i], at, members));
    JsonReader reader((*list)[i], at);
    Entry entry;
    RETURN_IF_ERROR(read(reader, (*list)[i], at, entry));
    RETURN_IF_ERROR(reader.status());
    entries.push_back(std::move(entry));
  }
  return entries;
}

absl::StatusOr<ComputeRates> ReadRates(const Json& parent, const char* name) {
  const auto member = parent.find(name);
  if (member == parent.end()) {
    return absl::InvalidArgumentError(absl::StrCat(kWhat, ": ", name, " is missing"));
  }
  const std::string what = absl::StrCat(kWhat, ", ", name);
  RETURN_IF_ERROR(CheckMembers(*member, what,
                               {"matmul", "prompt_attention", "decode_attention", "unpack",
                                "row_bytes_per_s", "memory_bytes_per_s", "step_seconds"}));
  constexpr int64_t kAny = INT64_MAX;
  ComputeRates rates;
  ASSIGN_OR_RETURN(
      rates.matmul,
      ReadEntries<MatmulRate>(
          *member, what, "matmul", {"compute", "weights", "inputs", kRatesField},
          [](JsonReader& reader, const Json& json, const std::string& at, MatmulRate& entry) {
            entry.compute = ReadCompute(reader);
            entry.weights = ReadDType(reader, "weights");
            entry.inputs = reader.RequiredInteger("inputs", -kAny, kAny);
            ASSIGN_OR_RETURN(entry.flops, ReadCurve(json, at, kRatesField, kMatmulCurve));
            return absl::OkStatus();
          }));
  ASSIGN_OR_RETURN(rates.prompt_attention,
                   ReadEntries<PromptAttentionRate>(
                       *member, what, "prompt_attention", {"compute", "head_width", kRatesField},
                       [](JsonReader& reader, const Json& json, const std::string& at,
                          PromptAttentionRate& entry) {
                         entry.compute = ReadCompute(reader);
                         entry.head_width = reader.RequiredInteger("head_width", -kAny, kAny);
                         ASSIGN_OR_RETURN(entry.flops,
                                          ReadCurve(json, at, kRatesField, kPromptAttentionCurve));
                         return absl::OkStatus();
                       }));
  ASSIGN_OR_RETURN(
      rates.decode_attention,
      ReadEntries<DecodeAttentionRate>(
          *member, what, "decode_attention",
          {"compute", kKvField, "head_width", "queries_per_kv_head", kRatesField},
          [](JsonReader& reader, const Json& json, const std::string& at,
             DecodeAttentionRate& entry) {
            entry.compute = ReadCompute(reader);
            if (json.contains(kKvField)) {
              entry.kv = ReadDType(reader, kKvField);
            }
            entry.head_width = reader.RequiredInteger("head_width", -kAny, kAny);
            entry.queries_per_kv_head = reader.RequiredInteger("queries_per_kv_head", -kAny, kAny);
            ASSIGN_OR_RETURN(entry.bytes, ReadCurve(json, at, kRatesField, kDecodeAttentionCurve));
            return absl::OkStatus();
          }));
  ASSIGN_OR_RETURN(
      rates.unpack,
      ReadEntries<UnpackRate>(*member, what, "unpack", {"compute", "weights", "elements_per_s"},
                              [](JsonReader& reader, const Json& /*json*/,
                                 const std::string& /*at*/, UnpackRate& entry) {
                                entry.compute = ReadCompute(reader);
                                entry.dtype = ReadDType(reader, "weights");
                                entry.elements_per_s = AnyNumber(reader, "elements_per_s");
                                return absl::OkStatus();
                              }));
  JsonReader reader(*member, what);
  rates.row_bytes_per_s = AnyNumber(reader, "row_bytes_per_s");
  rates.memory_bytes_per_s = AnyNumber(reader, "memory_bytes_per_s");
  rates.step_seconds = AnyNumber(reader, "step_seconds");
  RETURN_IF_ERROR(reader.status());
  return rates;
}

absl::StatusOr<std::map<std::string, double>> ReadSpreads(const Json& document) {
  std::map<std::string, double> spreads;
  const auto member = document.find("spreads");
  if (member == document.end()) {
    return spreads;
  }
  if (!member->is_object() || member->size() > kMostProfileEntries) {
    return absl::InvalidArgumentError(absl::StrCat(kWhat, ": spreads is not an object of at most ",
                                                   kMostProfileEntries, " members"));
  }
  JsonReader reader(*member, absl::StrCat(kWhat, ", spreads"));
  for (const auto& [name, value] : member->items()) {
    spreads[name] = AnyNumber(reader, name.c_str());
  }
  RETURN_IF_ERROR(reader.status());
  return spreads;
}

absl::StatusOr<ProfileRefinement> ReadRefinement(const Json& document) {
  ProfileRefinement refinement;
  const auto member = document.find("refinement");
  if (member == document.end()) {
    return refinement;
  }
  const std::string what = absl::StrCat(kWhat, ", refinement");
  RETURN_IF_ERROR(CheckMembers(
      *member, what,
      {LaneName(LaneId::kRead), LaneName(LaneId::kUpload), LaneName(LaneId::kCompute),
       LaneName(LaneId::kHostAttention), LaneName(LaneId::kDownload), LaneName(LaneId::kWrite)}));
  for (const auto& [name, list] : member->items()) {
    LaneId lane = LaneId::kRead;
    while (name != LaneName(lane)) {
      lane = static_cast<LaneId>(static_cast<size_t>(lane) + 1);
    }
    ASSIGN_OR_RETURN(const Json* logarithms, ListOf(*member, what, LaneName(lane)));
    for (const Json& logarithm : *logarithms) {
      if (!logarithm.is_number()) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, ": ", name, " is not a list of numbers"));
      }
      RETURN_IF_ERROR(refinement.Restore(lane, logarithm.get<double>()));
    }
  }
  return refinement;
}

// Of the measured rates alone.
std::string DigestOf(const HardwareProfile& profile) {
  HardwareProfile measured = profile;
  measured.refinement = {};
  const std::string json = HardwareProfileToJson(measured);
  return absl::StrCat(absl::Hex(Xxh3(std::as_bytes(std::span(json))), absl::kZeroPad16));
}

absl::Status ReadHead(const Json& document, HardwareProfile& profile) {
  JsonReader reader(document, kWhat);
  if (reader.RequiredText("format") != kFormat) {
    reader.Refuse("format", absl::StrCat("is not ", kFormat));
  }
  profile.name = reader.RequiredText("name");
  profile.source = reader.RequiredText("source");
  profile.date = reader.Text("date", "");
  profile.fingerprint = reader.Text("fingerprint", "");
  profile.unified_memory = reader.RequiredBool("unified_memory");
  constexpr int64_t kAny = INT64_MAX;
  profile.device_bytes = reader.RequiredInteger("device_bytes", -kAny, kAny);
  profile.host_bytes = reader.RequiredInteger("host_bytes", -kAny, kAny);
  profile.disk_bytes = reader.RequiredInteger("disk_bytes", -kAny, kAny);
  profile.pageable_upload_bytes_per_s = AnyNumber(reader, "pageable_upload_bytes_per_s");
  profile.pageable_download_bytes_per_s = AnyNumber(reader, "pageable_download_bytes_per_s");
  profile.copy_bytes_per_s = AnyNumber(reader, "copy_bytes_per_s");
  return reader.status();
}

}  // namespace

std::string HardwareProfileToJson(const HardwareProfile& profile) {
  OrderedJson json = {{"format", kFormat},
                      {"name", profile.name},
                      {"source", profile.source},
                      {"date", profile.date},
                      {"fingerprint", profile.fingerprint},
                      {"unified_memory", profile.unified_memory},
                      {"device_bytes", profile.device_bytes},
                      {"host_bytes", profile.host_bytes},
                      {"disk_bytes", profile.disk_bytes},
                      {"disk_read", CurveToJson(profile.disk_read, kBytesCurve)},
                      {"disk_write", CurveToJson(profile.disk_write, kBytesCurve)},
                      {"disk_read_by_depth", CurveToJson(profile.disk_read_by_depth, kDepthCurve)},
                      {"upload", CurveToJson(profile.upload, kBytesCurve)},
                      {"download", CurveToJson(profile.download, kBytesCurve)},
                      {"pageable_upload_bytes_per_s", profile.pageable_upload_bytes_per_s},
                      {"pageable_download_bytes_per_s", profile.pageable_download_bytes_per_s},
                      {"copy_bytes_per_s", profile.copy_bytes_per_s},
                      {"device", RatesToJson(profile.device)},
                      {"host", RatesToJson(profile.host)}};
  if (!profile.spreads.empty()) {
    json["spreads"] = profile.spreads;
  }
  if (!profile.refinement.empty()) {
    json["refinement"] = LanesToJson(profile.refinement);
  }
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<HardwareProfile> HardwareProfileFromJson(absl::string_view text) {
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(kWhat, ": has ", text.size(), " bytes, must have at most ", kMostBytes));
  }
  ASSIGN_OR_RETURN(const Json document, ParseStrictJson(std::string(text), kWhat));
  RETURN_IF_ERROR(CheckMembers(document, kWhat,
                               {"format",
                                "name",
                                "source",
                                "date",
                                "fingerprint",
                                "unified_memory",
                                "device_bytes",
                                "host_bytes",
                                "disk_bytes",
                                "disk_read",
                                "disk_write",
                                "disk_read_by_depth",
                                "upload",
                                "download",
                                "pageable_upload_bytes_per_s",
                                "pageable_download_bytes_per_s",
                                "copy_bytes_per_s",
                                "device",
                                "host",
                                "spreads",
                                "refinement"}));
  HardwareProfile profile;
  RETURN_IF_ERROR(ReadHead(document, profile));
  ASSIGN_OR_RETURN(profile.disk_read, ReadCurve(document, kWhat, "disk_read", kBytesCurve));
  ASSIGN_OR_RETURN(profile.disk_write, ReadCurve(document, kWhat, "disk_write", kBytesCurve));
  ASSIGN_OR_RETURN(profile.disk_read_by_depth,
                   ReadCurve(document, kWhat, "disk_read_by_depth", kDepthCurve));
  ASSIGN_OR_RETURN(profile.upload, ReadCurve(document, kWhat, "upload", kBytesCurve));
  ASSIGN_OR_RETURN(profile.download, ReadCurve(document, kWhat, "download", kBytesCurve));
  ASSIGN_OR_RETURN(profile.device, ReadRates(document, "device"));
  ASSIGN_OR_RETURN(profile.host, ReadRates(document, "host"));
  ASSIGN_OR_RETURN(profile.spreads, ReadSpreads(document));
  ASSIGN_OR_RETURN(profile.refinement, ReadRefinement(document));
  RETURN_IF_ERROR(ValidateHardwareProfile(profile));
  return profile;
}

std::string RefinementToJson(const HardwareProfile& profile) {
  const OrderedJson json = {{"format", kRefinementFormat},
                            {"profile", profile.name},
                            {"date", profile.date},
                            {"digest", DigestOf(profile)},
                            {"refinement", LanesToJson(profile.refinement)}};
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

absl::StatusOr<ProfileRefinement> RefinementFromJson(absl::string_view text,
                                                     const HardwareProfile& profile) {
  const std::string what = "hardware refinement";
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": has ", text.size(), " bytes, must have at most ", kMostBytes));
  }
  ASSIGN_OR_RETURN(const Json document, ParseStrictJson(std::string(text), what));
  RETURN_IF_ERROR(
      CheckMembers(document, what, {"format", "profile", "date", "digest", "refinement"}));
  JsonReader reader(document, what);
  if (reader.RequiredText("format") != kRefinementFormat) {
    reader.Refuse("format", absl::StrCat("is not ", kRefinementFormat));
  }
  const std::string digest = reader.RequiredText("digest");
  RETURN_IF_ERROR(reader.status());
  if (digest != DigestOf(profile)) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, ": was learned beside other rates than those of ", profile.name, " of ",
                     profile.date.empty() ? "no date" : profile.date));
  }
  return ReadRefinement(document);
}

}  // namespace nightshift
