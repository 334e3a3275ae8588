#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/kv_page.h"
#include "kernels/panel_layout.h"
#include "tests/bench/kernel_bench.h"

namespace nightshift {
namespace {

// Requests in pages of one layer, 8 kv heads of width 128; of each the last `rows` are attended.
struct AttentionShape {
  ComputeType compute = ComputeType::kBF16;
  std::optional<DType> kv = {};  // packed
  int64_t requests = 1;
  int64_t rows = 1;
  int64_t keys = 0;       // of a request
  int64_t long_keys = 0;  // above 0: of the first request
  int64_t group = 4;
};

class AttentionCase {
 public:
  explicit AttentionCase(const AttentionShape& shape)
      : layout_{.dtype = shape.kv.value_or(ComputedDType(shape.compute)),
                .kv_heads = 8,
                .head_width = 128},
        heads_(layout_.kv_heads * shape.group),
        memory_(NumPages(shape) * layout_.page_bytes()),
        q_(shape.requests * shape.rows, heads_ * layout_.head_width),
        out_(shape.requests * shape.rows, heads_ * layout_.head_width) {
    for (int64_t page = 0; page < NumPages(shape); ++page) {
      pages_.push_back(memory_.data() + page * layout_.page_bytes());
    }
    size_t first_page = 0;
    for (int64_t request = 0; request < shape.requests; ++request) {
      const int64_t keys = KeysOf(shape, request);
      const auto pages = static_cast<size_t>(PagesOf(keys));
      spans_.push_back({.first_row = request * shape.rows,
                        .num_rows = shape.rows,
                        .first_position = keys - shape.rows,
                        .sparse_from = 0,
                        .pages = std::span(pages_).subspan(first_page, pages)});
      first_page += pages;
      // A row sees the keys up to its own.
      seen_keys_ += static_cast<double>(shape.rows) * static_cast<double>(keys) -
                    static_cast<double>(shape.rows * (shape.rows - 1)) / 2;
    }
  }

  // Random queries, and the same random keys and values for each request: keys that weigh unequally.
  void FillAtRandom(Ops& ops) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](Matrix& matrix) {
      std::generate_n(matrix.bytes.floats(), matrix.view.rows * matrix.view.columns,
                      [&] { return normal(generator); });
    };
    fill(q_);
    const int64_t columns = layout_.kv_heads * layout_.head_width;
    const int64_t keys = spans_.front().first_position + spans_.front().num_rows;
    Matrix k(keys, columns);
    Matrix v(keys, columns);
    fill(k);
    fill(v);
    for (const AttentionSpan& span : spans_) {
      const AttentionSpan all = {.num_rows = keys, .pages = span.pages};
      ops.StoreKv({.k = k.view, .v = v.view, .layout = layout_, .spans = {&all, 1}});
    }
  }

  void Run(Ops& ops, double sparse_fraction = 1.0) {
    ops.Attention({.q = q_.view,
                   .out = out_.view,
                   .layout = layout_,
                   .num_heads = heads_,
                   .scale = 0.1F,
                   .sparse_fraction = sparse_fraction,
                   .spans = spans_});
  }
  Work work() const {
    return {
        .flops = seen_keys_ * static_cast<double>(4 * heads_ * layout_.head_width),
        // Without what fills planes up.
        .bytes = static_cast<double>(static_cast<int64_t>(pages_.size()) * kPagePositions * 2 *
                                     layout_.kv_heads * layout_.head_width) *
                 StoredBits(layout_.dtype) / 8.0};
  }

 private:
  static int64_t KeysOf(const AttentionShape& shape, int64_t request) {
    return request == 0 && shape.long_keys > 0 ? shape.long_keys : shape.keys;
  }
  static int64_t PagesOf(int64_t keys) { return (keys + kPagePositions - 1) / kPagePositions; }
  static int64_t NumPages(const AttentionShape& shape) {
    int64_t pages = 0;
    for (int64_t request = 0; request < shape.requests; ++request) {
      pages += PagesOf(KeysOf(shape, request));
    }
    return pages;
  }

  KvPageLayout layout_;
  int64_t heads_;
  Bytes memory_;
  Matrix q_;
  Matrix out_;
  std::vector<std::byte*> pages_;
  std::vector<AttentionSpan> spans_;
  double seen_keys_ = 0;
};

// One row a request over 1024 keys: the pages, larger than any cache, are read once.
void RunDecode(KernelBench& bench, ComputeType compute, std::optional<DType> kv, int64_t group) {
  const std::string name = absl::StrFormat(
      "attention decode %s%s GQA %d, 64 rows of 1024 keys, 8 kv heads of 128",
      ComputeTypeName(compute), kv ? absl::StrCat(" kv ", KvTypeName(*kv)) : "", group);
  if (!bench.Wants(name)) return;
  AttentionCase attention(
      {.compute = compute, .kv = kv, .requests = 64, .keys = 1024, .group = group});
  bench.CompareWithRoof(
      name, [&] { attention.Run(bench.ops(compute)); }, attention.work(), compute);
}

// Beside the same rows with all of their values; as many keys a second as the dense ones' flops say.
void RunSparse(KernelBench& bench, ComputeType compute, std::optional<DType> kv, int64_t group) {
  const std::string name = absl::StrFormat(
      "attention sparse 10%% %s%s GQA %d, 64 rows of 1024 keys, 8 kv heads of 128",
      ComputeTypeName(compute), kv ? absl::StrCat(" kv ", KvTypeName(*kv)) : "", group);
  if (!bench.Wants(name)) return;
  AttentionCase attention(
      {.compute = compute, .kv = kv, .requests = 64, .keys = 1024, .group = group});
  attention.FillAtRandom(bench.ops(compute));
  const Work work = attention.work();
  bench.Compare(name, [&] { attention.Run(bench.ops(compute), 0.1); }, work,
                {{.name = "dense",
                  .run = [&] { attention.Run(bench.ops(compute)); },
                  .amount = work.flops}});
}

// Rows of one long request beside 63 short ones: as fast as as many equal ones would be.
void RunRagged(KernelBench& bench, ComputeType compute) {
  const std::string name = absl::StrFormat(
      "attention decode %s GQA 4, 1 row of 16384 keys and 63 of 512, 8 kv heads of 128",
      ComputeTypeName(compute));
  if (!bench.Wants(name)) return;
  AttentionCase attention({.compute = compute, .requests = 64, .keys = 512, .long_keys = 16384});
  bench.CompareWithRoof(
      name, [&] { attention.Run(bench.ops(compute)); }, attention.work(), compute);
}

// Against the matmul rate: 2048 rows by a 1B model's projection.
void RunPrompt(KernelBench& bench, ComputeType compute, std::optional<DType> kv) {
  const std::string name = absl::StrFormat(
      "attention prompt %s%s 2048 tokens, 32:8 heads of 128", ComputeTypeName(compute),
      kv ? absl::StrCat(" kv ", KvTypeName(*kv)) : "");
  if (!bench.Wants(name)) return;
  AttentionCase attention({.compute = compute, .kv = kv, .rows = 2048, .keys = 2048});
  const DType type = ComputedDType(compute);
  const Bytes weights(PanelElements(2048, 2048) * FloatBytes(type));
  const WeightShardView weight = {weights.data(), type, 0, 2048, 2048};
  Matrix x(2048, 2048);
  Matrix out(2048, 2048);
  const auto matmul = [&] {
    bench.ops(compute).MatMul({.x = x.view, .weight = weight, .out = out.view});
  };
  bench.Compare(name, [&] { attention.Run(bench.ops(compute)); }, attention.work(),
                {{.name = "matmul", .run = matmul, .amount = 2.0 * 2048 * 2048 * 2048}});
}

void RunThreads(KernelBench& bench, const std::string& what, const AttentionShape& shape) {
  const std::string name =
      absl::StrFormat("threads attention bf16 %s, %d beside 1", what, bench.options().threads);
  if (!bench.Wants(name) || bench.options().threads == 1) return;
  AttentionCase attention(shape);
  bench.CompareThreads(
      name, [&](Ops& ops) { attention.Run(ops); }, shape.compute);
}

}  // namespace

void RunAttentionCases(KernelBench& bench) {
  for (const ComputeType compute : {ComputeType::kBF16, ComputeType::kF32}) {
    for (const std::optional<DType> kv :
         {std::optional<DType>(), std::optional(DType::kU8G64), std::optional(DType::kU4G64)}) {
      RunPrompt(bench, compute, kv);
      for (const int64_t group : {1, 4, 8}) {
        RunDecode(bench, compute, kv, group);
        RunSparse(bench, compute, kv, group);
      }
    }
    RunRagged(bench, compute);
  }
  RunThreads(bench, "prompt", {.rows = 2048, .keys = 2048});
  RunThreads(bench, "decode", {.requests = 64, .keys = 1024});
}

}  // namespace nightshift
