// Sparse rows of attention against tests/data/make_sparse_oracles.py, and that their bits depend on
// the row alone, on every instruction set.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"

#include "kernels/kv_page.h"
#include "tests/kernels/ops_test_support.h"
#include "tests/support/golden.h"

namespace nightshift {
namespace {

std::string BytesOf(const nlohmann::json& hexadecimal) {
  return absl::HexStringToBytes(hexadecimal.get<std::string>());
}

std::vector<float> FloatsOf(const nlohmann::json& hexadecimal) {
  const std::string bytes = BytesOf(hexadecimal);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<float> BF16sOf(const nlohmann::json& hexadecimal) {
  const std::string bytes = BytesOf(hexadecimal);
  std::vector<float> values(bytes.size() / sizeof(uint16_t));
  WidenToF32(DType::kBF16, reinterpret_cast<const std::byte*>(bytes.data()),
             static_cast<int64_t>(values.size()), values.data());
  return values;
}

std::vector<float> SmallNumbersOf(const nlohmann::json& hexadecimal) {
  std::vector<float> values;
  for (const char byte : BytesOf(hexadecimal)) {
    values.push_back(static_cast<float>(static_cast<int8_t>(byte)));
  }
  return values;
}

struct PageType {
  ComputeType compute;
  DType dtype;
  const char* golden;
};
constexpr PageType kPageTypes[] = {{ComputeType::kF32, DType::kF32, "F32"},
                                   {ComputeType::kBF16, DType::kBF16, "F32"},
                                   {ComputeType::kF32, DType::kU4G64, "U4G64"},
                                   {ComputeType::kBF16, DType::kU4G64, "U4G64"},
                                   {ComputeType::kF32, DType::kU8G64, "U8G64"},
                                   {ComputeType::kBF16, DType::kU8G64, "U8G64"}};

// A request's projected rows; q may have only the last ones.
struct Rows {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t width = 0;
  double fraction = 1.0;
  float scale = 1.0F;
  float softcap = 0.0F;
  int64_t window = 0;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;

  int64_t first_query() const {
    return tokens - static_cast<int64_t>(q.size()) / (heads * width);
  }
};

Rows RowsOfCase(const nlohmann::json& golden) {
  return {.tokens = golden["tokens"].get<int64_t>(),
          .heads = golden["heads"].get<int64_t>(),
          .kv_heads = golden["kv_heads"].get<int64_t>(),
          .width = golden["width"].get<int64_t>(),
          .fraction = golden["fraction"].get<double>(),
          .scale = golden["scale"].get<float>(),
          .softcap = golden["softcap"].get<float>(),
          .window = golden["window"].get<int64_t>(),
          .q = SmallNumbersOf(golden["q"]),
          .k = BF16sOf(golden["k"]),
          .v = BF16sOf(golden["v"])};
}

Rows RandomRows(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width, double fraction) {
  Rows rows = {.tokens = tokens,
               .heads = heads,
               .kv_heads = kv_heads,
               .width = width,
               .fraction = fraction,
               .scale = 4.0F / std::sqrt(static_cast<float>(width)),
               .q = naive::RandomValues(tokens * heads * width, 1),
               .k = naive::RandomValues(tokens * kv_heads * width, 2),
               .v = naive::RandomValues(tokens * kv_heads * width, 3)};
  return rows;
}

// The pages of one request with all its keys and values, NaNs elsewhere.
class Pages {
 public:
  Pages(Ops& ops, const Rows& rows, DType dtype)
      : layout_{.dtype = dtype, .kv_heads = rows.kv_heads, .head_width = rows.width} {
    for (int64_t first = 0; first < rows.tokens; first += kPagePositions) {
      memory_.emplace_back(layout_.page_bytes());
      std::memset(memory_.back().data(), 0xff, static_cast<size_t>(layout_.page_bytes()));
      pointers_.push_back(memory_.back().data());
    }
    const int64_t columns = rows.kv_heads * rows.width;
    Matrix k(columns, rows.k);
    Matrix v(columns, rows.v);
    const AttentionSpan span = {.num_rows = rows.tokens, .pages = pointers_};
    ops.StoreKv({.k = k.view(), .v = v.view(), .layout = layout_, .spans = {&span, 1}});
  }
  const KvPageLayout& layout() const { return layout_; }
  std::span<std::byte* const> span() const { return pointers_; }
  std::byte* page(int64_t index) const { return pointers_[static_cast<size_t>(index)]; }
  // Takes the pages away that hold positions below `position` only.
  void DropBefore(int64_t position) {
    for (int64_t page = 0; page < position / kPagePositions; ++page) {
      pointers_[static_cast<size_t>(page)] = nullptr;
    }
  }

 private:
  KvPageLayout layout_;
  std::vector<AlignedBytes> memory_;
  std::vector<std::byte*> pointers_;
};

// Rows [first, first + count) of the request; those from `sparse_from` on are sparse.
std::vector<float> Attend(Ops& ops, const Rows& rows, const Pages& pages, int64_t first,
                          int64_t count, int64_t sparse_from = 0) {
  const int64_t columns = rows.heads * rows.width;
  const auto begin = rows.q.begin() + (first - rows.first_query()) * columns;
  Matrix q(columns, std::vector<float>(begin, begin + count * columns));
  Matrix out(count, columns);
  const AttentionSpan span = {.num_rows = count,
                              .first_position = first,
                              .sparse_from = sparse_from,
                              .pages = pages.span()};
  ops.Attention({.q = q.view(),
                 .out = out.view(),
                 .layout = pages.layout(),
                 .num_heads = rows.heads,
                 .scale = rows.scale,
                 .softcap = rows.softcap,
                 .window = rows.window,
                 .sparse_fraction = rows.fraction,
                 .spans = {&span, 1}});
  return out.values();
}

class SparseAttentionTest : public OpsTargetTest {};

// Inputs are such that no rounding but of sums occurs before the softmax, and that a wrong choice of
// keys is off by more.
TEST_P(SparseAttentionTest, AddsUpTheValuesOfTheReference) {
  const auto device = CreateDevice(2);
  const nlohmann::json cases = GoldenCases(TEST_DATA_DIR "/attention/sparse.json");
  ASSERT_EQ(cases.size(), 14);
  for (const nlohmann::json& golden : cases) {
    const Rows rows = RowsOfCase(golden);
    const int64_t count = golden["rows"].get<int64_t>();
    for (const PageType type : kPageTypes) {
      SCOPED_TRACE(golden["name"].get<std::string>() + " " + DTypeName(type.dtype) + " in " +
                   ComputeTypeName(type.compute));
      Ops& ops = device->ops(type.compute);
      Pages pages(ops, rows, type.dtype);
      if (rows.window > 0) pages.DropBefore(rows.tokens - count + 1 - rows.window);
      const std::vector<float> expected = FloatsOf(golden["types"][type.golden]["out"]);
      const auto out = Attend(ops, rows, pages, rows.tokens - count, count);
      ASSERT_EQ(out.size(), expected.size());
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], 2e-5F * (1.0F + std::abs(expected[i]))) << i;
      }
    }
  }
}

// A value that is not kept may be anything: nobody looks.
TEST_P(SparseAttentionTest, ReadsNoValueThatItDoesNotKeep) {
  const auto device = CreateDevice(1);
  for (const nlohmann::json& golden : GoldenCases(TEST_DATA_DIR "/attention/sparse.json")) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    Rows rows = RowsOfCase(golden);
    const nlohmann::json& kept = golden["types"]["F32"]["kept"].back();
    const int64_t columns = rows.kv_heads * rows.width;
    const auto expected = [&](DType dtype, Ops& ops) {
      return Attend(ops, rows, Pages(ops, rows, dtype), rows.tokens - 1, 1);
    };
    std::vector<std::vector<float>> before;
    for (const PageType type : {kPageTypes[0], kPageTypes[1]}) {
      before.push_back(expected(type.dtype, device->ops(type.compute)));
    }
    for (int64_t head = 0; head < rows.kv_heads; ++head) {
      std::vector<bool> is_kept(static_cast<size_t>(rows.tokens), false);
      is_kept.back() = true;
      const int64_t group = rows.heads / rows.kv_heads;
      for (int64_t query = head * group; query < (head + 1) * group; ++query) {
        for (const nlohmann::json& key : kept[static_cast<size_t>(query)]) {
          is_kept[key.get<size_t>()] = true;
        }
      }
      for (int64_t key = 0; key < rows.tokens; ++key) {
        if (is_kept[static_cast<size_t>(key)]) continue;
        std::fill_n(rows.v.begin() + key * columns + head * rows.width, rows.width,
                    std::numeric_limits<float>::quiet_NaN());
      }
    }
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(BitsOf(expected(kPageTypes[i].dtype, device->ops(kPageTypes[i].compute))),
                BitsOf(before[i]));
    }
  }
}

TEST_P(SparseAttentionTest, GivesARowTheSameBitsAloneAndInEveryChunk) {
  const auto one = CreateDevice(1);
  const auto two = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const auto& [heads, width] : {std::pair{2, 64}, {8, 32}, {18, 16}, {4, 19}, {34, 16}}) {
      for (const int64_t window : {0, 70}) {
        SCOPED_TRACE(std::string(DTypeName(type.dtype)) + " heads " + std::to_string(heads) +
                     " window " + std::to_string(window));
        Rows rows = RandomRows(150, heads, 2, width, 0.1);
        rows.window = window;
        const Pages pages(two->ops(type.compute), rows, type.dtype);
        const int64_t sparse_from = 90;
        const auto whole = Attend(two->ops(type.compute), rows, pages, 0, 150, sparse_from);
        Rows dense = rows;
        dense.fraction = 1.0;
        const auto of_prompt = Attend(two->ops(type.compute), dense, pages, 0, 150);
        const int64_t columns = heads * width;
        const auto middle = sparse_from * columns;
        // The prompt's rows are dense, with their usual bits; the others are not.
        EXPECT_EQ(BitsOf({whole.begin(), whole.begin() + middle}),
                  BitsOf({of_prompt.begin(), of_prompt.begin() + middle}));
        EXPECT_NE(BitsOf({whole.begin() + middle, whole.end()}),
                  BitsOf({of_prompt.begin() + middle, of_prompt.end()}));
        for (const int64_t chunk : {1, 7, 64}) {
          std::vector<float> parts;
          for (int64_t first = 0; first < 150; first += chunk) {
            const auto part = Attend(one->ops(type.compute), rows, pages, first,
                                     std::min(chunk, 150 - first), sparse_from);
            parts.insert(parts.end(), part.begin(), part.end());
          }
          EXPECT_EQ(BitsOf(parts), BitsOf(whole)) << "chunk " << chunk;
        }
      }
    }
  }
}

TEST_P(SparseAttentionTest, GivesARowTheSameBitsBesideOthers) {
  const auto device = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    Ops& ops = device->ops(type.compute);
    const int64_t columns = 4 * 32;
    std::vector<Rows> requests;
    std::vector<Pages> pages;
    std::vector<AttentionSpan> spans;
    std::vector<float> q;
    std::vector<float> expected;
    for (const int64_t tokens : {200, 1, 33, 64, 65, 7}) {
      requests.push_back(RandomRows(tokens, 4, 2, 32, 0.2));
      pages.emplace_back(ops, requests.back(), type.dtype);
      const auto alone = Attend(ops, requests.back(), pages.back(), tokens - 1, 1);
      expected.insert(expected.end(), alone.begin(), alone.end());
      q.insert(q.end(), requests.back().q.end() - columns, requests.back().q.end());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      spans.push_back({.first_row = static_cast<int64_t>(i),
                       .num_rows = 1,
                       .first_position = requests[i].tokens - 1,
                       .sparse_from = 0,
                       .pages = pages[i].span()});
    }
    Matrix rows(columns, q);
    Matrix out(static_cast<int64_t>(requests.size()), columns);
    ops.Attention({.q = rows.view(),
                   .out = out.view(),
                   .layout = pages.front().layout(),
                   .num_heads = 4,
                   .scale = requests.front().scale,
                   .sparse_fraction = 0.2,
                   .spans = spans});
    EXPECT_EQ(BitsOf(out.values()), BitsOf(expected));
  }
}

// Long enough that a row's scores are cut into more tasks and more vectors than one tile has.
TEST_P(SparseAttentionTest, KeepsAlmostAllOfALongContextWithAlmostAllOfItsValues) {
  const auto device = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    Rows rows = RandomRows(2100, 8, 2, 16, 0.999);
    const Pages pages(device->ops(type.compute), rows, type.dtype);
    const auto sparse = Attend(device->ops(type.compute), rows, pages, 2090, 10);
    rows.fraction = 1.0;
    const auto dense = Attend(device->ops(type.compute), rows, pages, 2090, 10);
    for (size_t i = 0; i < dense.size(); ++i) {
      ASSERT_NEAR(sparse[i], dense[i], 4e-3F) << DTypeName(type.dtype) << " " << i;
    }
  }
}

TEST_P(SparseAttentionTest, TellsOfARowThatIsNotFinite) {
  const auto device = CreateDevice(1);
  for (const PageType type : kPageTypes) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
      Rows rows = RandomRows(100, 2, 1, 32, 0.1);
      std::fill(rows.q.end() - 32, rows.q.end(), bad);
      const Pages pages(device->ops(type.compute), rows, type.dtype);
      const auto out = Attend(device->ops(type.compute), rows, pages, 99, 1);
      EXPECT_TRUE(std::isfinite(out.front()));
      EXPECT_FALSE(std::isfinite(out.back())) << DTypeName(type.dtype);
    }
  }
}

INSTANTIATE_ON_CPU_TARGETS(SparseAttentionTest);

}  // namespace
}  // namespace nightshift
