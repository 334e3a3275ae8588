// Integer groups: how the panels of group types (kI8G32 to kI4G64) lie, and their sizes.
// The bytes are those of a pack: engine/model/pack_format.md, section "Panels".
#pragma once

#include <cstdint>
#include <optional>

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

// Whether ops read weights of this type: floats and integer groups, not super-blocks.
bool IsReadByOps(DType dtype);

// Bytes of one panel of `inputs` (not padded) inputs of such a type: a multiple of 64.
int64_t PanelBytes(DType dtype, int64_t inputs);

}  // namespace nightshift
