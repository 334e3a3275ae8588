#include "tests/support/emulated_cuda_ops.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "kernels/base/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/float_matmul.h"
#include "kernels/group_format.h"
#include "kernels/panel_layout.h"
#include "tests/support/cuda_emulator/cuda_runtime.h"
#include "tests/support/cuda_emulator/machine.h"

namespace nightshift {
namespace {

// For what one op's arguments refer to.
constexpr size_t kMemoryBytes = size_t{64} << 20;

void CheckOk(cudaError_t error) {
  CHECK_EQ(std::string(cudaGetErrorName(error)), "cudaSuccess");
}

int64_t FloatsOf(const MatrixView& view) {
  return view.rows == 0 ? 0 : (view.rows - 1) * view.stride + view.columns;
}

// CudaOps of one compute type on a stream of its own, device memory, and as much of the host's.
class Gpu {
 public:
  explicit Gpu(ComputeType compute_type) {
    CheckOk(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    void* memory = nullptr;
    CheckOk(cudaMalloc(&memory, kMemoryBytes));
    device_ = static_cast<std::byte*>(memory);
    CheckOk(cudaHostRegister(image_.data(), image_.size(), cudaHostRegisterDefault));
    auto matmul = cuda::FloatMatMul::Create(/*multiplies_bf16=*/true);
    CHECK_EQ(matmul.status().ToString(), "OK");
    matmul_ = std::move(matmul).value();
    auto ops = cuda::CudaOps::Create(compute_type, stream_, *matmul_);
    CHECK_EQ(ops.status().ToString(), "OK");
    ops_ = std::move(ops).value();
  }
  cuda::CudaOps& ops() { return *ops_; }
  std::byte* device() const { return device_; }
  std::byte* image() { return image_.data(); }
  void Upload(size_t bytes) {
    CheckOk(cudaMemcpyAsync(device_, image_.data(), bytes, cudaMemcpyHostToDevice, stream_));
  }
  void Download(size_t bytes) {
    CheckOk(cudaMemcpyAsync(image_.data(), device_, bytes, cudaMemcpyDeviceToHost, stream_));
  }
  void Wait() {
    CHECK_EQ(ops_->status().ToString(), "OK");
    CheckOk(cudaStreamSynchronize(stream_));
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::byte* device_ = nullptr;
  std::vector<std::byte> image_ = std::vector<std::byte>(kMemoryBytes);
  std::unique_ptr<cuda::FloatMatMul> matmul_;
  std::unique_ptr<cuda::CudaOps> ops_;
};

// What one op's arguments refer to, on the device: first the arguments are turned into those of
// copies, then Run.
class Mirror {
 public:
  explicit Mirror(Gpu& gpu) : gpu_(gpu) {}

  // Uploads all, calls the op, waits, and brings back what it may have written.
  template <typename Op>
  void Run(const Op& op) {
    gpu_.Upload(used_);
    op();
    if (!written_.empty()) gpu_.Download(used_);
    gpu_.Wait();
    for (const auto& [host, place] : written_) {
      std::memcpy(host, gpu_.image() + place.offset, place.bytes);
    }
  }

  // The copy of `bytes` of the host; of an address that is known already, the one that is there.
  std::byte* Copy(const std::byte* host, int64_t size) {
    const auto bytes = static_cast<size_t>(size);
    const auto [place, is_new] = copies_.try_emplace(host);
    if (is_new) {
      place->second = Add(bytes);
      if (bytes > 0) std::memcpy(gpu_.image() + place->second.offset, host, bytes);
    }
    CHECK_EQ(place->second.bytes, bytes);
    return gpu_.device() + place->second.offset;
  }
  std::byte* CopyBack(std::byte* host, int64_t size) {
    std::byte* copy = Copy(host, size);
    if (size > 0) written_[host] = copies_.at(host);
    return copy;
  }
  MatrixView In(MatrixView view) {
    view.data = reinterpret_cast<float*>(
        Copy(reinterpret_cast<std::byte*>(view.data), FloatsOf(view) * 4));
    return view;
  }
  MatrixView Out(MatrixView view) {
    view.data = reinterpret_cast<float*>(
        CopyBack(reinterpret_cast<std::byte*>(view.data), FloatsOf(view) * 4));
    return view;
  }
  const float* In(const float* values, int64_t count) {
    if (values == nullptr) return nullptr;
    return reinterpret_cast<const float*>(
        Copy(reinterpret_cast<const std::byte*>(values), count * 4));
  }
  // Of floats, which lie in rows on a CUDA device, after Device::UnpackShard.
  WeightShardView In(WeightShardView shard) {
    const int64_t bytes = shard.panels() * PanelBytes(shard.dtype, shard.inputs);
    if (!IsFloat(shard.dtype)) {
      shard.data = Copy(shard.data, bytes);
      return shard;
    }
    const Place place = Add(static_cast<size_t>(bytes));
    const int64_t element_bytes = FloatBytes(shard.dtype);
    const int64_t inputs = shard.padded_inputs();
    for (int64_t n = 0; n < shard.panels() * kPanelOutputs; ++n) {
      for (int64_t k = 0; k < inputs; ++k) {
        std::memcpy(gpu_.image() + place.offset + (n * inputs + k) * element_bytes,
                    shard.data + PanelOffset(n, k, inputs) * element_bytes,
                    static_cast<size_t>(element_bytes));
      }
    }
    shard.data = gpu_.device() + place.offset;
    return shard;
  }
  // Spans with the addresses of the pages' copies, which come back if `writes`.
  std::vector<AttentionSpan> In(std::span<const AttentionSpan> spans, const KvPageLayout& layout,
                                bool writes) {
    const int64_t bytes = layout.page_bytes();
    std::vector<AttentionSpan> copies(spans.begin(), spans.end());
    for (AttentionSpan& span : copies) {
      std::vector<std::byte*>& pages = pages_.emplace_back();
      for (std::byte* page : span.pages) {
        pages.push_back(page == nullptr ? nullptr
                        : writes        ? CopyBack(page, bytes)
                                        : Copy(page, bytes));
      }
    }
    for (size_t i = 0; i < copies.size(); ++i) {
      copies[i].pages = pages_[i];
    }
    return copies;
  }

 private:
  struct Place {
    int64_t offset = 0;
    size_t bytes = 0;
  };

  Place Add(size_t bytes) {
    constexpr size_t kAlignment = 4096;  // of pages and shards
    const Place place = {static_cast<int64_t>(used_), bytes};
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    CHECK_LE(used_, kMemoryBytes);
    return place;
  }

  Gpu& gpu_;
  size_t used_ = 0;
  std::map<const std::byte*, Place> copies_;
  std::map<std::byte*, Place> written_;
  std::vector<std::vector<std::byte*>> pages_;
};

class HostViewOps : public Ops {
 public:
  explicit HostViewOps(ComputeType compute_type)
      : gpu_(compute_type), ops_(gpu_.ops()) {}

  void EmbeddingGather(const WeightView& table, std::span<const int32_t> ids, bool accumulate,
                       MatrixView out) override {
    Mirror mirror(gpu_);
    std::vector<WeightShardView> shards;
    for (const WeightShardView& shard : table.shards) {
      shards.push_back(mirror.In(shard));
    }
    const WeightView copy = {table.outputs, table.inputs, shards};
    out = mirror.Out(out);
    mirror.Run([&] { ops_.EmbeddingGather(copy, ids, accumulate, out); });
  }
  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override {
    Mirror mirror(gpu_);
    out = mirror.Out(out);
    x = mirror.In(x);
    weight = mirror.In(weight, x.columns);
    mirror.Run([&] { ops_.RmsNorm(x, weight, epsilon, out); });
  }
  void LayerNorm(MatrixView x, const float* weight, const float* bias, float epsilon,
                 MatrixView out) override {
    Mirror mirror(gpu_);
    out = mirror.Out(out);
    x = mirror.In(x);
    weight = mirror.In(weight, x.columns);
    bias = mirror.In(bias, x.columns);
    mirror.Run([&] { ops_.LayerNorm(x, weight, bias, epsilon, out); });
  }
  void HeadRmsNorm(MatrixView x, int64_t head_width, const float* weight, float epsilon) override {
    Mirror mirror(gpu_);
    x = mirror.Out(x);
    weight = mirror.In(weight, head_width);
    mirror.Run([&] { ops_.HeadRmsNorm(x, head_width, weight, epsilon); });
  }
  void MatMul(const MatMulArgs& args) override {
    Mirror mirror(gpu_);
    // Copies are new, so the inputs never are the same.
    const MatMulArgs copy = {.x = mirror.In(args.x),
                             .weight = mirror.In(args.weight),
                             .bias = mirror.In(args.bias, args.out.columns),
                             .out = mirror.Out(args.out),
                             .accumulate = args.accumulate};
    mirror.Run([&] { ops_.MatMul(copy); });
  }
  void Rope(const RopeArgs& args) override {
    Mirror mirror(gpu_);
    RopeArgs copy = args;
    copy.x = mirror.Out(args.x);
    mirror.Run([&] { ops_.Rope(copy); });
  }
  void StoreKv(const StoreKvArgs& args) override {
    Mirror mirror(gpu_);
    const std::vector<AttentionSpan> spans = mirror.In(args.spans, args.layout, true);
    const StoreKvArgs copy = {mirror.In(args.k), mirror.In(args.v), args.layout, spans};
    mirror.Run([&] { ops_.StoreKv(copy); });
  }
  void Attention(const AttentionArgs& args) override {
    Mirror mirror(gpu_);
    const std::vector<AttentionSpan> spans = mirror.In(args.spans, args.layout, false);
    AttentionArgs copy = args;
    copy.q = mirror.In(args.q);
    copy.out = mirror.Out(args.out);
    copy.spans = spans;
    mirror.Run([&] { ops_.Attention(copy); });
  }
  void Activate(Activation activation, MatrixView x) override {
    Mirror mirror(gpu_);
    x = mirror.Out(x);
    mirror.Run([&] { ops_.Activate(activation, x); });
  }
  void GatedActivate(Activation activation, MatrixView gate, MatrixView up) override {
    Mirror mirror(gpu_);
    gate = mirror.Out(gate);
    up = mirror.In(up);
    mirror.Run([&] { ops_.GatedActivate(activation, gate, up); });
  }
  void Scale(float factor, MatrixView x) override {
    Mirror mirror(gpu_);
    x = mirror.Out(x);
    mirror.Run([&] { ops_.Scale(factor, x); });
  }
  void AddScaled(MatrixView x, float factor, MatrixView out) override {
    Mirror mirror(gpu_);
    x = mirror.In(x);
    out = mirror.Out(out);
    mirror.Run([&] { ops_.AddScaled(x, factor, out); });
  }
  void SoftCap(float cap, MatrixView x) override {
    Mirror mirror(gpu_);
    x = mirror.Out(x);
    mirror.Run([&] { ops_.SoftCap(cap, x); });
  }
  void AddScaledRows(MatrixView x, std::span<const int64_t> rows, std::span<const float> factors,
                     MatrixView out) override {
    Mirror mirror(gpu_);
    x = mirror.In(x);
    out = mirror.Out(out);
    mirror.Run([&] { ops_.AddScaledRows(x, rows, factors, out); });
  }
  void GatherRows(MatrixView x, std::span<const int64_t> rows, MatrixView out) override {
    Mirror mirror(gpu_);
    x = mirror.In(x);
    out = mirror.Out(out);
    mirror.Run([&] { ops_.GatherRows(x, rows, out); });
  }
  void HeadReduce(const HeadReduceArgs& args) override {
    Mirror mirror(gpu_);
    const HeadReduceArgs copy = {mirror.In(args.logits), args.first_token, args.requests,
                                 args.states};
    mirror.Run([&] { ops_.HeadReduce(copy); });
  }
  void ReadRows(MatrixView x, std::span<float> to) override {
    Mirror mirror(gpu_);
    x = mirror.In(x);
    mirror.Run([&] { ops_.ReadRows(x, to); });
  }

 private:
  Gpu gpu_;
  Ops& ops_;
};

Ops& SharedOps(ComputeType compute_type) {
  static const bool has_machine = [] {
    cuda_emulator::SetMachine({.device_bytes = size_t{1} << 30});
    return true;
  }();
  CHECK(has_machine);
  CHECK(compute_type != ComputeType::kInt8);
  if (compute_type == ComputeType::kF32) {
    static HostViewOps f32(ComputeType::kF32);
    return f32;
  }
  static HostViewOps bf16(ComputeType::kBF16);
  return bf16;
}

class EmulatedCudaOps : public Device {
 public:
  Ops& ops(ComputeType compute_type) override { return SharedOps(compute_type); }
  Ops& host_ops(ComputeType compute_type) override { return SharedOps(compute_type); }
  bool unified_memory() const override { return true; }
  absl::Status Upload(std::span<const std::byte>, std::span<std::byte>) override {
    return absl::UnimplementedError("upload to views of host memory");
  }
  absl::Status Download(std::span<const std::byte>, std::span<std::byte>) override {
    return absl::UnimplementedError("download from views of host memory");
  }
  WorkerPool& workers() override { return pool_; }
  std::string description() const override { return "emulated cuda"; }

 private:
  WorkerPool pool_{1};
};

}  // namespace

std::unique_ptr<Device> CreateEmulatedCudaOps() {
  return std::make_unique<EmulatedCudaOps>();
}

}  // namespace nightshift
