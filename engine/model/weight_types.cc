#include "engine/model/weight_types.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/model/gguf_types.h"
#include "engine/model/tensor_names.h"
#include "kernels/base/status_macros.h"
#include "kernels/group_format.h"

namespace nightshift {
namespace {

struct NamedType {
  const char* name;
  DType dtype;
};
constexpr std::array kTypes = {
    NamedType{"f32", DType::kF32},     NamedType{"bf16", DType::kBF16},
    NamedType{"int8", DType::kI8G64},  NamedType{"int4", DType::kU4G64},
    NamedType{"u4g64", DType::kU4G64}, NamedType{"i4g64", DType::kI4G64},
    NamedType{"u8g64", DType::kU8G64}, NamedType{"i8g64", DType::kI8G64}};

bool IsKept(const TensorSpec& spec) {
  return spec.layout == TensorLayout::kVector || absl::EndsWith(spec.name, ".router.weight");
}

// What a tensor should become, and whether somebody said so.
struct Wish {
  std::optional<DType> dtype;
  bool is_explicit = false;
};

Wish WishFor(const WeightTypes& types, const std::string& name) {
  if (!IsTable(name) && name != "head") {
    return {types.matrices, true};
  }
  if (name == "head" && types.head) {
    return {types.head, true};
  }
  if (types.embeddings) {
    return {types.embeddings, true};
  }
  const std::optional<GroupFormat> format =
      types.matrices ? GroupFormatOf(*types.matrices) : std::nullopt;
  return {format && format->bits == 4 ? DType::kI8G64 : types.matrices, false};
}

absl::Status RefuseOtherBits(const SourceTensor& source, DType wished) {
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", source.name, " is ", source.blocks->name, " in the source and was asked for as ",
      DTypeName(wished),
      ": what is quantised is kept as it is; --requantise quantises or expands it all the same"));
}

}  // namespace

absl::StatusOr<DType> ParseWeightType(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name.substr(0, 32));
  for (const NamedType& type : kTypes) {
    if (lower == type.name) {
      return type.dtype;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(lower, " is no type of weights; there are ",
                   absl::StrJoin(kTypes, ", ", [](std::string* out, const NamedType& type) {
                     absl::StrAppend(out, type.name);
                   })));
}

absl::Status ChooseTypes(const WeightTypes& types, TensorMap& map) {
  if (types.head && map.config.tied_head) {
    return absl::InvalidArgumentError(
        "the head was asked for in a type of its own, but this model's head is its embedding");
  }
  int64_t kept = 0;
  for (TensorOrigin& origin : map.tensors) {
    if (IsKept(origin.spec)) {
      continue;
    }
    const Wish wish = WishFor(types, origin.spec.name);
    const SourceTensor& source = *origin.source;
    if (!wish.dtype || *wish.dtype == source.dtype) {
      continue;
    }
    if (source.blocks != nullptr && !types.requantises) {
      const std::optional<GroupFormat> format = GroupFormatOf(*wish.dtype);
      const bool has_those_bits = format && format->bits == source.blocks->bits;
      if (wish.is_explicit && !has_those_bits) {
        return RefuseOtherBits(source, *wish.dtype);
      }
      ++kept;
      continue;
    }
    origin.stored = *wish.dtype;
  }
  if (kept > 0) {
    map.notes.push_back(absl::StrCat(kept, " quantised matrices are kept as the source has them"));
  }
  return absl::OkStatus();
}

}  // namespace nightshift
