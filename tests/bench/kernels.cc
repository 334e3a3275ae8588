// Each op of the CPU device against the measured roof of the machine, and matmul against oneDNN and
// OpenBLAS, at shapes of real models. One JSON line a case and reference.
//
// Usage: kernels [--threads N] [--target AVX3_BF16|AVX3|AVX2] [--rows M] [--case TEXT]
// M: rows of matmuls, in place of the usual ones. TEXT: only cases whose name contains it. With one thread times are CPU times.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hwy/targets.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/base/worker_pool.h"
#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/target_name.h"
#include "kernels/device.h"
#include "kernels/panel_layout.h"
#include "tests/bench/reference_matmul.h"
#include "tests/bench/roof.h"
#include "tests/bench/timing.h"

namespace nightshift {
namespace {

struct Options {
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string target;  // empty: the machine's best
  int64_t rows = 0;  // of matmuls; 0: the usual ones
  std::string only;
};

constexpr double kRoundSeconds = 0.02;
// Larger than the last-level cache share of any core that this runs on.
constexpr int64_t kReadBytes = int64_t{512} << 20;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Zero bytes at a 4096-byte border, touched.
class Bytes {
 public:
  explicit Bytes(int64_t count)
      : memory_(std::aligned_alloc(4096, static_cast<size_t>(RoundUp(count, 4096)))) {
    std::memset(memory_.get(), 0, static_cast<size_t>(RoundUp(count, 4096)));
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  float* floats() const { return static_cast<float*>(memory_.get()); }

 private:
  std::unique_ptr<void, Free> memory_;
};

struct Matrix {
  Matrix(int64_t rows, int64_t columns)
      : bytes(rows * columns * 4), view{bytes.floats(), rows, columns, columns} {}
  Bytes bytes;
  MatrixView view;
};

// A rival of a case and what it amounts to: `value` of it is `amount` over its seconds.
struct Reference {
  std::string name;
  std::function<void()> run;
  double amount = 0;
};

class KernelBench {
 public:
  explicit KernelBench(const Options& options)
      : options_(options),
        target_(cpu::TargetName()),
        pool_(options.threads),
        device_(CreateCpuDevice(options.threads).value()) {}

  Ops& ops(ComputeType compute) { return device_->ops(compute); }
  std::vector<int64_t> matmul_rows() const {
    return options_.rows > 0 ? std::vector<int64_t>{options_.rows}
                             : std::vector<int64_t>{1, 4, 8, 64, 128, 512};
  }
  bool Wants(const std::string& name) const { return absl::StrContains(name, options_.only); }

  // Multiply-adds at their fastest; of the bf16 compute type where there are dots.
  Reference Peak(ComputeType compute) {
    const PeakLoop loop{target_, compute == ComputeType::kBF16 && target_ == "AVX3_BF16"};
    return {"peak", [this, loop] { RunPeakLoop(loop, pool_); },
            static_cast<double>(PeakLoopFlops(loop) * pool_.num_threads())};
  }
  Reference Bandwidth() {
    if (!read_.has_value()) read_.emplace(kReadBytes);
    return {"bandwidth", [this] { ReadMemory(read_->data(), kReadBytes, pool_); },
            static_cast<double>(kReadBytes)};
  }

  // Prints ours beside the references; a bandwidth is compared with `bytes`, others with `flops`.
  void Compare(const std::string& name, const std::function<void()>& ours, double flops,
               double bytes, const std::vector<Reference>& references) {
    std::vector<std::function<void()>> functions = {ours};
    for (const Reference& reference : references) {
      functions.push_back(reference.run);
    }
    const std::vector<double> seconds = TimeInTurns(functions, options_.threads, kRoundSeconds);
    for (size_t i = 0; i < references.size(); ++i) {
      const bool is_bytes = references[i].name == "bandwidth";
      const double value = (is_bytes ? bytes : flops) / seconds[0] * 1e-9;
      const double reference = references[i].amount / seconds[i + 1] * 1e-9;
      absl::PrintF(R"({"bench": "kernels", "case": "%s", "target": "%s", "threads": %d, )"
                   R"("value": %.1f, "unit": "%s", "reference": "%s", "reference_value": %.1f, )"
                   R"("ratio": %.3f})"
                   "\n",
                   name, target_, options_.threads, value, is_bytes ? "GB/s" : "GFLOP/s",
                   references[i].name, reference, value / reference);
    }
    std::fflush(stdout);
  }

 private:
  const Options options_;
  const std::string target_;
  WorkerPool pool_;
  std::unique_ptr<Device> device_;
  std::optional<Bytes> read_;
};

struct MatMulType {
  const char* name;
  ComputeType compute;
  DType weight;
};
constexpr MatMulType kMatMulTypes[] = {{"bf16", ComputeType::kBF16, DType::kBF16},
                                       {"f32", ComputeType::kF32, DType::kF32},
                                       {"f32xF16", ComputeType::kF32, DType::kF16},
                                       {"f32xBF16", ComputeType::kF32, DType::kBF16}};

struct NamedShape {
  const char* name;
  int64_t outputs;
  int64_t inputs;
};
constexpr NamedShape kMatMulShapes[] = {{"SmolLM2", 1536, 576},
                                        {"SmolLM2 head", 49152, 576},
                                        {"1B", 8192, 2048},
                                        {"7B", 11008, 4096},
                                        {"OPT-30B", 28672, 7168}};

void RunMatMul(KernelBench& bench, const MatMulType& type, const NamedShape& shape) {
  std::optional<Bytes> weights;
  for (const int64_t rows : bench.matmul_rows()) {
    const std::string name = absl::StrFormat("matmul %s M=%d %s %dx%d", type.name, rows, shape.name,
                                             shape.inputs, shape.outputs);
    if (!bench.Wants(name)) continue;
    const int64_t weight_bytes =
        PanelElements(shape.outputs, shape.inputs) * FloatBytes(type.weight);
    if (!weights.has_value()) weights.emplace(weight_bytes);
    const WeightShardView weight = {weights->data(), type.weight, 0, shape.outputs, shape.inputs};
    Matrix x(rows, shape.inputs);
    Matrix out(rows, shape.outputs);
    const double flops = 2.0 * static_cast<double>(rows * shape.outputs * shape.inputs);
    std::vector<Reference> references;
    const MatMulShape reference_shape{rows, shape.outputs, shape.inputs};
    if (type.weight == DType::kF32 || type.compute == ComputeType::kBF16) {
      const auto onednn = OneDnnMatMul(reference_shape, type.compute == ComputeType::kBF16);
      if (onednn) references.push_back({"oneDNN", onednn, flops});
    }
    if (type.weight == DType::kF32) {
      references.push_back({"OpenBLAS", OpenBlasMatMul(reference_shape), flops});
    }
    references.push_back(rows <= 8 ? bench.Bandwidth() : bench.Peak(type.compute));
    bench.Compare(
        name,
        [&] {
          bench.ops(type.compute).MatMul({.x = x.view, .weight = weight, .out = out.view});
        },
        flops, static_cast<double>(weight_bytes), references);
  }
}

// Requests of `keys` positions each, in pages of one layer; of each the last `rows` are attended.
class AttentionCase {
 public:
  AttentionCase(ComputeType compute, int64_t requests, int64_t rows, int64_t keys, int64_t kv_heads,
                int64_t group)
      : layout_{.dtype = compute == ComputeType::kF32 ? DType::kF32 : DType::kBF16,
                .kv_heads = kv_heads,
                .head_width = 128},
        heads_(kv_heads * group),
        pages_per_request_((keys + kPagePositions - 1) / kPagePositions),
        memory_(requests * pages_per_request_ * layout_.page_bytes()),
        q_(requests * rows, heads_ * layout_.head_width),
        out_(requests * rows, heads_ * layout_.head_width) {
    for (int64_t page = 0; page < requests * pages_per_request_; ++page) {
      pages_.push_back(memory_.data() + page * layout_.page_bytes());
    }
    for (int64_t request = 0; request < requests; ++request) {
      const auto first = static_cast<size_t>(request * pages_per_request_);
      spans_.push_back({.first_row = request * rows,
                        .num_rows = rows,
                        .first_position = keys - rows,
                        .pages = std::span(pages_).subspan(
                            first, static_cast<size_t>(pages_per_request_))});
      // A row sees the keys up to its own.
      seen_keys_ += static_cast<double>(rows) * static_cast<double>(keys) -
                    static_cast<double>(rows * (rows - 1)) / 2;
    }
  }

  void Run(Ops& ops) {
    ops.Attention({.q = q_.view,
                   .out = out_.view,
                   .layout = layout_,
                   .num_heads = heads_,
                   .scale = 0.1F,
                   .spans = spans_});
  }
  double flops() const { return seen_keys_ * static_cast<double>(4 * heads_ * layout_.head_width); }
  double bytes() const {
    return static_cast<double>(pages_.size()) * static_cast<double>(layout_.page_bytes());
  }

 private:
  KvPageLayout layout_;
  int64_t heads_;
  int64_t pages_per_request_;
  Bytes memory_;
  Matrix q_;
  Matrix out_;
  std::vector<std::byte*> pages_;
  std::vector<AttentionSpan> spans_;
  double seen_keys_ = 0;
};

// One row a request over 1024 keys: the pages, larger than any cache, are read once.
void RunDecode(KernelBench& bench, ComputeType compute, int64_t group) {
  const std::string name =
      absl::StrFormat("attention decode %s GQA %d, 64 rows of 1024 keys, 8 kv heads of 128",
                      ComputeTypeName(compute), group);
  if (!bench.Wants(name)) return;
  AttentionCase attention(compute, 64, 1, 1024, 8, group);
  bench.Compare(name, [&] { attention.Run(bench.ops(compute)); }, attention.flops(),
                attention.bytes(), {bench.Bandwidth(), bench.Peak(compute)});
}

// Against the matmul rate: 2048 rows by a 1B model's projection.
void RunPrompt(KernelBench& bench, ComputeType compute) {
  const std::string name = absl::StrFormat("attention prompt %s 2048 tokens, 32:8 heads of 128",
                                           ComputeTypeName(compute));
  if (!bench.Wants(name)) return;
  AttentionCase attention(compute, 1, 2048, 2048, 8, 4);
  const DType type = compute == ComputeType::kF32 ? DType::kF32 : DType::kBF16;
  const Bytes weights(PanelElements(2048, 2048) * FloatBytes(type));
  const WeightShardView weight = {weights.data(), type, 0, 2048, 2048};
  Matrix x(2048, 2048);
  Matrix out(2048, 2048);
  const auto matmul = [&] {
    bench.ops(compute).MatMul({.x = x.view, .weight = weight, .out = out.view});
  };
  bench.Compare(name, [&] { attention.Run(bench.ops(compute)); }, attention.flops(),
                attention.bytes(), {{"matmul", matmul, 2.0 * 2048 * 2048 * 2048}});
}

void Run(const Options& options) {
  KernelBench bench(options);
  for (const ComputeType compute : {ComputeType::kBF16, ComputeType::kF32}) {
    RunPrompt(bench, compute);
    for (const int64_t group : {1, 4, 8}) {
      RunDecode(bench, compute, group);
    }
  }
  for (const NamedShape& shape : kMatMulShapes) {
    for (const MatMulType& type : kMatMulTypes) {
      RunMatMul(bench, type, shape);
    }
  }
}

// The other libraries take their threads and their instruction set from the environment, before
// they are loaded: sets it and starts this program again.
void SetEnvironment(const Options& options, char** argv) {
  if (std::getenv("NIGHTSHIFT_BENCH_STARTED") != nullptr) return;
  const std::string threads = absl::StrCat(options.threads);
  setenv("NIGHTSHIFT_BENCH_STARTED", "1", 1);
  setenv("OMP_NUM_THREADS", threads.c_str(), 1);
  setenv("OPENBLAS_NUM_THREADS", threads.c_str(), 1);
  if (options.target == "AVX2") {
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  } else if (options.target == "AVX3") {
    setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_VNNI", 1);
  }
  execv("/proc/self/exe", argv);
}

// False where the machine does not have the target.
bool ForceTarget(const std::string& target) {
  if (target.empty()) return true;
  const int64_t wanted = target == "AVX3_BF16" ? HWY_AVX3 | HWY_AVX3_DL
                         : target == "AVX3"    ? HWY_AVX3
                         : target == "AVX2"    ? HWY_AVX2
                                               : 0;
  if (wanted == 0 || (hwy::SupportedTargets() & wanted) != wanted) return false;
  hwy::SetSupportedTargetsForTest(wanted);
  return cpu::TargetName() == target;
}

// False when the arguments are not those of the usage.
bool ReadArguments(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--threads") {
      if (!absl::SimpleAtoi(argv[i + 1], &options.threads) || options.threads < 1) return false;
    } else if (name == "--target") {
      options.target = argv[i + 1];
    } else if (name == "--rows") {
      if (!absl::SimpleAtoi(argv[i + 1], &options.rows) || options.rows < 1) return false;
    } else if (name == "--case") {
      options.only = argv[i + 1];
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  nightshift::Options options;
  if (!nightshift::ReadArguments(argc, argv, options)) {
    std::fprintf(stderr, "usage: kernels [--threads N] [--target AVX3_BF16|AVX3|AVX2] "
                         "[--rows M] [--case TEXT]\n");
    return 2;
  }
  nightshift::SetEnvironment(options, argv);
  if (!nightshift::ForceTarget(options.target)) {
    std::fprintf(stderr, "kernels: this machine has no target %s\n", options.target.c_str());
    return 1;
  }
  nightshift::Run(options);
  return 0;
}
