#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "kernels/group_format.h"
#include "kernels/ops.h"
#include "kernels/panel_layout.h"
#include "tests/bench/kernel_bench.h"
#include "tests/bench/reference_matmul.h"

namespace nightshift {
namespace {

struct MatMulType {
  const char* name;
  ComputeType compute;
  DType weight;
};
constexpr MatMulType kMatMulTypes[] = {
    {"bf16", ComputeType::kBF16, DType::kBF16},     {"f32", ComputeType::kF32, DType::kF32},
    {"f32xF16", ComputeType::kF32, DType::kF16},    {"f32xBF16", ComputeType::kF32, DType::kBF16},
    {"int4", ComputeType::kBF16, DType::kU4G64},    {"int8", ComputeType::kBF16, DType::kI8G64},
    {"f32xint4", ComputeType::kF32, DType::kU4G64}, {"f32xint8", ComputeType::kF32, DType::kI8G64},
    {"Q4_0", ComputeType::kBF16, DType::kI4G32},    {"Q4_1", ComputeType::kBF16, DType::kU4G32},
    {"int8xint4", ComputeType::kInt8, DType::kU4G64},
    {"int8xint8", ComputeType::kInt8, DType::kI8G64},
    {"int8xQ4_0", ComputeType::kInt8, DType::kI4G32},
    {"int8xQ8_0", ComputeType::kInt8, DType::kI8G32}};

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

// Multiplying what no other library does beside f32 and bf16 is measured at one shape, unless asked
// for.
bool IsUsual(const MatMulType& type, const NamedShape& shape) {
  const bool is_mixed =
      !IsFloat(type.weight) || (type.compute == ComputeType::kF32 && type.weight != DType::kF32);
  return !is_mixed || absl::string_view(shape.name) == "1B";
}

// Integer groups beside floats of the compute type, which move two to seven times as many bytes,
// and beside the roof of their own bytes.
void CompareGroups(KernelBench& bench, const std::string& name, const MatMulType& type,
                   const MatMulArgs& args, const Work& work) {
  const DType plain = ComputedDType(type.compute);
  const int64_t outputs = args.weight.outputs;
  const Bytes weights(PanelElements(outputs, args.weight.inputs) * FloatBytes(plain));
  MatMulArgs plain_args = args;
  plain_args.weight = {weights.data(), plain, 0, outputs, args.weight.inputs};
  Ops& ops = bench.ops(type.compute);
  const auto multiply = [&] { ops.MatMul(args); };
  bench.Compare(name, multiply, work,
                {{.name = type.compute == ComputeType::kF32 ? "f32" : "bf16",
                  .run = [&] { ops.MatMul(plain_args); },
                  .amount = work.flops}});
  bench.CompareWithRoof(name, multiply, work, type.compute);
}

void RunMatMul(KernelBench& bench, const MatMulType& type, const NamedShape& shape) {
  std::optional<Bytes> weights;
  const int64_t only_rows = bench.options().rows;
  for (const int64_t rows : only_rows > 0 ? std::vector<int64_t>{only_rows}
                                          : std::vector<int64_t>{1, 4, 8, 64, 128, 512}) {
    const std::string name = absl::StrFormat("matmul %s M=%d %s %dx%d", type.name, rows, shape.name,
                                             shape.inputs, shape.outputs);
    if (!bench.Wants(name)) continue;
    const int64_t weight_bytes = RoundUp(shape.outputs, kPanelOutputs) / kPanelOutputs *
                                 PanelBytes(type.weight, shape.inputs);
    if (!weights.has_value()) weights.emplace(weight_bytes);
    const WeightShardView weight = {weights->data(), type.weight, 0, shape.outputs, shape.inputs};
    Matrix x(rows, shape.inputs);
    Matrix out(rows, shape.outputs);
    const double flops = 2.0 * static_cast<double>(rows * shape.outputs * shape.inputs);
    if (!IsFloat(type.weight)) {
      CompareGroups(bench, name, type, {.x = x.view, .weight = weight, .out = out.view},
                    {.flops = flops, .bytes = static_cast<double>(weight_bytes)});
      continue;
    }
    std::vector<Reference> references;
    const MatMulShape reference_shape{rows, shape.outputs, shape.inputs};
    if (type.weight == DType::kF32 || type.compute != ComputeType::kF32) {
      const auto onednn = OneDnnMatMul(reference_shape, type.compute != ComputeType::kF32);
      if (onednn) references.push_back({.name = "oneDNN", .run = onednn, .amount = flops});
    }
    if (type.weight == DType::kF32) {
      references.push_back(
          {.name = "OpenBLAS", .run = OpenBlasMatMul(reference_shape), .amount = flops});
    }
    references.push_back(rows <= 8 ? bench.Bandwidth() : bench.Peak(type.compute));
    bench.Compare(
        name,
        [&] { bench.ops(type.compute).MatMul({.x = x.view, .weight = weight, .out = out.view}); },
        {.flops = flops, .bytes = static_cast<double>(weight_bytes)}, references);
  }
}

// All threads beside one: a product that is bound by multiply-adds and one that is bound by memory.
void RunThreads(KernelBench& bench, int64_t rows) {
  const std::string name =
      absl::StrFormat("threads matmul bf16 M=%d 1B, %d beside 1", rows, bench.options().threads);
  if (!bench.Wants(name) || bench.options().threads == 1) return;
  const Bytes weights(PanelElements(8192, 2048) * 2);
  const WeightShardView weight = {weights.data(), DType::kBF16, 0, 8192, 2048};
  Matrix x(rows, 2048);
  Matrix out(rows, 8192);
  bench.CompareThreads(
      name, [&](Ops& ops) { ops.MatMul({.x = x.view, .weight = weight, .out = out.view}); },
      ComputeType::kBF16);
}

}  // namespace

void RunMatMulCases(KernelBench& bench) {
  RunThreads(bench, 512);
  for (const NamedShape& shape : kMatMulShapes) {
    for (const MatMulType& type : kMatMulTypes) {
      if (bench.options().is_long || IsUsual(type, shape)) RunMatMul(bench, type, shape);
    }
  }
}

}  // namespace nightshift
