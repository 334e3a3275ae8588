// How one panel (64 outputs of a matmul weight) lies in a pack, for each type: sizes, planes,
// expansion to f32. The byte layout is pack_format.md, section "Panels".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/dtype.h"
#include "kernels/group_format.h"

namespace nightshift {

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
