#include "kernels/cpu/packed_store.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/hadamard.h"
#include "kernels/quantise_group.h"

namespace nightshift::cpu {
namespace {

// Codes of a block are those of 8 dimensions, or positions.
constexpr int64_t kBlock = 8;

// Where code `index` of a block lies in its u32.
int ShiftOf(int64_t index) {
  return static_cast<int>(index / 2 * 4 + index % 2 * 16);
}

// Of one position; `codes` are the page's of a head, `row` has W codes.
void Store4BitKey(const std::vector<uint8_t>& row, int64_t slot, std::byte* codes) {
  for (size_t d = 0; d < row.size(); d += kBlock) {
    uint32_t bits = 0;
    for (size_t i = 0; i < kBlock; ++i) {
      bits |= static_cast<uint32_t>(row[d + i]) << ShiftOf(static_cast<int64_t>(i));
    }
    const int64_t index = static_cast<int64_t>(d) / kBlock * kPagePositions + slot;
    std::memcpy(codes + index * 4, &bits, sizeof(bits));
  }
}

void Store4BitValue(const std::vector<uint8_t>& row, int64_t slot, std::byte* codes) {
  const int shift = ShiftOf(slot % kBlock);
  const uint32_t others = ~(uint32_t{15} << shift);
  std::byte* target = codes + slot / kBlock * static_cast<int64_t>(row.size()) * 4;
  for (const uint8_t code : row) {
    uint32_t bits = 0;
    std::memcpy(&bits, target, sizeof(bits));
    bits = (bits & others) | static_cast<uint32_t>(code) << shift;
    std::memcpy(target, &bits, sizeof(bits));
    target += sizeof(bits);
  }
}

void Store8BitKey(const std::vector<uint8_t>& row, int64_t slot, std::byte* codes) {
  for (size_t d = 0; d < row.size(); d += 2) {
    std::memcpy(codes + static_cast<int64_t>(d) * kPagePositions + 2 * slot, &row[d], 2);
  }
}

void Store8BitValue(const std::vector<uint8_t>& row, int64_t slot, std::byte* codes) {
  std::byte* target = codes + slot / 2 * static_cast<int64_t>(row.size()) * 2 + slot % 2;
  for (const uint8_t code : row) {
    *target = static_cast<std::byte>(code);
    target += 2;
  }
}

// Quantises a head's row, whose numbers of group 0 lie at `numbers` in the page.
void Quantise(const KvPageLayout& layout, const float* values, int64_t slot, std::byte* numbers,
              std::vector<uint8_t>& codes) {
  const GroupFormat format = *GroupFormatOf(layout.dtype);
  for (int64_t first = 0; first < layout.head_width; first += kKvGroup) {
    const GroupNumbers of_group =
        QuantiseGroup(format, values + first, std::min(kKvGroup, layout.head_width - first),
                      codes.data() + first);
    std::byte* target = numbers + first / kKvGroup * KvPageLayout::kNumbersBytes + 2 * slot;
    std::memcpy(target, &of_group.scale, sizeof(of_group.scale));
    std::memcpy(target + 2 * kPagePositions, &of_group.minimum, sizeof(of_group.minimum));
  }
}

}  // namespace

void StorePackedRows(const PackedRows& rows) {
  const KvPageLayout& layout = rows.layout;
  const bool is_4_bits = layout.code_bits() == 4;
  // Zeros behind the head's width.
  std::vector<uint8_t> codes(static_cast<size_t>(layout.padded_width()));
  std::vector<float> key(static_cast<size_t>(layout.head_width));
  for (int64_t row = 0; row < rows.k.rows; ++row) {
    const int64_t slot = rows.first_slot + row;
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      const int64_t column = head * layout.head_width;
      std::byte* keys = rows.page;
      std::byte* values = rows.page + layout.plane_bytes();
      const auto store_key = is_4_bits ? Store4BitKey : Store8BitKey;
      const auto store_value = is_4_bits ? Store4BitValue : Store8BitValue;
      std::copy_n(rows.k.row(row) + column, layout.head_width, key.begin());
      TransformKey(layout.head_width, key.data());
      Quantise(layout, key.data(), slot, keys + layout.numbers_offset(head, 0), codes);
      store_key(codes, slot, keys + layout.codes_offset(head));
      Quantise(layout, rows.v.row(row) + column, slot, values + layout.numbers_offset(head, 0),
               codes);
      store_value(codes, slot, values + layout.codes_offset(head));
    }
  }
}

}  // namespace nightshift::cpu
