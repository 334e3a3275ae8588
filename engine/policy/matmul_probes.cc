// AddMatmulProbes and AddUnpackProbes of compute_probes.h.
#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

#include "engine/model/pack_writer.h"
#include "engine/model/stored_panel.h"
#include "engine/model/weight_loader.h"
#include "engine/policy/compute_probes.h"
#include "kernels/group_format.h"
#include "kernels/panel_layout.h"

namespace nightshift {
namespace {

// A layer of a model of 7B in shards: [4096, 4096].
constexpr int64_t kInputs = 4096;
constexpr int64_t kMostRows = 2048;
constexpr int64_t kUnpackOffset = int64_t{64} << 20;  // in the scratch, behind x and out

struct MatmulKind {
  ComputeType compute;
  DType weights;
};
// That layer, and one of a model of 0.1B, where starting the cores and packing rows weighs more.
struct MatrixSize {
  int64_t inputs;
  int64_t outputs;
};
constexpr MatrixSize kMatrixSizes[] = {{kInputs, kInputs}, {512, 1024}};
constexpr MatmulKind kMatmulKinds[] = {
    {ComputeType::kBF16, DType::kBF16},  {ComputeType::kF32, DType::kF32},
    {ComputeType::kF32, DType::kF16},    {ComputeType::kF32, DType::kBF16},
    {ComputeType::kBF16, DType::kU4G64}, {ComputeType::kF32, DType::kU4G64},
    {ComputeType::kBF16, DType::kI8G64}, {ComputeType::kF32, DType::kI8G64},
    {ComputeType::kInt8, DType::kU4G64}, {ComputeType::kInt8, DType::kI8G64}};
// Groups differ from floats with few rows; their rate has settled long before.
constexpr int64_t kMostGroupRows = 256;

MatrixView Rows(std::byte* memory, int64_t rows, int64_t columns) {
  return {reinterpret_cast<float*>(memory), rows, columns, columns};
}

// Bytes from the memory, at another place each time.
class Walk {
 public:
  explicit Walk(std::span<const std::byte> memory) : memory_(memory) {}

  std::span<const std::byte> Next(size_t bytes) {
    if (offset_ + bytes > memory_.size()) {
      offset_ = 0;
    }
    const auto next = memory_.subspan(offset_, bytes);
    // Panels begin at multiples of 64, shards in a pack at multiples of 4096.
    offset_ += static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes), kShardAlignment));
    return next;
  }

 private:
  std::span<const std::byte> memory_;
  size_t offset_ = 0;
};

// The matrix, one shard after the other, as MultiplyInOrder does.
class MatmulProbe {
 public:
  MatmulProbe(const ProbeBench& bench, const MatmulKind& kind, const MatrixSize& size, int64_t rows)
      : ops_(bench.device.ops(kind.compute)),
        kind_(kind),
        size_(size),
        outputs_(std::min(
            size.outputs,
            kShardTargetBytes / StoredPanelBytes(kind.weights, size.inputs) * kPanelOutputs)),
        x_(Rows(bench.scratch.data(), rows, size.inputs)),
        out_(Rows(bench.scratch.data() + kMostRows * kInputs * 4, rows, size.outputs)),
        walk_(bench.memory) {}

  double MultiplyMatrix() {
    const auto bytes = static_cast<size_t>(RoundUp(outputs_, kPanelOutputs) / kPanelOutputs *
                                           PanelBytes(kind_.weights, size_.inputs));
    for (int64_t first = 0; first < size_.outputs; first += outputs_) {
      ops_.MatMul({.x = x_,
                   .weight = {.data = walk_.Next(bytes).data(),
                              .dtype = kind_.weights,
                              .first_output = first,
                              .outputs = std::min(outputs_, size_.outputs - first),
                              .inputs = size_.inputs},
                   .out = out_,
                   .same_x = first > 0});
    }
    return 2.0 * static_cast<double>(x_.rows * size_.outputs * size_.inputs);
  }

 private:
  Ops& ops_;
  const MatmulKind kind_;
  const MatrixSize size_;
  const int64_t outputs_;  // of a full shard
  const MatrixView x_;
  const MatrixView out_;
  Walk walk_;
};

// Full shards of one type. Of groups it tells what keys and values that are stored so would cost:
// weights are multiplied as they are.
class UnpackProbe {
 public:
  UnpackProbe(const ProbeBench& bench, DType dtype, ComputeType compute)
      : bench_(bench), compute_(compute), walk_(bench.memory) {
    const int64_t panel_bytes = StoredPanelBytes(dtype, kInputs);
    tensor_.dtype = dtype;
    tensor_.inputs = kInputs;
    tensor_.outputs = kShardTargetBytes / panel_bytes * kPanelOutputs;
    tensor_.shards = {
        {.outputs = tensor_.outputs, .bytes = kShardTargetBytes / panel_bytes * panel_bytes}};
  }

  double ExpandShard() {
    const auto bytes = static_cast<size_t>(PanelElements(tensor_.outputs, tensor_.inputs) *
                                           FloatBytes(ExpandedDType(tensor_.dtype, compute_)));
    const auto target = bench_.scratch.subspan(static_cast<size_t>(kUnpackOffset), bytes);
    nightshift::ExpandShard(tensor_, 0, compute_,
                            walk_.Next(static_cast<size_t>(tensor_.shards[0].bytes)), target,
                            bench_.device.workers());
    return static_cast<double>(tensor_.outputs * tensor_.inputs);
  }

 private:
  const ProbeBench bench_;
  const ComputeType compute_;
  Walk walk_;
  TensorEntry tensor_;
};

}  // namespace

void FillProbeMemory(std::span<std::byte> memory, WorkerPool& workers) {
  // 0.0099 as bf16 and f32, 1.03 as f16.
  constexpr uint16_t kPattern = 0x3c23;
  constexpr size_t kPart = size_t{1} << 20;
  workers.ParallelFor(static_cast<int64_t>((memory.size() + kPart - 1) / kPart),
                      [&](int64_t part, int) {
                        const size_t first = static_cast<size_t>(part) * kPart;
                        const size_t end = std::min(first + kPart, memory.size());
                        for (size_t i = first; i + sizeof(kPattern) <= end; i += sizeof(kPattern)) {
                          std::memcpy(memory.data() + i, &kPattern, sizeof(kPattern));
                        }
                      });
}

void AddMatmulProbes(const ProbeBench& bench, ComputeRates& rates,
                     std::vector<Measurement>& measurements) {
  for (const MatmulKind& kind : kMatmulKinds) {
    const bool is_groups = !IsFloat(kind.weights);
    const int64_t most_rows =
        is_groups ? std::min(bench.most_rows, kMostGroupRows) : bench.most_rows;
    for (const MatrixSize& size : kMatrixSizes) {
      if (is_groups && size.inputs != kInputs) {
        continue;
      }
      const size_t index = rates.matmul.size();
      rates.matmul.push_back(
          {.compute = kind.compute, .weights = kind.weights, .inputs = size.inputs, .flops = {}});
      for (int64_t rows = 1; rows <= most_rows; rows *= 2) {
        const auto probe = std::make_shared<MatmulProbe>(bench, kind, size, rows);
        measurements.push_back(
            {.name = absl::StrCat("matmul of ", rows, " rows, ", ComputeTypeName(kind.compute),
                                  " by ", DTypeName(kind.weights), ", ", size.inputs, " inputs"),
             .work = [probe] { return probe->MultiplyMatrix(); },
             .keep =
                 [&rates, index, rows](double rate, double spread) {
                   rates.matmul[index].flops.points.push_back(
                       {static_cast<double>(rows), rate, spread});
                 }});
      }
    }
  }
}

void AddUnpackProbes(const ProbeBench& bench, ComputeRates& rates,
                     std::vector<Measurement>& measurements) {
  for (const ComputeType compute : {ComputeType::kBF16, ComputeType::kF32}) {
    for (int64_t number = 0; number <= UINT8_MAX; ++number) {
      const std::optional<DType> dtype = StoredDType(number);
      if (!dtype || ExpandedDType(*dtype, compute) == *dtype) {
        continue;
      }
      const auto probe = std::make_shared<UnpackProbe>(bench, *dtype, compute);
      measurements.push_back(
          {.name =
               absl::StrCat("expansion of ", DTypeName(*dtype), " for ", ComputeTypeName(compute)),
           .work = [probe] { return probe->ExpandShard(); },
           .keep =
               [&rates, type = *dtype, compute](double rate, double /*spread*/) {
                 rates.unpack.push_back(
                     {.dtype = type, .elements_per_s = rate, .compute = compute});
               }});
    }
  }
}

}  // namespace nightshift
