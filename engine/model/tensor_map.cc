#include "engine/model/tensor_map.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "engine/model/tensor_names.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kModelPrefix[] = "model.";

// Tables that a checkpoint may hold beside the weights: RoPE's and GPT-NeoX's causal masks, which
// follow from the configuration.
constexpr std::array kPassedOver = {".rotary_emb.inv_freq",     ".attn_rot_embd",
                                    "rope_freqs.weight",        "rope_factors_short.weight",
                                    "rope_factors_long.weight", ".attention.bias",
                                    ".attention.masked_bias"};

bool IsOfImageEncoder(absl::string_view name) {
  absl::ConsumePrefix(&name, kModelPrefix);
  return absl::StartsWith(name, "vision_tower.") ||
         absl::StartsWith(name, "multi_modal_projector.");
}

// The checkpoint's tensors by name, and which of them have found a use.
class TensorIndex {
 public:
  explicit TensorIndex(const std::vector<SourceTensor>& tensors) {
    for (const SourceTensor& tensor : tensors) {
      if (!tensor.is_mask) {
        by_name_[tensor.name] = {&tensor, false};
      }
    }
  }
  // Some published files lack the `model.` prefix; models that also take images have one more.
  const SourceTensor* Find(absl::string_view name) const {
    const absl::string_view stem = absl::StripPrefix(name, kModelPrefix);
    for (const std::string& candidate :
         {std::string(name), std::string(stem), absl::StrCat("language_model.", name),
          absl::StrCat("model.language_model.", stem)}) {
      const auto entry = by_name_.find(candidate);
      if (entry != by_name_.end()) {
        return entry->second.tensor;
      }
    }
    return nullptr;
  }
  void MarkUsed(const SourceTensor& tensor) { by_name_[tensor.name].used = true; }
  absl::Status CheckAllUsed(bool has_image_encoder) const {
    for (const auto& [name, entry] : by_name_) {
      const bool passed_over =
          std::any_of(kPassedOver.begin(), kPassedOver.end(),
                      [&name = name](const char* ending) { return absl::EndsWith(name, ending); });
      if (!entry.used && !passed_over && !(has_image_encoder && IsOfImageEncoder(name))) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", name,
                         " has no use in this architecture: the model computes more than "
                         "is supported"));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Entry {
    const SourceTensor* tensor = nullptr;
    bool used = false;
  };
  std::map<std::string, Entry, std::less<>> by_name_;
};

// Splits "layers.7.q.weight" into its number and name; layer -1 for tensors of the whole model.
std::pair<int64_t, std::string> SplitLayer(const std::string& canonical) {
  constexpr size_t kPrefixLength = 7;  // of "layers."
  if (!absl::StartsWith(canonical, "layers.")) {
    return {-1, canonical};
  }
  const size_t dot = canonical.find('.', kPrefixLength);
  return {std::stoll(canonical.substr(kPrefixLength, dot - kPrefixLength)),
          canonical.substr(dot + 1)};
}

// Splits "experts.3.gate.weight" into its number and "experts.*.gate.weight"; number -1 for other
// names.
std::pair<int64_t, std::string> SplitExpert(const std::string& name) {
  constexpr size_t kPrefixLength = 8;  // of "experts."
  if (!absl::StartsWith(name, "experts.")) {
    return {-1, name};
  }
  const size_t dot = name.find('.', kPrefixLength);
  return {std::stoll(name.substr(kPrefixLength, dot - kPrefixLength)),
          absl::StrCat("experts.*", name.substr(dot))};
}

// What the source calls a canonical tensor; empty if the format has no such tensor. A name of the
// table without an ending stands for NAME.weight and NAME.bias, a star for the number of an expert.
std::string SourceName(const Family& family, SourceFormat format, const std::string& canonical) {
  const auto [layer, full_name] = SplitLayer(canonical);
  const auto [expert, name] = SplitExpert(full_name);
  const bool gguf = format == SourceFormat::kGguf;
  for (const TensorNames& names : layer < 0 ? family.model_names : family.layer_names) {
    absl::string_view ending = name;
    if (!absl::ConsumePrefix(&ending, names.canonical) ||
        (!ending.empty() && ending != ".weight" && ending != ".bias")) {
      continue;
    }
    const std::string stem =
        absl::StrReplaceAll(gguf ? names.gguf : names.huggingface, {{"*", absl::StrCat(expert)}});
    if (stem.empty()) {
      return "";
    }
    if (layer < 0) {
      return absl::StrCat(stem, ending);
    }
    return gguf ? absl::StrCat("blk.", layer, ".", stem, ending)
                : absl::StrCat(family.huggingface_layer, layer, ".", stem, ending);
  }
  return "";
}

// The rows of q, k and v, of gate and up, or of an expert, in the tensor that holds them all.
struct FusedPlace {
  int64_t stacked = 0;  // above 0: the tensor is [stacked, rows, K], not [rows, K]
  int64_t total_rows = 0;
  int64_t first_row = 0;
  int64_t run_rows = 0;
  int64_t run_stride = 0;
};

FusedPlace PlaceInQkv(const ModelConfig& config, FusedRows order, char part) {
  const bool by_head = order == FusedRows::kByKvHead;
  const int64_t groups = by_head ? config.num_kv_heads : 1;
  const int64_t kv_rows = config.num_kv_heads / groups * config.head_width;
  const int64_t q_rows = config.num_heads / groups * config.head_width;
  const int64_t stride = q_rows + 2 * kv_rows;
  if (part == 'q') {
    return {0, stride * groups, 0, q_rows, stride};
  }
  return {0, stride * groups, part == 'k' ? q_rows : q_rows + kv_rows, kv_rows, stride};
}

// Nothing for a tensor whose source holds it alone.
std::optional<FusedPlace> PlaceInFused(const Family& family, SourceFormat format,
                                       const ModelConfig& config, const TensorSpec& spec) {
  const auto [layer, part] = SplitLayer(spec.name);
  const auto shares_source = [&, layer = layer](const char* first, const char* second) {
    return SourceName(family, format, LayerTensor(layer, first)) ==
           SourceName(family, format, LayerTensor(layer, second));
  };
  const bool of_qkv =
      absl::StartsWith(part, "q.") || absl::StartsWith(part, "k.") || absl::StartsWith(part, "v.");
  if (of_qkv && shares_source("q.weight", "k.weight")) {
    const bool gguf = format == SourceFormat::kGguf;
    return PlaceInQkv(config, gguf ? FusedRows::kStacked : family.huggingface_qkv, part.front());
  }
  const bool gate = absl::StartsWith(part, "gate.");
  if ((gate || absl::StartsWith(part, "up.")) && shares_source("gate.weight", "up.weight")) {
    const int64_t rows = config.ffn_width;
    return FusedPlace{0, 2 * rows, gate ? 0 : rows, rows, rows};
  }
  const int64_t expert = SplitExpert(part).first;
  if (expert >= 0 && format == SourceFormat::kGguf) {
    return FusedPlace{config.experts->count, config.experts->count * spec.outputs,
                      expert * spec.outputs, spec.outputs, spec.outputs};
  }
  return std::nullopt;
}

std::vector<int64_t> ShapeOf(const TensorSpec& spec, int64_t rows, int64_t stacked) {
  if (spec.layout == TensorLayout::kVector) {
    return {rows};
  }
  if (stacked > 0) {
    return {stacked, rows / stacked, spec.inputs};
  }
  return {rows, spec.inputs};
}

absl::Status CheckShape(const TensorSpec& spec, int64_t rows, int64_t stacked,
                        const SourceTensor& source) {
  const std::vector<int64_t> wanted = ShapeOf(spec, rows, stacked);
  if (source.shape != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", source.name, " has the shape [", absl::StrJoin(source.shape, ", "),
                     "]; the configuration asks for [", absl::StrJoin(wanted, ", "), "]"));
  }
  if (spec.layout == TensorLayout::kVector && !IsFloat(source.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", source.name, " is a vector of type ",
                                                   DTypeName(source.dtype),
                                                   "; F32, F16 and BF16 are supported"));
  }
  return absl::OkStatus();
}

// A bias that the source declares must be stored, and one that it denies must not be.
absl::Status CheckBias(const SourceModel& model, const TensorSpec& spec, const std::string& name,
                       bool stored) {
  const std::string part = SplitLayer(spec.name).second;
  const bool of_qkv = part == "q.bias" || part == "k.bias" || part == "v.bias";
  const std::optional<bool> declared =
      of_qkv ? model.qkv_bias : (part == "o.bias" ? model.o_bias : model.ffn_bias);
  if (declared && *declared != stored) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", name, stored ? " is stored" : " is missing",
        ", the configuration says that this model has ", *declared ? "" : "no ", "such biases"));
  }
  return absl::OkStatus();
}

bool IsNorm(const std::string& canonical) {
  return absl::StrContains(canonical, "_norm.");
}

// Which rows of its source become the tensor's, and what is added to them.
absl::Status Place(const Family& family, SourceFormat format, const ModelConfig& config,
                   TensorOrigin& origin) {
  const TensorSpec& spec = origin.spec;
  const std::optional<FusedPlace> fused = PlaceInFused(family, format, config, spec);
  RETURN_IF_ERROR(CheckShape(spec, fused ? fused->total_rows : spec.outputs,
                             fused ? fused->stacked : 0, *origin.source));
  if (fused) {
    origin.first_row = fused->first_row;
    origin.run_rows = fused->run_rows;
    origin.run_stride = fused->run_stride;
  }
  const std::string part = SplitLayer(spec.name).second;
  if (format == SourceFormat::kGguf && family.gguf_pairs_rope_rows) {
    if (absl::StartsWith(part, "q.")) {
      origin.paired_heads = config.num_heads;
    } else if (absl::StartsWith(part, "k.")) {
      origin.paired_heads = config.num_kv_heads;
    }
  }
  if (format == SourceFormat::kSafetensors && family.norm_weights_less_one && IsNorm(spec.name)) {
    origin.added = 1.0F;
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TensorOrigin::SourceRow(int64_t row) const {
  if (paired_heads > 0) {
    const int64_t head_width = spec.outputs / paired_heads;
    const int64_t half = head_width / 2;
    const int64_t in_head = row % head_width;
    row += in_head % half * 2 + in_head / half - in_head;
  }
  return run_rows == 0 ? row : first_row + row / run_rows * run_stride + row % run_rows;
}

bool TensorOrigin::AreConsecutive(int64_t first, int64_t count) const {
  return paired_heads == 0 && (run_rows == 0 || first / run_rows == (first + count - 1) / run_rows);
}

absl::StatusOr<TensorMap> MapTensors(const SourceModel& model, SourceFormat format,
                                     const std::vector<SourceTensor>& tensors) {
  const Family& family = *FindFamily(model.config.family);
  TensorIndex index(tensors);
  TensorMap map;
  map.config = model.config;
  map.notes = model.notes;
  const SourceTensor* const head = index.Find(SourceName(family, format, "head"));
  map.config.tied_head = model.tied_head.value_or(head == nullptr);
  if (map.config.tied_head && head != nullptr) {
    index.MarkUsed(*head);
    map.notes.push_back(absl::StrCat(
        "the stored ", head->name, " is passed over: the configuration ties it to the embedding"));
  }
  for (TensorSpec& spec : ModelTensors(map.config)) {
    const std::string name = SourceName(family, format, spec.name);
    const SourceTensor* const source = name.empty() ? nullptr : index.Find(name);
    TensorOrigin origin;
    origin.source = source;
    if (!spec.required) {
      RETURN_IF_ERROR(CheckBias(model, spec, name, source != nullptr));
      if (source == nullptr) {
        continue;
      }
    }
    origin.spec = std::move(spec);
    if (source != nullptr) {
      RETURN_IF_ERROR(Place(family, format, map.config, origin));
      origin.stored = origin.spec.layout == TensorLayout::kVector ? DType::kF32 : source->dtype;
      index.MarkUsed(*source);
    } else if (model.plain_norms && IsNorm(origin.spec.name)) {
      origin.fill = absl::EndsWith(origin.spec.name, ".weight") ? 1.0F : 0.0F;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
    }
    map.tensors.push_back(std::move(origin));
  }
  RETURN_IF_ERROR(index.CheckAllUsed(model.has_image_encoder));
  return map;
}

}  // namespace nightshift
