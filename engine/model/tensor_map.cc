#include "engine/model/tensor_map.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "engine/model/tensor_names.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kModelPrefix[] = "model.";

// Tables that a checkpoint may hold beside the weights: RoPE's, which follow from the
// configuration.
constexpr std::array kPassedOver = {".rotary_emb.inv_freq", ".attn_rot_embd", "rope_freqs.weight"};

// The checkpoint's tensors by name, and which of them have found a use.
class TensorIndex {
 public:
  explicit TensorIndex(const std::vector<SourceTensor>& tensors) {
    for (const SourceTensor& tensor : tensors) {
      by_name_[tensor.name] = {&tensor, false};
    }
  }
  // Some published files lack the `model.` prefix.
  const SourceTensor* Find(absl::string_view name) const {
    auto entry = by_name_.find(name);
    if (entry == by_name_.end() && absl::ConsumePrefix(&name, kModelPrefix)) {
      entry = by_name_.find(name);
    }
    return entry == by_name_.end() ? nullptr : entry->second.tensor;
  }
  void MarkUsed(const SourceTensor& tensor) { by_name_[tensor.name].used = true; }
  absl::Status CheckAllUsed() const {
    for (const auto& [name, entry] : by_name_) {
      const bool passed_over =
          std::any_of(kPassedOver.begin(), kPassedOver.end(),
                      [&name = name](const char* ending) { return absl::EndsWith(name, ending); });
      if (!entry.used && !passed_over) {
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

// What the source calls a canonical tensor; empty if the format has no such tensor.
std::string SourceName(const Family& family, SourceFormat format, const std::string& canonical) {
  const auto [layer, name] = SplitLayer(canonical);
  const bool gguf = format == SourceFormat::kGguf;
  for (const TensorNames& names : layer < 0 ? family.model_names : family.layer_names) {
    if (name != names.canonical) {
      continue;
    }
    if (layer < 0) {
      return gguf ? names.gguf : names.huggingface;
    }
    return gguf ? absl::StrCat("blk.", layer, ".", names.gguf)
                : absl::StrCat(family.huggingface_layer, layer, ".", names.huggingface);
  }
  return "";
}

absl::Status CheckShape(const TensorSpec& spec, const SourceTensor& source) {
  const bool vector = spec.layout == TensorLayout::kVector;
  const std::vector<int64_t> wanted =
      vector ? std::vector<int64_t>{spec.outputs} : std::vector<int64_t>{spec.outputs, spec.inputs};
  if (source.shape != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", source.name, " has the shape [", absl::StrJoin(source.shape, ", "),
                     "]; the configuration asks for [", absl::StrJoin(wanted, ", "), "]"));
  }
  if (vector && !IsFloat(source.dtype)) {
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
  const bool of_attention =
      part == "q.bias" || part == "k.bias" || part == "v.bias" || part == "o.bias";
  const std::optional<bool> declared = of_attention ? model.attention_bias : model.ffn_bias;
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

}  // namespace

int64_t TensorOrigin::SourceRow(int64_t row) const {
  if (paired_heads == 0) {
    return row;
  }
  const int64_t head_width = spec.outputs / paired_heads;
  const int64_t half = head_width / 2;
  const int64_t in_head = row % head_width;
  return row - in_head + in_head % half * 2 + in_head / half;
}

absl::StatusOr<TensorMap> MapTensors(const SourceModel& model, SourceFormat format,
                                     const std::vector<SourceTensor>& tensors) {
  const Family& family = *FindFamily(model.config.family);
  TensorIndex index(tensors);
  TensorMap map;
  map.config = model.config;
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
    if (source != nullptr) {
      RETURN_IF_ERROR(CheckShape(spec, *source));
      index.MarkUsed(*source);
    } else if (model.plain_norms && IsNorm(spec.name)) {
      origin.fill = absl::EndsWith(spec.name, ".weight") ? 1.0F : 0.0F;
    } else {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing"));
    }
    const std::string part = SplitLayer(spec.name).second;
    if (format == SourceFormat::kGguf && family.gguf_pairs_rope_rows) {
      if (part == "q.weight" || part == "q.bias") {
        origin.paired_heads = map.config.num_heads;
      } else if (part == "k.weight" || part == "k.bias") {
        origin.paired_heads = map.config.num_kv_heads;
      }
    }
    origin.spec = std::move(spec);
    map.tensors.push_back(std::move(origin));
  }
  RETURN_IF_ERROR(index.CheckAllUsed());
  return map;
}

}  // namespace nightshift
