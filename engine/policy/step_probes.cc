// AddRowProbes and AddStepProbes of compute_probes.h.
#include <array>
#include <cstring>
#include <memory>

#include "engine/policy/compute_probes.h"
#include "kernels/base/fence.h"
#include "kernels/base/lane.h"

namespace nightshift {
namespace {

constexpr int64_t kOffset = int64_t{120} << 20;  // in the scratch, behind what other probes write

// The ops that a layer of a Llama calls between its matmuls and its attention, for a batch.
class RowProbe {
 public:
  explicit RowProbe(const ProbeBench& bench)
      : ops_(bench.device.ops(ComputeType::kBF16)),
        weight_(kWidth, 1.0F),
        frequencies_(kHeadWidth / 2, 0.01F),
        positions_(kRows, 7) {
    auto* scratch = reinterpret_cast<float*>(bench.scratch.data() + kOffset);
    x_ = {scratch, kRows, kWidth, kWidth};
    out_ = {x_.row(kRows), kRows, kWidth, kWidth};
    gate_ = {out_.row(kRows), kRows, kFfnWidth, kFfnWidth};
    up_ = {gate_.row(kRows), kRows, kFfnWidth, kFfnWidth};
  }

  // Returns the bytes read and written.
  double Run() {
    ops_.RmsNorm(x_, weight_.data(), 1e-5F, out_);
    ops_.Rope({.x = out_,
               .heads = kWidth / kHeadWidth,
               .head_width = kHeadWidth,
               .inverse_frequencies = frequencies_,
               .positions = positions_});
    ops_.AddScaled(out_, 0.5F, x_);
    ops_.GatedActivate(Activation::kSilu, gate_, up_);
    // An f32 in and one out; two in and one out.
    constexpr double kInOut = 8.0;
    constexpr double kTwoInOut = 12.0;
    return static_cast<double>(kRows) * (static_cast<double>(kWidth) * (2.0 * kInOut + kTwoInOut) +
                                         static_cast<double>(kFfnWidth) * kTwoInOut);
  }

 private:
  static constexpr int64_t kRows = 256;
  static constexpr int64_t kWidth = 4096;
  static constexpr int64_t kFfnWidth = 11008;
  static constexpr int64_t kHeadWidth = 128;

  Ops& ops_;
  std::vector<float> weight_;
  std::vector<float> frequencies_;
  std::vector<int32_t> positions_;
  MatrixView x_;
  MatrixView out_;
  MatrixView gate_;
  MatrixView up_;
};

// All ops of a layer on one row of a model so small that their work is nothing.
class TinyLayer {
 public:
  explicit TinyLayer(const ProbeBench& bench)
      : ops_(bench.device.ops(ComputeType::kBF16)),
        weights_(bench.memory.data()),
        norm_(kWidth, 1.0F),
        frequencies_(kWidth / 2, 0.01F) {
    auto* scratch = reinterpret_cast<float*>(bench.scratch.data() + kOffset);
    x_ = {scratch, 1, kWidth, kWidth};
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i] = {scratch + static_cast<int64_t>(i + 1) * kWidth, 1, kWidth, kWidth};
    }
    // Behind the rows, as aligned as pages are.
    page_ = bench.scratch.data() + kOffset + kPlaneAlignment;
    span_ = {.num_rows = 1, .pages = {&page_, 1}};
  }

  void Run() {
    const auto& [a, q, k, v, up] = rows_;
    ops_.RmsNorm(x_, norm_.data(), 1e-5F, a);
    Multiply(a, q);
    Multiply(a, k);
    Multiply(a, v);
    Rotate(q);
    Rotate(k);
    ops_.StoreKv({.k = k, .v = v, .layout = kLayout, .spans = {&span_, 1}});
    ops_.Attention({.q = q, .out = a, .layout = kLayout, .num_heads = 1, .spans = {&span_, 1}});
    Multiply(a, q);
    ops_.RmsNorm(q, norm_.data(), 1e-5F, a);
    Multiply(a, k);
    Multiply(a, up);
    ops_.GatedActivate(Activation::kSilu, k, up);
    Multiply(k, a);
  }

 private:
  static constexpr int64_t kWidth = 64;
  static constexpr KvPageLayout kLayout = {
      .dtype = DType::kBF16, .kv_heads = 1, .head_width = kWidth};

  void Multiply(MatrixView x, MatrixView out) {
    ops_.MatMul({.x = x,
                 .weight = {.data = weights_,
                            .dtype = DType::kBF16,
                            .first_output = 0,
                            .outputs = kWidth,
                            .inputs = kWidth},
                 .out = out});
  }
  void Rotate(MatrixView x) {
    ops_.Rope({.x = x,
               .heads = 1,
               .head_width = kWidth,
               .inverse_frequencies = frequencies_,
               .positions = positions_});
  }

  Ops& ops_;
  const std::byte* weights_;
  std::vector<float> norm_;
  std::vector<float> frequencies_;
  std::array<int32_t, 1> positions_ = {0};
  MatrixView x_;
  std::array<MatrixView, 5> rows_;
  std::byte* page_ = nullptr;
  AttentionSpan span_;
};

// Two lanes that do nothing in turns, each waiting for the other's fence.
double PassFences(const Clock& clock) {
  constexpr size_t kSteps = 256;
  std::array<Fence, kSteps> fences;
  Lane lanes[2] = {Lane(clock), Lane(clock)};
  for (size_t i = 0; i < kSteps; ++i) {
    std::vector<Fence*> waits;
    if (i > 0) {
      waits.push_back(&fences[i - 1]);
    }
    lanes[i % 2].Issue(
        std::move(waits), [] { return absl::OkStatus(); }, &fences[i]);
  }
  (void)fences.back().Wait();
  return static_cast<double>(kSteps);
}

}  // namespace

void AddRowProbes(const ProbeBench& bench, ComputeRates& rates,
                  std::map<std::string, double>& spreads, std::vector<Measurement>& measurements) {
  const auto probe = std::make_shared<RowProbe>(bench);
  measurements.push_back({.name = "norms, rotation and activation of rows",
                          .work = [probe] { return probe->Run(); },
                          .keep =
                              [&rates, &spreads](double rate, double spread) {
                                rates.row_bytes_per_s = rate;
                                spreads["device.row_bytes_per_s"] = spread;
                              }});
}

void AddStepProbes(const ProbeBench& bench, const Clock& clock, ComputeRates& rates,
                   std::vector<Measurement>& measurements) {
  const auto add_seconds = [&rates](double steps_per_s, double /*spread*/) {
    rates.step_seconds += 1.0 / steps_per_s;
  };
  const auto layer = std::make_shared<TinyLayer>(bench);
  measurements.push_back({.name = "the ops of a layer without work",
                          .work =
                              [layer] {
                                layer->Run();
                                return 1.0;
                              },
                          .keep = add_seconds});
  measurements.push_back({.name = "fences between lanes",
                          .work = [&clock] { return PassFences(clock); },
                          .keep = add_seconds});
}

}  // namespace nightshift
