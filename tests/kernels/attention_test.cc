#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tests/kernels/ops_test_support.h"

namespace nightshift {
namespace {

// One request's projected rows: q [T, H*D], k and v [T, G*D].
struct Sequence {
  Sequence(int64_t tokens_in, int64_t heads_in, int64_t kv_heads_in, int64_t width_in,
           uint64_t seed)
      : tokens(tokens_in),
        heads(heads_in),
        kv_heads(kv_heads_in),
        width(width_in),
        q(naive::RandomValues(tokens * heads * width, seed)),
        k(naive::RandomValues(tokens * kv_heads * width, seed + 1)),
        v(naive::RandomValues(tokens * kv_heads * width, seed + 2)) {
    // Sharper than uniform scores: some keys matter much more than others.
    for (float& value : q) {
      value *= 4.0F;
    }
  }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(width)); }
  Sequence WithWindow(int64_t keys) const {
    Sequence sequence = *this;
    sequence.window = keys;
    return sequence;
  }
  Sequence WithSoftcap(float cap) const {
    Sequence sequence = *this;
    sequence.softcap = cap;
    return sequence;
  }

  int64_t tokens;
  int64_t heads;
  int64_t kv_heads;
  int64_t width;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  int64_t window = 0;
  float softcap = 0.0F;
};

// The pages of one request, filled with NaNs.
class Pages {
 public:
  Pages(const KvPageLayout& layout, int64_t positions) {
    for (int64_t first = 0; first < positions; first += kPagePositions) {
      memory_.emplace_back(layout.page_bytes());
      std::memset(memory_.back().data(), 0xff, static_cast<size_t>(layout.page_bytes()));
      pointers_.push_back(memory_.back().data());
    }
  }
  std::span<std::byte* const> span() const { return pointers_; }
  // Takes the pages away that hold positions below `position` only.
  void DropBefore(int64_t position) {
    for (int64_t page = 0; page < position / kPagePositions; ++page) {
      pointers_[static_cast<size_t>(page)] = nullptr;
    }
  }

 private:
  std::vector<AlignedBytes> memory_;
  std::vector<std::byte*> pointers_;
};

std::vector<float> RowsOf(const std::vector<float>& values, int64_t columns, int64_t first,
                          int64_t count) {
  return {values.begin() + first * columns, values.begin() + (first + count) * columns};
}

// How ops compute, and what pages hold.
struct PageType {
  ComputeType compute;
  DType dtype;
};

constexpr PageType kF32Pages = {ComputeType::kF32, DType::kF32};
constexpr PageType kFloatPages[] = {kF32Pages, {ComputeType::kBF16, DType::kBF16}};
constexpr PageType kPageTypes[] = {kF32Pages,
                                   {ComputeType::kBF16, DType::kBF16},
                                   {ComputeType::kF32, DType::kU4G64},
                                   {ComputeType::kBF16, DType::kU4G64},
                                   {ComputeType::kF32, DType::kU8G64},
                                   {ComputeType::kBF16, DType::kU8G64}};

class AttentionTest : public OpsTargetTest {
 protected:
  // Tokens of a text that is attended to row by row. The emulator takes a millisecond a call.
  static int64_t Tokens(int64_t tokens) { return IsCuda() ? tokens / 2 + 20 : tokens; }
  static std::vector<int64_t> Some(std::vector<int64_t> all) {
    if (IsCuda()) all = {all.front(), all[all.size() / 2], all.back()};
    return all;
  }
  static KvPageLayout LayoutOf(const Sequence& sequence, PageType type) {
    return {.dtype = type.dtype, .kv_heads = sequence.kv_heads, .head_width = sequence.width};
  }

  // Stores and attends tokens [first, first + count), the next of the sequence, in one call.
  static std::vector<float> AttendChunk(Ops& ops, const KvPageLayout& layout,
                                        const Sequence& sequence, const Pages& pages, int64_t first,
                                        int64_t count) {
    const int64_t q_columns = sequence.heads * sequence.width;
    const int64_t kv_columns = sequence.kv_heads * sequence.width;
    Matrix q(q_columns, RowsOf(sequence.q, q_columns, first, count));
    Matrix k(kv_columns, RowsOf(sequence.k, kv_columns, first, count));
    Matrix v(kv_columns, RowsOf(sequence.v, kv_columns, first, count));
    Matrix out(count, q_columns);
    const AttentionSpan span = {.num_rows = count, .first_position = first, .pages = pages.span()};
    ops.StoreKv({.k = k.view(), .v = v.view(), .layout = layout, .spans = {&span, 1}});
    ops.Attention({.q = q.view(),
                   .out = out.view(),
                   .layout = layout,
                   .num_heads = sequence.heads,
                   .scale = sequence.scale(),
                   .softcap = sequence.softcap,
                   .window = sequence.window,
                   .spans = {&span, 1}});
    return out.values();
  }

  static std::vector<float> Attend(Device& device, PageType type, const Sequence& sequence,
                                   int64_t chunk) {
    const KvPageLayout layout = LayoutOf(sequence, type);
    Pages pages(layout, sequence.tokens);
    std::vector<float> out;
    for (int64_t first = 0; first < sequence.tokens; first += chunk) {
      if (sequence.window > 0) pages.DropBefore(first + 1 - sequence.window);
      const int64_t count = std::min(chunk, sequence.tokens - first);
      const auto part = AttendChunk(device.ops(type.compute), layout, sequence, pages, first, count);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

  void ExpectOracle(Device& device, PageType type, const Sequence& sequence) {
    SCOPED_TRACE(std::string(ComputeTypeName(type.compute)) + " of " + DTypeName(type.dtype) +
                 " tokens " + std::to_string(sequence.tokens) + " heads " +
                 std::to_string(sequence.heads) + ":" + std::to_string(sequence.kv_heads) +
                 " width " + std::to_string(sequence.width));
    // Dots take bf16, whose last bit is 2^-7 of the first: rounding is off by half of that.
    const bool rounds = GetParam() == kBF16DotsTarget && type.compute == ComputeType::kBF16;
    const bool is_packed = !IsFloat(type.dtype);
    const auto transformed = [&](const std::vector<float>& heads, int power) {
      return is_packed ? naive::TransformHeads(heads, sequence.width, power) : heads;
    };
    const std::vector<float> q = transformed(sequence.q, naive::QueryPower(sequence.width));
    const naive::StoredKv keys = naive::StoreKv(
        type.dtype, transformed(sequence.k, naive::KeyPower(sequence.width)), sequence.width);
    const naive::StoredKv values = naive::StoreKv(type.dtype, sequence.v, sequence.width);
    ExpectWithin(Attend(device, type, sequence, sequence.tokens),
                 naive::Attention({.q = rounds ? naive::RoundTo(DType::kBF16, q) : q,
                                   .keys = keys.values,
                                   .values = values.values,
                                   .key_magnitudes = keys.magnitudes,
                                   .value_magnitudes = values.magnitudes,
                                   .num_heads = sequence.heads,
                                   .kv_heads = sequence.kv_heads,
                                   .head_width = sequence.width,
                                   .scale = static_cast<double>(sequence.scale()),
                                   .softcap = static_cast<double>(sequence.softcap),
                                   .window = sequence.window,
                                   .weight_rounding = rounds ? 0x1p-8 : 0.0}));
  }
};

TEST_P(AttentionTest, AgreesWithTheOracleForEachWidthAndLength) {
  const auto device = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const int64_t width : {1, 2, 16, 19, 24, 64, 80, 128}) {
      const bool is_packed = !IsFloat(type.dtype);
      for (const int64_t tokens : is_packed ? std::vector<int64_t>{33, 150}
                                            : std::vector<int64_t>{1, 31, 33, 64, 65, 150}) {
        ExpectOracle(*device, type, Sequence(tokens, 4, 2, width, 1));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(AttentionTest, AgreesWithTheOracleForEachGrouping) {
  const auto device = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    ExpectOracle(*device, type, Sequence(100, 1, 1, 24, 2));
    ExpectOracle(*device, type, Sequence(100, 5, 5, 24, 3));
    ExpectOracle(*device, type, Sequence(100, 9, 3, 24, 4));
    ExpectOracle(*device, type, Sequence(70, 71, 1, 8, 5));
    for (const int64_t group : {1, 4, 8, 16}) {
      ExpectOracle(*device, type, Sequence(1, 2 * group, 2, 64, 6));
    }
  }
}

TEST_P(AttentionTest, AgreesWithTheOracleForEachWindow) {
  const auto device = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const int64_t window : {1, 2, 31, 32, 33, 63, 64, 65, 100, 128, 149, 150, 1000}) {
      SCOPED_TRACE(window);
      ExpectOracle(*device, type, Sequence(150, 4, 2, 24, 7).WithWindow(window));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionTest, AgreesWithTheOracleForEachSoftcap) {
  const auto device = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const float cap : {0.5F, 2.0F, 50.0F}) {
      SCOPED_TRACE(cap);
      const Sequence sequence = Sequence(150, 4, 2, 24, 8).WithSoftcap(cap);
      ExpectOracle(*device, type, sequence);
      ExpectOracle(*device, type, sequence.WithWindow(40));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionTest, AWindowAsLongAsTheTextChangesNoBit) {
  const auto device = CreateDevice(2);
  const Sequence sequence(130, 6, 2, 24, 9);
  for (const PageType type : kPageTypes) {
    EXPECT_EQ(BitsOf(Attend(*device, type, sequence.WithWindow(130), 50)),
              BitsOf(Attend(*device, type, sequence, 50)));
  }
}

// Chunks after the first find the pages before their window gone.
TEST_P(AttentionTest, GivesTheSameBitsForEveryChunkingOfAWindow) {
  const auto one = CreateDevice(1);
  const auto two = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const int64_t window : Some({8, 50, 64, 97})) {
      const Sequence sequence = Sequence(Tokens(203), 6, 2, 24, 6).WithWindow(window);
      const auto whole = BitsOf(Attend(*one, type, sequence, sequence.tokens));
      for (const int64_t chunk : {1, 7, 16, 64, 100}) {
        EXPECT_EQ(BitsOf(Attend(*two, type, sequence, chunk)), whole)
            << "window " << window << " chunk " << chunk;
      }
    }
  }
}

TEST_P(AttentionTest, GivesTheSameBitsForEveryChunkingAndThreadCount) {
  const auto one = CreateDevice(1);
  const auto two = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const int64_t width : {24, 64}) {
      const Sequence sequence(Tokens(203), 6, 2, width, 6);
      const auto whole = BitsOf(Attend(*one, type, sequence, sequence.tokens));
      for (const int64_t chunk : {1, 7, 16, 64, 100}) {
        EXPECT_EQ(BitsOf(Attend(*two, type, sequence, chunk)), whole) << "chunk " << chunk;
      }
    }
  }
}

// Decode takes keys and values as they lie in the pages where a head has few queries, in blocks of
// four and eight; a prompt lays them out.
TEST_P(AttentionTest, DecodesToTheBitsOfThePromptForEachGrouping) {
  const auto one = CreateDevice(1);
  const auto two = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const int64_t group : Some({1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17})) {
      SCOPED_TRACE(group);
      const Sequence sequence(75, 3 * group, 3, group == 8 ? 128 : 32, 70);
      EXPECT_EQ(BitsOf(Attend(*two, type, sequence, 1)),
                BitsOf(Attend(*one, type, sequence, sequence.tokens)));
    }
  }
}

TEST_P(AttentionTest, DecodesToTheBitsOfThePromptForEachWidth) {
  const auto one = CreateDevice(1);
  const auto two = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const int64_t width : Some({8, 16, 48, 64, 80, 96, 128, 256})) {
      SCOPED_TRACE(width);
      const Sequence sequence = Sequence(70, 4, 2, width, 71).WithSoftcap(3.0F);
      const auto whole = BitsOf(Attend(*one, type, sequence, sequence.tokens));
      EXPECT_EQ(BitsOf(Attend(*two, type, sequence, 1)), whole);
      EXPECT_EQ(BitsOf(Attend(*two, type, sequence, 3)), whole);
    }
  }
}

TEST_P(AttentionTest, DecodesToTheBitsOfThePromptForEachWindow) {
  const auto one = CreateDevice(1);
  const auto two = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const int64_t window : Some({1, 7, 33, 64, 80})) {
      SCOPED_TRACE(window);
      const Sequence sequence = Sequence(Tokens(150), 4, 2, 64, 72).WithWindow(window);
      const auto whole = BitsOf(Attend(*one, type, sequence, sequence.tokens));
      EXPECT_EQ(BitsOf(Attend(*two, type, sequence, 1)), whole);
      EXPECT_EQ(BitsOf(Attend(*two, type, sequence, 5)), whole);
    }
  }
}

// Ragged: one request is long, and there are fewer of them than parts that the heads make.
TEST_P(AttentionTest, DecodesRaggedRequestsToTheBitsOfEachAlone) {
  const auto device = CreateDevice(2);
  for (const PageType type : kPageTypes) {
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{200}, {3, 130}, {1, 64, 65, 7, 190, 33, 2, 128, 96, 31}}) {
      std::vector<Sequence> sequences;
      std::vector<Pages> pages;
      std::vector<AttentionSpan> spans;
      std::vector<float> q;
      std::vector<float> expected;
      const KvPageLayout layout = LayoutOf(Sequence(1, 12, 6, 32, 0), type);
      for (const int64_t length : lengths) {
        sequences.emplace_back(length, 12, 6, 32, static_cast<uint64_t>(length));
        const Sequence& sequence = sequences.back();
        pages.emplace_back(layout, length);
        const auto out =
            AttendChunk(device->ops(type.compute), layout, sequence, pages.back(), 0, length);
        const auto last = RowsOf(out, 12 * 32, length - 1, 1);
        expected.insert(expected.end(), last.begin(), last.end());
        const auto row = RowsOf(sequence.q, 12 * 32, length - 1, 1);
        q.insert(q.end(), row.begin(), row.end());
      }
      for (size_t i = 0; i < lengths.size(); ++i) {
        spans.push_back({.first_row = static_cast<int64_t>(i),
                         .num_rows = 1,
                         .first_position = lengths[i] - 1,
                         .pages = pages[i].span()});
      }
      Matrix rows(12 * 32, q);
      Matrix out(static_cast<int64_t>(lengths.size()), 12 * 32);
      device->ops(type.compute).Attention({.q = rows.view(),
                                      .out = out.view(),
                                      .layout = layout,
                                      .num_heads = 12,
                                      .scale = sequences.front().scale(),
                                      .spans = spans});
      EXPECT_EQ(BitsOf(out.values()), BitsOf(expected)) << lengths.size() << " requests";
    }
  }
}

TEST_P(AttentionTest, GivesARequestTheSameBitsAloneAndBesideOthers) {
  const auto device = CreateDevice(2);
  const Sequence first(70, 6, 2, 24, 10);
  const Sequence second(5, 6, 2, 24, 20);
  for (const PageType type : kPageTypes) {
    const KvPageLayout layout = LayoutOf(first, type);
    const Pages first_pages(layout, first.tokens);
    const Pages second_pages(layout, second.tokens);
    const AttentionSpan spans[] = {{.first_row = 5, .num_rows = 70, .pages = first_pages.span()},
                                   {.first_row = 0, .num_rows = 5, .pages = second_pages.span()}};
    const auto join = [](std::vector<float> a, const std::vector<float>& b) {
      a.insert(a.end(), b.begin(), b.end());
      return a;
    };
    Matrix q(6 * 24, join(second.q, first.q));
    Matrix k(2 * 24, join(second.k, first.k));
    Matrix v(2 * 24, join(second.v, first.v));
    Matrix out(75, 6 * 24);
    Ops& ops = device->ops(type.compute);
    ops.StoreKv({.k = k.view(), .v = v.view(), .layout = layout, .spans = spans});
    ops.Attention({.q = q.view(),
                   .out = out.view(),
                   .layout = layout,
                   .num_heads = 6,
                   .scale = first.scale(),
                   .spans = spans});
    EXPECT_EQ(BitsOf(out.values()), BitsOf(join(Attend(*device, type, second, 5),
                                                Attend(*device, type, first, 70))));
  }
}

// Pages start as NaNs, so that every test above reads past its keys into NaNs; this one shows it.
TEST_P(AttentionTest, GivesTheSameBitsWhateverLiesBehindTheValidKeys) {
  const auto device = CreateDevice(1);
  const Sequence sequence(77, 4, 2, 19, 30);
  for (const PageType type : kPageTypes) {
    const KvPageLayout layout = LayoutOf(sequence, type);
    const Pages nans(layout, sequence.tokens);
    const Pages zeros(layout, sequence.tokens);
    for (std::byte* page : zeros.span()) {
      std::memset(page, 0, static_cast<size_t>(layout.page_bytes()));
    }
    Ops& ops = device->ops(type.compute);
    const auto expected = AttendChunk(ops, layout, sequence, zeros, 0, 77);
    EXPECT_EQ(BitsOf(AttendChunk(ops, layout, sequence, nans, 0, 77)), BitsOf(expected));
    EXPECT_TRUE(std::ranges::all_of(expected, [](float value) { return std::isfinite(value); }));
  }
}

TEST_P(AttentionTest, KeepsALateNaNOutOfEarlierRows) {
  const auto device = CreateDevice(1);
  for (const PageType type : kPageTypes) {
    Sequence sequence(40, 2, 1, 16, 40);
    const auto clean = Attend(*device, type, sequence, 40);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fill(sequence.k.end() - 16, sequence.k.end(), nan);
    std::fill(sequence.v.end() - 16, sequence.v.end(), nan);
    const auto broken = Attend(*device, type, sequence, 40);
    EXPECT_EQ(BitsOf(RowsOf(broken, 32, 0, 39)), BitsOf(RowsOf(clean, 32, 0, 39)));
    EXPECT_TRUE(std::isnan(broken.back()));
  }
}

TEST_P(AttentionTest, SurvivesScoresFarBeyondTheRangeOfExp) {
  const auto device = CreateDevice(1);
  Sequence sequence(130, 2, 2, 16, 50);
  for (float& value : sequence.q) {
    value *= 1e4F;
  }
  for (const float value : Attend(*device, kF32Pages, sequence, 130)) {
    EXPECT_LE(std::abs(value), 1.0F + 1e-5F);  // a mean of values in [-1, 1)
  }
}

TEST_P(AttentionTest, StoresKeysAndValuesRoundedToThePageType) {
  const auto device = CreateDevice(2);
  const Sequence sequence(35, 2, 2, 5, 60);
  for (const PageType type : kFloatPages) {
    const KvPageLayout layout = LayoutOf(sequence, type);
    const Pages pages(layout, sequence.tokens);
    AttendChunk(device->ops(type.compute), layout, sequence, pages, 0, 35);
    const int64_t position = 34;
    std::vector<float> stored(5);
    const std::byte* plane = pages.span()[1] + layout.plane_bytes();
    WidenToF32(layout.dtype, plane + layout.element(1, position % 32) * FloatBytes(layout.dtype), 5,
               stored.data());
    const auto v = naive::RoundTo(layout.dtype, RowsOf(sequence.v, 10, position, 1));
    EXPECT_EQ(stored, std::vector<float>(v.begin() + 5, v.end()));
  }
}

INSTANTIATE_ON_OPS_TARGETS(AttentionTest);

}  // namespace
}  // namespace nightshift
