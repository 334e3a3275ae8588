// Appends keys and values to a page of integer groups (kernels/kv_page.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_page.h"
#include "kernels/tensor_view.h"

namespace nightshift::cpu {

// Rows at positions first_slot and on of one page.
struct PackedRows {
  KvPageLayout layout;
  MatrixView k;  // [T, G*D]
  MatrixView v;  // [T, G*D]
  int64_t first_slot = 0;
  std::byte* page = nullptr;
};

// Quantises each head's row in groups of 64 by kernels/quantise_group.h, keys transformed (hadamard.h). Other positions of the
// page keep their codes; bytes that they share with these are written, too.
void StorePackedRows(const PackedRows& rows);

}  // namespace nightshift::cpu
