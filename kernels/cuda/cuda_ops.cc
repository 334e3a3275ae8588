#include "kernels/cuda/cuda_ops.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/device_weight.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/group_matmul.h"
#include "kernels/cuda/head_reduce.h"
#include "kernels/cuda/kv_store.h"
#include "kernels/cuda/row_kernels.h"

namespace nightshift::cuda {
namespace {

// More than the arrays of a call with some thousand rows.
constexpr size_t kStagingBytes = size_t{4} << 20;
constexpr size_t kScratchBytes = size_t{32} << 20;
// Blocks of attention at one time on a multiprocessor, of few queries: registers allow for as many.
constexpr int64_t kBlocksPerMultiprocessor = 4;

absl::Status ErrorOf(const char* step, cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(step, ": ", cudaGetErrorString(error)));
}

void CheckSameShape(MatrixView a, MatrixView b) {
  CHECK_EQ(a.rows, b.rows);
  CHECK_EQ(a.columns, b.columns);
}

void CheckSpans(std::span<const AttentionSpan> spans, int64_t num_rows) {
  for (const AttentionSpan& span : spans) {
    CHECK_LE(span.first_position + span.num_rows,
             static_cast<int64_t>(span.pages.size()) * kPagePositions);
    CHECK_LE(span.first_row + span.num_rows, num_rows);
  }
}

// The rows of all spans, page by page.
std::vector<PageRun> ListRuns(std::span<const AttentionSpan> spans) {
  std::vector<PageRun> runs;
  for (const AttentionSpan& span : spans) {
    for (int64_t done = 0; done < span.num_rows;) {
      const int64_t position = span.first_position + done;
      const int64_t slot = position % kPagePositions;
      const int64_t rows = std::min(kPagePositions - slot, span.num_rows - done);
      runs.push_back({.page = span.pages[static_cast<size_t>(position / kPagePositions)],
                      .first_row = span.first_row + done,
                      .first_slot = static_cast<int32_t>(slot),
                      .num_rows = static_cast<int32_t>(rows)});
      done += rows;
    }
  }
  return runs;
}

// Adjustments of the shard's tokens: earlier shards have used the first `used`.
std::span<const LogitAdjustment> AdjustmentsIn(const HeadRequest& request, size_t used,
                                               int64_t end_token) {
  const std::span<const LogitAdjustment> left = request.adjustments.subspan(used);
  const auto end = std::partition_point(left.begin(), left.end(), [&](const auto& adjustment) {
    return adjustment.token < end_token;
  });
  return left.first(static_cast<size_t>(end - left.begin()));
}

bool IsBetter(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

void TakeResult(const HeadTask& task, std::span<const Candidate> candidates, HeadState& state) {
  state.max_logit = task.max_logit;
  state.sum_exp = task.sum_exp;
  state.tempered_sum_exp = task.tempered_sum_exp;
  state.best_noisy = task.best_noisy;
  state.noisy_winner = task.noisy_winner;
  state.noisy_winner_logit = task.noisy_winner_logit;
  const auto found = candidates.first(static_cast<size_t>(task.num_candidates));
  state.candidates.insert(state.candidates.end(), found.begin(), found.end());
  std::sort(state.candidates.begin(), state.candidates.end(), IsBetter);
  const auto wanted = static_cast<size_t>(task.wanted);
  if (state.candidates.size() > wanted) state.candidates.resize(wanted);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(ComputeType compute_type,
                                                         cudaStream_t stream,
                                                         FloatMatMul& float_matmul) {
  if (compute_type == ComputeType::kInt8) {
    return absl::FailedPreconditionError(
        "compute type int8 on a CUDA device: it multiplies in f32 and bf16 only; choose bf16, or "
        "the CPU");
  }
  auto ops = std::unique_ptr<CudaOps>(new CudaOps(compute_type, stream, float_matmul));
  ASSIGN_OR_RETURN(ops->staging_, Staging::Create(stream, kStagingBytes));
  void* scratch = nullptr;
  if (const cudaError_t error = cudaMalloc(&scratch, kScratchBytes); error != cudaSuccess) {
    return absl::ResourceExhaustedError(absl::StrCat("take ", kScratchBytes,
                                                     " bytes of device memory as scratch of ops: ",
                                                     cudaGetErrorString(error)));
  }
  ops->scratch_ = static_cast<std::byte*>(scratch);
  int device = 0;
  cudaDeviceProp properties = {};
  RETURN_IF_ERROR(ErrorOf("ask for the device", cudaGetDevice(&device)));
  RETURN_IF_ERROR(
      ErrorOf("ask for the device's properties", cudaGetDeviceProperties(&properties, device)));
  ops->wanted_blocks_ = kBlocksPerMultiprocessor * properties.multiProcessorCount;
  ops->has_tensor_cores_ = properties.major >= 8;
  return ops;
}

CudaOps::~CudaOps() {
  cudaStreamSynchronize(launcher_.stream());
  cudaFree(scratch_);
}

absl::Status CudaOps::status() const {
  const absl::Status launched = ErrorOf(launcher_.failed_step(), launcher_.error());
  return launched.ok() ? float_matmul_.status() : launched;
}

bool CudaOps::Begin(const char* op, size_t bytes) {
  if (launcher_.error() == cudaSuccess) launcher_.Note(op, staging_->Begin(bytes));
  return launcher_.error() == cudaSuccess;
}

template <typename T>
T* CudaOps::Stage(const char* op, std::span<const T> values) {
  cudaError_t error = cudaSuccess;
  T* staged = staging_->Upload(values, error);
  launcher_.Note(op, error);
  return staged;
}

void CudaOps::Touch(const WeightShardView& shard) {
  launcher_.Touch(shard.data, shard.panels() * PanelBytes(shard.dtype, shard.inputs), false);
}

void CudaOps::EmbeddingGather(const WeightView& table, std::span<const int32_t> ids,
                              bool accumulate, MatrixView out) {
  CHECK_EQ(out.rows, static_cast<int64_t>(ids.size()));
  CHECK_EQ(out.columns, table.inputs);
  if (!Begin("EmbeddingGather", Staging::RoomFor<int32_t>(ids.size()))) return;
  for (const WeightShardView& shard : table.shards) {
    Touch(shard);
  }
  launcher_.Touch(out, true);
  const int32_t* staged = Stage("EmbeddingGather", ids);
  for (const WeightShardView& shard : table.shards) {
    LaunchGather(launcher_, {.weight = DeviceWeightOf(shard),
                             .ids = staged,
                             .rounds = compute_type_ != ComputeType::kF32,
                             .accumulate = accumulate,
                             .out = out});
  }
}

void CudaOps::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  CheckSameShape(x, out);
  if (!Begin("RmsNorm", 0)) return;
  launcher_.Touch(x, false);
  launcher_.Touch(out, true);
  LaunchRmsNorm(launcher_, {.x = x, .out = out, .weight = weight, .epsilon = epsilon});
}

void CudaOps::LayerNorm(MatrixView x, const float* weight, const float* bias, float epsilon,
                        MatrixView out) {
  CheckSameShape(x, out);
  if (!Begin("LayerNorm", 0)) return;
  launcher_.Touch(x, false);
  launcher_.Touch(out, true);
  LaunchLayerNorm(launcher_,
                  {.x = x, .out = out, .weight = weight, .bias = bias, .epsilon = epsilon});
}

void CudaOps::HeadRmsNorm(MatrixView x, int64_t head_width, const float* weight, float epsilon) {
  CHECK_EQ(x.columns % head_width, 0);
  if (!Begin("HeadRmsNorm", 0)) return;
  launcher_.Touch(x, true);
  LaunchRmsNorm(launcher_, {.x = x,
                            .out = x,
                            .heads = x.columns / head_width,
                            .weight = weight,
                            .epsilon = epsilon});
}

void CudaOps::MatMul(const MatMulArgs& args) {
  const WeightShardView& weight = args.weight;
  CHECK(IsReadByOps(weight.dtype));
  CHECK_EQ(args.x.columns, weight.inputs);
  CHECK_EQ(args.x.rows, args.out.rows);
  CHECK_EQ(weight.first_output % kPanelOutputs, 0);
  CHECK_LE(weight.first_output + weight.outputs, args.out.columns);
  if (!Begin("MatMul", 0)) return;
  Touch(weight);
  launcher_.Touch(args.x, false);
  launcher_.Touch(args.out.Columns(weight.first_output, weight.outputs), true);
  if (IsFloat(weight.dtype)) {
    float_matmul_.Multiply(compute_type_, args, launcher_);
    return;
  }
  if (!args.same_x) float_matmul_.ForgetInputs();
  LaunchGroupMatMul(launcher_, {.x = args.x,
                                .weight = DeviceWeightOf(weight),
                                .bias = args.bias,
                                .out = args.out,
                                .accumulate = args.accumulate,
                                .rounds = compute_type_ != ComputeType::kF32,
                                .has_tensor_cores = has_tensor_cores_});
}

void CudaOps::Rope(const RopeArgs& args) {
  CHECK_EQ(args.x.rows, static_cast<int64_t>(args.positions.size()));
  CHECK_EQ(args.x.columns, args.heads * args.head_width);
  const auto pairs = static_cast<int64_t>(args.inverse_frequencies.size());
  CHECK_LE(2 * pairs, args.head_width);
  if (!Begin("Rope", Staging::RoomFor<float>(args.inverse_frequencies.size()) +
                         Staging::RoomFor<int32_t>(args.positions.size()))) {
    return;
  }
  launcher_.Touch(args.x, true);
  LaunchRope(launcher_, {.x = args.x,
                         .heads = args.heads,
                         .head_width = args.head_width,
                         .inverse_frequencies = Stage("Rope", args.inverse_frequencies),
                         .pairs = pairs,
                         .magnitude = args.magnitude,
                         .positions = Stage("Rope", args.positions)});
}

void CudaOps::StoreKv(const StoreKvArgs& args) {
  const KvPageLayout& layout = args.layout;
  CHECK(IsKvType(layout.dtype, compute_type_));
  CHECK_EQ(args.k.columns, layout.kv_heads * layout.head_width);
  CHECK_LE(layout.head_width, kMaxHeadWidth);
  CheckSameShape(args.k, args.v);
  CheckSpans(args.spans, args.k.rows);
  const std::vector<PageRun> runs = ListRuns(args.spans);
  if (!Begin("StoreKv", Staging::RoomFor<PageRun>(runs.size()))) return;
  launcher_.Touch(args.k, false);
  launcher_.Touch(args.v, false);
  for (const PageRun& run : runs) {
    launcher_.Touch(run.page, layout.page_bytes(), true);
  }
  LaunchStoreKv(launcher_, {.k = args.k,
                            .v = args.v,
                            .layout = DevicePageLayoutOf(layout),
                            .runs = Stage("StoreKv", std::span(runs)),
                            .num_runs = static_cast<int64_t>(runs.size())});
}

void CudaOps::Attention(const AttentionArgs& args) {
  const KvPageLayout& layout = args.layout;
  CHECK(IsKvType(layout.dtype, compute_type_));
  CHECK_GE(layout.kv_heads, 1);
  CHECK_LE(layout.head_width, kMaxHeadWidth);
  CHECK_EQ(args.num_heads % layout.kv_heads, 0);
  CHECK_GE(args.window, 0);
  CHECK_EQ(args.sparse_fraction, 1.0);
  CHECK_EQ(args.q.columns, args.num_heads * layout.head_width);
  CheckSameShape(args.q, args.out);
  CheckSpans(args.spans, args.q.rows);
  std::vector<std::byte*> pages;
  std::vector<int32_t> first_pages;
  for (const AttentionSpan& span : args.spans) {
    first_pages.push_back(static_cast<int32_t>(pages.size()));
    pages.insert(pages.end(), span.pages.begin(), span.pages.end());
  }
  const int64_t partial_bytes = PartialFloats(layout.head_width) * 4;
  const std::vector<AttentionPlan> plans =
      PlanAttention(args, first_pages,
                    {.wanted_blocks = wanted_blocks_,
                     .max_partials = static_cast<int64_t>(kScratchBytes) / partial_bytes});
  size_t bytes = Staging::RoomFor<std::byte*>(pages.size());
  for (const AttentionPlan& plan : plans) {
    bytes += Staging::RoomFor<QueryBlock>(plan.blocks.size());
  }
  if (!Begin("Attention", bytes)) return;
  launcher_.Touch(args.q, false);
  launcher_.Touch(args.out, true);
  for (const std::byte* page : pages) {
    if (page != nullptr) launcher_.Touch(page, layout.page_bytes(), false);
  }
  DeviceAttentionArgs device = {.q = args.q,
                                .out = args.out,
                                .layout = DevicePageLayoutOf(layout),
                                .num_heads = args.num_heads,
                                .scale = args.scale,
                                .softcap = args.softcap,
                                .window = args.window,
                                .pages = Stage("Attention", std::span<std::byte* const>(pages)),
                                .partials = reinterpret_cast<float*>(scratch_)};
  for (const AttentionPlan& plan : plans) {
    device.blocks = Stage("Attention", std::span(plan.blocks));
    LaunchAttention(launcher_, plan, device);
  }
}

void CudaOps::Activate(Activation activation, MatrixView x) {
  if (!Begin("Activate", 0)) return;
  launcher_.Touch(x, true);
  LaunchActivate(launcher_, activation, x, {});
}

void CudaOps::GatedActivate(Activation activation, MatrixView gate, MatrixView up) {
  CheckSameShape(gate, up);
  if (!Begin("GatedActivate", 0)) return;
  launcher_.Touch(gate, true);
  launcher_.Touch(up, false);
  LaunchActivate(launcher_, activation, gate, up);
}

void CudaOps::Scale(float factor, MatrixView x) {
  if (!Begin("Scale", 0)) return;
  launcher_.Touch(x, true);
  LaunchScale(launcher_, factor, x);
}

void CudaOps::AddScaled(MatrixView x, float factor, MatrixView out) {
  CheckSameShape(x, out);
  if (!Begin("AddScaled", 0)) return;
  launcher_.Touch(x, false);
  launcher_.Touch(out, true);
  LaunchAddScaled(launcher_, x, factor, out);
}

void CudaOps::SoftCap(float cap, MatrixView x) {
  CHECK(cap > 0.0F);
  if (!Begin("SoftCap", 0)) return;
  launcher_.Touch(x, true);
  LaunchSoftCap(launcher_, cap, x);
}

void CudaOps::AddScaledRows(MatrixView x, std::span<const int64_t> rows,
                            std::span<const float> factors, MatrixView out) {
  CHECK_EQ(x.rows, static_cast<int64_t>(rows.size()));
  CHECK_EQ(rows.size(), factors.size());
  CHECK_EQ(x.columns, out.columns);
  for (const int64_t row : rows) {
    CHECK(row >= 0 && row < out.rows);
  }
  if (!Begin("AddScaledRows", Staging::RoomFor<int64_t>(rows.size()) +
                                  Staging::RoomFor<float>(factors.size()))) {
    return;
  }
  launcher_.Touch(x, false);
  launcher_.Touch(out, true);
  const int64_t* staged = Stage("AddScaledRows", rows);
  LaunchAddScaledRows(launcher_, x, staged, Stage("AddScaledRows", factors), out);
}

void CudaOps::GatherRows(MatrixView x, std::span<const int64_t> rows, MatrixView out) {
  CHECK_EQ(out.rows, static_cast<int64_t>(rows.size()));
  CHECK_EQ(out.columns, x.columns);
  for (const int64_t row : rows) {
    CHECK(row >= 0 && row < x.rows);
  }
  if (!Begin("GatherRows", Staging::RoomFor<int64_t>(rows.size()))) return;
  launcher_.Touch(x, false);
  launcher_.Touch(out, true);
  LaunchGatherRows(launcher_, x, Stage("GatherRows", rows), out);
}

void CudaOps::HeadReduce(const HeadReduceArgs& args) {
  CHECK_EQ(args.requests.size(), args.states.size());
  for (const HeadRequest& request : args.requests) {
    CHECK_GE(request.num_candidates, 1);
    CHECK(request.row >= 0 && request.row < args.logits.rows);
  }
  for (size_t first = 0; first < args.requests.size();) {
    const size_t last = AdjustedRequests(args, first);
    ReduceRequests(args, first, last);
    first = last;
  }
}

size_t CudaOps::AdjustedRequests(const HeadReduceArgs& args, size_t first) const {
  const int64_t room = static_cast<int64_t>(kScratchBytes) / 4 / args.logits.columns;
  CHECK_GE(room, 1);
  int64_t adjusted = 0;
  size_t last = first;
  for (; last < args.requests.size(); ++last) {
    const size_t used = args.states[last].unadjusted.size();
    if (used == args.requests[last].adjustments.size()) continue;
    if (++adjusted > room) break;
  }
  return last;
}

void CudaOps::ReduceRequests(const HeadReduceArgs& args, size_t first, size_t last) {
  const int64_t columns = args.logits.columns;
  const int64_t end_token = args.first_token + columns;
  std::vector<HeadTask> tasks;
  std::vector<AdjustTask> adjust_tasks;
  std::vector<LogitAdjustment> adjustments;
  std::vector<size_t> first_candidates = {0};
  auto* adjusted = reinterpret_cast<float*>(scratch_);
  for (size_t i = first; i < last; ++i) {
    const HeadRequest& request = args.requests[i];
    const HeadState& state = args.states[i];
    const auto wanted = static_cast<size_t>(request.num_candidates);
    const float* logits = args.logits.row(request.row);
    const auto own = AdjustmentsIn(request, state.unadjusted.size(), end_token);
    if (!own.empty()) {
      adjust_tasks.push_back({.logits = logits,
                              .adjusted = adjusted,
                              .num_adjustments = static_cast<int32_t>(own.size())});
      adjustments.insert(adjustments.end(), own.begin(), own.end());
      logits = adjusted;
      adjusted += columns;
    }
    tasks.push_back({.logits = logits,
                     .noise_key = request.noise_key,
                     .temperature = request.temperature,
                     .max_logit = state.max_logit,
                     .sum_exp = state.sum_exp,
                     .tempered_sum_exp = state.tempered_sum_exp,
                     .best_noisy = state.best_noisy,
                     .noisy_winner = state.noisy_winner,
                     .noisy_winner_logit = state.noisy_winner_logit,
                     .threshold = state.candidates.size() < wanted
                                      ? -std::numeric_limits<float>::infinity()
                                      : state.candidates.back().logit,
                     .wanted = request.num_candidates});
    first_candidates.push_back(first_candidates.back() +
                               std::min(wanted, static_cast<size_t>(columns)));
  }
  const size_t num_candidates = first_candidates.back();
  if (!Begin("HeadReduce", Staging::RoomFor<HeadTask>(tasks.size()) +
                               Staging::RoomFor<AdjustTask>(adjust_tasks.size()) +
                               Staging::RoomFor<LogitAdjustment>(adjustments.size()) +
                               Staging::RoomFor<float>(adjustments.size()) +
                               Staging::RoomFor<Candidate>(num_candidates))) {
    return;
  }
  launcher_.Touch(args.logits, false);
  const auto candidates = staging_->Take<Candidate>(num_candidates);
  const auto unadjusted = staging_->Take<float>(adjustments.size());
  const LogitAdjustment* staged = Stage("HeadReduce", std::span<const LogitAdjustment>(adjustments));
  float* next_unadjusted = unadjusted.device;
  for (AdjustTask& task : adjust_tasks) {
    task.adjustments = staged;
    task.unadjusted = next_unadjusted;
    staged += task.num_adjustments;
    next_unadjusted += task.num_adjustments;
  }
  for (size_t i = 0; i < tasks.size(); ++i) {
    tasks[i].candidates = candidates.device + first_candidates[i];
  }
  LaunchAdjust(launcher_, Stage("HeadReduce", std::span<const AdjustTask>(adjust_tasks)),
               static_cast<int64_t>(adjust_tasks.size()), columns, args.first_token);
  const auto results = staging_->Take<HeadTask>(tasks.size());
  std::copy(tasks.begin(), tasks.end(), results.host.begin());
  launcher_.Note("HeadReduce",
                 cudaMemcpyAsync(results.device, results.host.data(), results.host.size_bytes(),
                                 cudaMemcpyHostToDevice, launcher_.stream()));
  LaunchHeadReduce(launcher_, results.device, static_cast<int64_t>(tasks.size()), columns,
                   args.first_token);
  launcher_.Note("HeadReduce", staging_->Download(candidates));
  launcher_.Note("HeadReduce", staging_->Download(unadjusted));
  launcher_.Note("HeadReduce", staging_->Download(results));
  if (launcher_.error() != cudaSuccess) return;
  auto next = unadjusted.host.begin();
  for (size_t i = 0; i < tasks.size(); ++i) {
    HeadState& state = args.states[first + i];
    const auto own = static_cast<std::ptrdiff_t>(
        AdjustmentsIn(args.requests[first + i], state.unadjusted.size(), end_token).size());
    state.unadjusted.insert(state.unadjusted.end(), next, next + own);
    next += own;
    TakeResult(results.host[i], candidates.host.subspan(first_candidates[i]), state);
  }
}

void CudaOps::ReadRows(MatrixView x, std::span<float> to) {
  CHECK_EQ(static_cast<int64_t>(to.size()), x.rows * x.columns);
  for (int64_t row = 0; row < x.rows; ++row) {
    const auto columns = static_cast<size_t>(x.columns);
    if (!Begin("ReadRows", Staging::RoomFor<float>(columns))) return;
    auto staged = staging_->Take<float>(columns);
    staged.device = x.row(row);
    launcher_.Note("ReadRows", staging_->Download(staged));
    std::copy(staged.host.begin(), staged.host.end(), to.begin() + row * x.columns);
  }
}

}  // namespace nightshift::cuda
