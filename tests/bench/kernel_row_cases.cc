// Ops that work on rows: their time is that of the memory they touch. Rows are so many that no
// cache holds them; bytes are those read and those written.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "kernels/panel_layout.h"
#include "tests/bench/kernel_bench.h"

namespace nightshift {
namespace {

// Floats of a matrix: 64 MiB.
constexpr int64_t kElements = int64_t{16} << 20;

struct RowShape {
  const char* name;
  int64_t width;      // E
  int64_t ffn_width;  // F
  int64_t heads;      // H
  int64_t kv_heads;   // G
  int64_t head_width;
  int64_t vocabulary;
};
constexpr RowShape kShapes[] = {
    {"SmolLM2", 576, 1536, 9, 3, 64, 49152},
    {"1B", 2048, 8192, 32, 8, 64, 49152},
    {"7B", 4096, 11008, 32, 32, 128, 32000},
    {"OPT-30B", 7168, 28672, 56, 56, 128, 50272},
};

class RowCases {
 public:
  RowCases(KernelBench& bench, const RowShape& shape) : bench_(bench), shape_(shape) {}

  void Run() {
    RunNorms();
    RunRope();
    RunActivations();
    RunStoreKv();
    RunGather();
    RunHead();
  }

 private:
  Ops& ops() { return bench_.ops(ComputeType::kBF16); }

  // An op that touches `bytes` for each of kElements elements.
  void Compare(const std::string& op, double bytes, const std::function<void()>& run) {
    const std::string name = absl::StrFormat("%s %s", op, shape_.name);
    if (!bench_.Wants(name)) return;
    bench_.Compare(name, run, {.bytes = bytes * static_cast<double>(kElements)}, {bench_.Copy()});
  }

  void RunNorms() {
    const int64_t width = shape_.width;
    Matrix x(kElements / width, width);
    Matrix out(kElements / width, width);
    const std::vector<float> weight(static_cast<size_t>(width), 1.0F);
    Compare("RmsNorm", 8, [&] { ops().RmsNorm(x.view, weight.data(), 1e-5F, out.view); });
    Compare("LayerNorm", 8,
            [&] { ops().LayerNorm(x.view, weight.data(), weight.data(), 1e-5F, out.view); });
    Compare("AddScaled", 12, [&] { ops().AddScaled(x.view, 0.5F, out.view); });
    const int64_t head_columns = width / shape_.head_width * shape_.head_width;
    Compare("HeadRmsNorm", 8, [&] {
      ops().HeadRmsNorm(x.view.Columns(0, head_columns), shape_.head_width, weight.data(), 1e-5F);
    });
  }

  void RunRope() {
    const int64_t width = shape_.heads * shape_.head_width;
    Matrix x(kElements / width, width);
    std::vector<int32_t> positions(static_cast<size_t>(x.view.rows));
    for (size_t i = 0; i < positions.size(); ++i) {
      positions[i] = static_cast<int32_t>(i % 2048);
    }
    const std::vector<float> frequencies(static_cast<size_t>(shape_.head_width / 2), 0.01F);
    Compare("Rope", 8, [&] {
      ops().Rope({.x = x.view,
                  .heads = shape_.heads,
                  .head_width = shape_.head_width,
                  .inverse_frequencies = frequencies,
                  .positions = positions});
    });
  }

  void RunActivations() {
    const int64_t width = shape_.ffn_width;
    Matrix gate(kElements / width, width);
    Matrix up(kElements / width, width);
    Compare("GatedActivate silu", 12,
            [&] { ops().GatedActivate(Activation::kSilu, gate.view, up.view); });
    Compare("GatedActivate gelu tanh", 12,
            [&] { ops().GatedActivate(Activation::kGeluTanh, gate.view, up.view); });
    Compare("Activate gelu erf", 8, [&] { ops().Activate(Activation::kGeluErf, gate.view); });
    Compare("Activate relu", 8, [&] { ops().Activate(Activation::kRelu, gate.view); });
  }

  // Reads f32 keys and values and writes them as bf16.
  void RunStoreKv() {
    const KvPageLayout layout = {
        .dtype = DType::kBF16, .kv_heads = shape_.kv_heads, .head_width = shape_.head_width};
    const int64_t width = shape_.kv_heads * shape_.head_width;
    const int64_t rows = kElements / 2 / width;
    Matrix k(rows, width);
    Matrix v(rows, width);
    const Bytes memory((rows / kPagePositions + 1) * layout.page_bytes());
    std::vector<std::byte*> pages;
    for (int64_t page = 0; page * kPagePositions < rows; ++page) {
      pages.push_back(memory.data() + page * layout.page_bytes());
    }
    const AttentionSpan span = {.num_rows = rows, .pages = pages};
    Compare("StoreKv", 6, [&] {
      ops().StoreKv({.k = k.view, .v = v.view, .layout = layout, .spans = {&span, 1}});
    });
  }

  // Each pair of a row lies in a line of 64 bytes of its own.
  void RunGather() {
    const int64_t width = shape_.width;
    const int64_t vocabulary = shape_.vocabulary;
    const Bytes table(PanelElements(vocabulary, width) * 2);
    const WeightShardView shard = {table.data(), DType::kBF16, 0, vocabulary, width};
    Matrix out(kElements / 8 / width, width);
    std::vector<int32_t> ids(static_cast<size_t>(out.view.rows));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(vocabulary));
    }
    Compare("EmbeddingGather", 36.0 / 8, [&] {
      ops().EmbeddingGather({vocabulary, width, {&shard, 1}}, ids, false, out.view);
    });
  }

  void RunHead() {
    const int64_t vocabulary = shape_.vocabulary;
    Matrix logits(kElements / vocabulary, vocabulary);
    for (const float temperature : {0.0F, 1.0F}) {
      std::vector<HeadRequest> requests;
      for (int64_t row = 0; row < logits.view.rows; ++row) {
        requests.push_back({.row = row, .temperature = temperature, .noise_key = 1});
      }
      const HeadState start = {.max_logit = -INFINITY,
                               .sum_exp = 0,
                               .tempered_sum_exp = 0,
                               .best_noisy = -INFINITY,
                               .noisy_winner = -1,
                               .noisy_winner_logit = 0,
                               .candidates = {},
                               .unadjusted = {}};
      std::vector<HeadState> states;
      Compare(temperature == 0.0F ? "HeadReduce greedy" : "HeadReduce sampled", 4, [&] {
        states.assign(requests.size(), start);
        ops().HeadReduce({.logits = logits.view, .requests = requests, .states = states});
      });
    }
  }

  KernelBench& bench_;
  const RowShape& shape_;
};

}  // namespace

void RunRowCases(KernelBench& bench) {
  for (const RowShape& shape : kShapes) {
    RowCases(bench, shape).Run();
  }
}

}  // namespace nightshift
