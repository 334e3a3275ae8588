// How one panel (64 outputs of a matmul weight) lies in a pack, for each type: sizes, planes,
// expansion to f32. The byte layout is pack_format.md, section "Panels".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/dtype.h"

namespace nightshift {

// A type of integer groups: value = scale * (code - zero) + minimum.
struct GroupFormat {
  int bits = 8;        // 4: two codes a byte, the even k in the low half
  int64_t group = 32;  // consecutive k that share scale and minimum
  bool has_minimum = false;
  int zero = 0;  // 8 for 4-bit symmetric types; 8-bit symmetric codes are signed bytes
};

// Nothing for float types and super-blocks.
std::optional<GroupFormat> GroupFormatOf(DType dtype);

// Offsets of the planes of one panel of a group type, whose codes come first.
struct PanelPlanes {
  int64_t padded_inputs = 0;
  int64_t scales = 0;    // fp16 [groups][64]
  int64_t minimums = 0;  // fp16 [groups][64], if the type has them
  int64_t bytes = 0;
};
PanelPlanes PlanesOf(DType dtype, int64_t inputs);

// The type with this number in a pack, or nothing.
std::optional<DType> StoredDType(int64_t number);

// Whether rows of this many inputs can have the type: super-blocks take whole blocks of 256 only.
bool FitsStoredType(DType dtype, int64_t inputs);

// Bytes of one panel of `inputs` (not padded) inputs, which fit the type: a multiple of 64.
int64_t StoredPanelBytes(DType dtype, int64_t inputs);

// Inputs of a panel that are expanded at one time: whole groups and super-blocks of every type, and
// few enough for their f32 to stay in caches.
inline constexpr int64_t kExpandedPieceInputs = 256;

// Expands inputs [first_input, first_input + 256) of a panel of a quantised type, as far as it has
// so many, to f32 [count/2][64][2]; K is padded to 32, with zeros beyond `inputs`. `first_input` is
// a multiple of 256. Returns the count.
int64_t ExpandPiece(DType dtype, std::span<const std::byte> panel, int64_t inputs,
                    int64_t first_input, float* target);

}  // namespace nightshift
