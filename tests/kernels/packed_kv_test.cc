// Pages of integer groups against tests/data/make_kv_oracles.py, on every instruction set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

#include "kernels/base/checksum.h"
#include "kernels/kv_page.h"
#include "kernels/quantise_group.h"
#include "tests/kernels/ops_test_support.h"
#include "tests/support/golden.h"

namespace nightshift {
namespace {

std::vector<float> FloatsOf(const nlohmann::json& hexadecimal) {
  const std::string bytes = absl::HexStringToBytes(hexadecimal.get<std::string>());
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string HashOf(std::span<const std::byte> bytes) {
  return absl::StrFormat("%016x", Xxh3(bytes));
}

// Hashed with all NaNs alike.
std::string HashOf(std::vector<float> values) {
  for (float& value : values) {
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  }
  return HashOf(std::as_bytes(std::span(values)));
}

// Reads a code of a plane by kernels/kv_page.h.
int CodeAt(const KvPageLayout& layout, const std::byte* plane, bool is_values, int64_t head,
           int64_t slot, int64_t d) {
  const int64_t width = layout.padded_width();
  const std::byte* codes = plane + layout.codes_offset(head);
  if (layout.dtype == DType::kU8G64) {
    return std::to_integer<int>(is_values ? codes[(slot / 2 * width + d) * 2 + slot % 2]
                                          : codes[(d / 2 * 32 + slot) * 2 + d % 2]);
  }
  const int64_t in_block = (is_values ? slot : d) % 8;
  const int64_t word = is_values ? slot / 8 * width + d : d / 8 * 32 + slot;
  uint32_t bits = 0;
  std::memcpy(&bits, codes + 4 * word, sizeof(bits));
  return static_cast<int>(bits >> (in_block / 2 * 4 + in_block % 2 * 16) & 15U);
}

float NumberAt(const KvPageLayout& layout, const std::byte* plane, int64_t head, int64_t d,
               int64_t index) {
  uint16_t bits = 0;
  std::memcpy(&bits, plane + layout.numbers_offset(head, d / 64) + 2 * index, sizeof(bits));
  return F16ToF32(bits);
}

// What the codes of positions [slot, slot + rows) stand for, [rows][G * D].
std::vector<float> ValuesOf(const KvPageLayout& layout, const std::byte* plane, bool is_values,
                            int64_t slot, int64_t rows) {
  std::vector<float> values;
  for (int64_t row = slot; row < slot + rows; ++row) {
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      for (int64_t d = 0; d < layout.head_width; ++d) {
        const float code =
            static_cast<float>(CodeAt(layout, plane, is_values, head, row, d));
        const float product = code * NumberAt(layout, plane, head, d, row);
        values.push_back(product + NumberAt(layout, plane, head, d, 32 + row));
      }
    }
  }
  return values;
}

class PackedKvTest : public OpsTargetTest {
 protected:
  // Appends a case's rows [first, first + count) to a page.
  static void Append(Device& device, const nlohmann::json& golden, const KvPageLayout& layout,
                     int64_t first, int64_t count, std::byte* page) {
    const int64_t columns = layout.kv_heads * layout.head_width;
    const auto rows_of = [&](const char* name) {
      const std::vector<float> all = FloatsOf(golden[name]);
      const auto begin = all.begin() + first * columns;
      return Matrix(columns, std::vector<float>(begin, begin + count * columns));
    };
    Matrix k = rows_of("k");
    Matrix v = rows_of("v");
    const AttentionSpan span = {.num_rows = count,
                                .first_position = golden["slot"].get<int64_t>() + first,
                                .pages = {&page, 1}};
    device.ops(ComputeType::kF32)
        .StoreKv({.k = k.view(), .v = v.view(), .layout = layout, .spans = {&span, 1}});
  }
};

TEST_P(PackedKvTest, LeavesThePagesOfTheReference) {
  const auto device = CreateDevice(2);
  const nlohmann::json cases = GoldenCases(TEST_DATA_DIR "/kv/pages.json");
  ASSERT_EQ(cases.size(), 17);
  for (const nlohmann::json& golden : cases) {
    for (const auto& [dtype, name] :
         {std::pair{DType::kU4G64, "U4G64"}, std::pair{DType::kU8G64, "U8G64"}}) {
      SCOPED_TRACE(golden["name"].get<std::string>() + " " + name);
      const nlohmann::json& expected = golden["types"][name];
      const KvPageLayout layout = {.dtype = dtype,
                                   .kv_heads = golden["heads"].get<int64_t>(),
                                   .head_width = golden["width"].get<int64_t>()};
      ASSERT_EQ(layout.page_bytes(), expected["page_bytes"].get<int64_t>());
      const int64_t slot = golden["slot"].get<int64_t>();
      const int64_t rows = golden["rows"].get<int64_t>();
      const auto size = static_cast<size_t>(layout.page_bytes());
      AlignedBytes page(layout.page_bytes());
      std::memset(page.data(), 0, size);
      Append(*device, golden, layout, 0, rows, page.data());
      EXPECT_EQ(HashOf(std::span(page.data(), size)), expected["page_xxh3"].get<std::string>());
      EXPECT_EQ(HashOf(ValuesOf(layout, page.data(), false, slot, rows)),
                expected["k_values"].get<std::string>());
      EXPECT_EQ(HashOf(ValuesOf(layout, page.data() + layout.plane_bytes(), true, slot, rows)),
                expected["v_values"].get<std::string>());
      // Row by row into a page of something else: what they stand for is the same.
      std::memset(page.data(), 0xa5, size);
      for (int64_t row = rows; row-- > 0;) {
        Append(*device, golden, layout, row, 1, page.data());
      }
      EXPECT_EQ(HashOf(ValuesOf(layout, page.data(), false, slot, rows)),
                expected["k_values"].get<std::string>());
      EXPECT_EQ(HashOf(ValuesOf(layout, page.data() + layout.plane_bytes(), true, slot, rows)),
                expected["v_values"].get<std::string>());
    }
  }
}

// The bound of kernels/quantise_group.h, on rows of every scale, with outliers and constant groups.
TEST_P(PackedKvTest, ErrsByNoMoreThanTheProvenBound) {
  const std::vector<float> draws = naive::RandomValues(64 * 400, 5);
  for (const DType dtype : {DType::kU4G64, DType::kU8G64, DType::kI4G64, DType::kI8G64}) {
    const GroupFormat format = *GroupFormatOf(dtype);
    for (int64_t row = 0; row < 400; ++row) {
      std::vector<float> x(draws.begin() + row * 64, draws.begin() + row * 64 + 1 + row % 64);
      const float size = std::ldexp(1.0F, static_cast<int>(row % 41) - 26);
      for (float& value : x) {
        value = row % 7 == 0 ? size : value * size + (row % 3 == 0 ? 8.0F * size : 0.0F);
      }
      if (row % 5 == 0) x.back() *= 100.0F;
      std::vector<uint8_t> codes(x.size());
      const GroupNumbers numbers =
          QuantiseGroup(format, x.data(), static_cast<int64_t>(x.size()), codes.data());
      const auto [low, high] = std::minmax_element(x.begin(), x.end());
      const double minimum = format.has_minimum ? static_cast<double>(*low) : 0.0;
      const double spread = format.has_minimum
                                ? static_cast<double>(*high) - minimum
                                : static_cast<double>(std::max(std::abs(*low), std::abs(*high)));
      const int levels = format.has_minimum ? (1 << format.bits) - 1 : (1 << (format.bits - 1)) - 1;
      const double step = spread / levels;
      const double scale = static_cast<double>(F16ToF32(numbers.scale));
      const double stored_minimum = static_cast<double>(F16ToF32(numbers.minimum));
      for (size_t i = 0; i < x.size(); ++i) {
        const int code = format.has_minimum || format.bits == 4
                             ? static_cast<int>(codes[i]) - format.zero
                             : static_cast<int8_t>(codes[i]);
        const double error =
            std::abs(scale * code + stored_minimum - static_cast<double>(x[i]));
        ASSERT_LE(error, step / 2 + std::abs(code) * std::abs(scale - step) +
                             std::abs(stored_minimum - minimum) + 1e-12 * size)
            << DTypeName(dtype) << " row " << row << " value " << i;
      }
    }
  }
}

INSTANTIATE_ON_OPS_TARGETS(PackedKvTest);

}  // namespace
}  // namespace nightshift
