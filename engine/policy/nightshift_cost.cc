#include "engine/policy/nightshift_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/memory/kv_layers.h"
#include "engine/memory_plan.h"
#include "engine/model/forward.h"
#include "engine/model/scratch.h"
#include "engine/policy/engine_policy.h"
#include "engine/policy/model_work.h"
#include "engine/policy/request_flow.h"
#include "engine/policy/sweep_costs.h"
#include "engine/policy/work_rates.h"
#include "kernels/base/status_macros.h"
#include "kernels/kv_page.h"

namespace nightshift {
namespace {

constexpr size_t kMostClasses = 32;
constexpr int64_t kMostStandIns = 64;
constexpr int64_t kBlocks = 4;
// Sweeps that a request takes when its job is run through; of longer requests several tokens are
// one.
constexpr double kMostSweepsEach = 96.0;
constexpr size_t kMostKinds = 6;
constexpr int64_t kMostBlock = int64_t{1} << 24;
// What the pools round up, as memory_plan.cc counts it.
constexpr double kRounding = 12 * 4096;
// Shards that are read aside together (weight_stream.cc).
constexpr double kAsideSlots = 4.0;

double Count(int64_t value) {
  return static_cast<double>(value);
}

LinearForm Constant(double value) {
  LinearForm form;
  form.constant = value;
  return form;
}

// `value` for each share of what is beside the device, or on disk only.
LinearForm OffDevice(ShareId host, ShareId disk, double value) {
  LinearForm form;
  form[host] = value;
  form[disk] = value;
  return form;
}

LinearForm On(ShareId share, double value) {
  LinearForm form;
  form[share] = value;
  return form;
}

// Sweeps of one kind, or one of them: the sums over its spans, of stand-ins and of what they stand
// for.
struct SweepKind {
  double times = 0.0;
  double rows = 0.0;
  double sampled = 0.0;
  LoadByKind prompts;
  LoadByKind decoding;
  double compute_seconds = 0.0;  // about

  void AddPart(const SweepKind& other, double part) {
    rows += part * other.rows;
    sampled += part * other.sampled;
    for (size_t kind = 0; kind < 2; ++kind) {
      prompts[kind].Add(other.prompts[kind], part);
      decoding[kind].Add(other.decoding[kind], part);
    }
  }
};

struct JobShape {
  std::vector<SweepKind> kinds;
  double committed_pages = 0.0;  // at most, of all requests of the block
};

// Runs a job of stand-ins through the schedule.
class JobRunner {
 public:
  JobRunner(const SweepCosts& costs, const KvLayers& layers, const WorkloadProfile& workload,
            const BlockSizes& sizes)
      : costs_(costs), layers_(layers), workload_(workload), sizes_(sizes) {
    const int64_t block = std::min(sizes.max_block_requests, workload.requests());
    stand_ins_ = std::min(block, kMostStandIns);
    stands_for_ = Count(block) / Count(stand_ins_);
    const double sweeps_each =
        std::ceil(workload.mean_prompt_tokens() / Count(sizes.prompt_chunk_tokens)) +
        workload.mean_output_tokens();
    tokens_each_ = static_cast<int64_t>(std::max(1.0, std::ceil(sweeps_each / kMostSweepsEach)));
    needs_ = layers.Needs(std::min(sizes.prompt_chunk_tokens, sizes.max_sweep_tokens));
  }

  absl::StatusOr<JobShape> Run() {
    const double all = Count(workload_.requests()) / stands_for_;
    const int64_t run = std::min(static_cast<int64_t>(std::ceil(all)), kBlocks * stand_ins_);
    ASSIGN_OR_RETURN(RequestFlow flow, RequestFlow::Create(Scaled(), OptionsOf(run), layers_));
    std::vector<SweepKind> sweeps;
    std::vector<int64_t> finished_before;
    JobShape shape;
    while (std::optional<SweepSchedule> schedule = flow.Begin()) {
      finished_before.push_back(flow.num_finished());
      sweeps.push_back(SumOf(*schedule, flow.held()));
      shape.committed_pages = std::max(shape.committed_pages, CommittedPages(flow.held()));
      flow.End(*schedule);
    }
    // As the simulation goes on from what it has run through.
    const int64_t first = run / 4;
    const int64_t last = run - run / 4;
    for (size_t i = 0; i < sweeps.size(); ++i) {
      const bool is_steady = finished_before[i] >= first && finished_before[i] < last;
      const double more = all - Count(run);
      sweeps[i].times = Count(tokens_each_) * (first < 1   ? all / Count(run)
                                               : is_steady ? 1.0 + more / Count(last - first)
                                                           : 1.0);
    }
    shape.kinds = Sorted(sweeps);
    return shape;
  }

 private:
  // Tokens of a request in the flow stand for `tokens_each_` each.
  WorkloadProfile Scaled() const {
    WorkloadProfile scaled = workload_;
    scaled.shared_prefix_tokens = workload_.shared_prefix_tokens / tokens_each_;
    for (WorkloadClass& one : scaled.classes) {
      one.prompt_tokens = std::max<int64_t>(1, one.prompt_tokens / tokens_each_);
      one.output_tokens = (one.output_tokens + tokens_each_ - 1) / tokens_each_;
    }
    return scaled;
  }

  FlowOptions OptionsOf(int64_t requests) const {
    const int64_t sweep_tokens =
        std::max(stand_ins_, static_cast<int64_t>(Count(sizes_.max_sweep_tokens) / stands_for_));
    return {.max_block_requests = stand_ins_,
            .limits = {.max_sweep_tokens = sweep_tokens,
                       .prompt_chunk_tokens = sizes_.prompt_chunk_tokens,
                       .max_batch_tokens = sweep_tokens},
            .schedule = ScheduleKind::kRolling,
            .pages = {.device = INT64_MAX / 4},
            .requests = requests};
  }

  // Requests are alike: most spans have been met before.
  const LoadByKind& LoadOf(const Span& span) {
    const auto [known, is_new] = loads_.try_emplace({span.first_position, span.num_tokens});
    if (is_new) {
      known->second = costs_.LoadOf(span);
    }
    return known->second;
  }

  SweepKind SumOf(const SweepSchedule& schedule, const std::vector<FlowRequest>& held) {
    SweepKind sum;
    for (Span span : schedule.spans) {
      span.first_position *= tokens_each_;
      const LoadByKind& load = LoadOf(span);
      LoadByKind& sums = span.num_tokens == 1 ? sum.decoding : sum.prompts;
      for (size_t kind = 0; kind < 2; ++kind) {
        sums[kind].Add(load[kind], stands_for_);
      }
    }
    for (const SampledRow& sampled : schedule.sampled) {
      sum.sampled += held[sampled.request].output_tokens > 0 ? stands_for_ : 0.0;
    }
    sum.rows = stands_for_ * Count(schedule.num_rows);
    sum.compute_seconds = costs_.MatmulSeconds(costs_.layers().flops_per_row, sum.rows);
    for (size_t kind = 0; kind < 2; ++kind) {
      sum.compute_seconds += costs_.num_layers(kind) *
                             (sum.prompts[kind].device_seconds + sum.decoding[kind].device_seconds);
    }
    return sum;
  }

  double CommittedPages(const std::vector<FlowRequest>& held) const {
    double pages = 0.0;
    for (const FlowRequest& request : held) {
      const int64_t left = request.output_tokens - request.generated_tokens;
      pages += stands_for_ *
               Count(needs_.ToCommit(request.known_tokens() * tokens_each_, left * tokens_each_,
                                     request.shared_stretches * tokens_each_));
    }
    return pages +
           Count(workload_.shared_prefix_tokens / kPagePositions * layers_.ids_per_stretch());
  }

  // By what they compute, on a logarithmic scale; each kind is the mean of its sweeps.
  static std::vector<SweepKind> Sorted(const std::vector<SweepKind>& sweeps) {
    double least = sweeps.front().compute_seconds;
    double most = least;
    for (const SweepKind& sweep : sweeps) {
      least = std::min(least, sweep.compute_seconds);
      most = std::max(most, sweep.compute_seconds);
    }
    const double width = std::max(std::log(most / least) / Count(kMostKinds), 1e-3);
    std::map<size_t, std::vector<const SweepKind*>> kinds;
    for (const SweepKind& sweep : sweeps) {
      const double place = std::log(sweep.compute_seconds / least) / width;
      kinds[std::min(static_cast<size_t>(place), kMostKinds - 1)].push_back(&sweep);
    }
    std::vector<SweepKind> sorted;
    for (const auto& [place, members] : kinds) {
      SweepKind& kind = sorted.emplace_back();
      for (const SweepKind* member : members) {
        kind.times += member->times;
      }
      for (const SweepKind* member : members) {
        kind.AddPart(*member, member->times / kind.times);
      }
    }
    return sorted;
  }

  const SweepCosts& costs_;
  const KvLayers& layers_;
  const WorkloadProfile& workload_;
  const BlockSizes& sizes_;
  int64_t stand_ins_ = 1;
  double stands_for_ = 1.0;
  int64_t tokens_each_ = 1;
  KvPageNeeds needs_;
  std::map<std::pair<int64_t, int64_t>, LoadByKind> loads_;  // by first position and tokens
};

}  // namespace

// What is fixed for one type of weights.
struct NightshiftCost::Form {
  Form(const PackManifest& of, ComputeType compute_type) : manifest(of), layers(of.config) {
    const WeightPlacement none = PlaceWeights(of, compute_type, {});
    const WeightPlacement all = PlaceWeights(of, compute_type, {.device_bytes = INT64_MAX / 2});
    const WeightPlacement host = PlaceWeights(of, compute_type, {.host_bytes = INT64_MAX / 2});
    work = WorkOf(of, none, compute_type, SIZE_MAX, 0);
    always_bytes = Count(none.device_bytes);
    matrix_bytes = Count(all.device_bytes - none.device_bytes);
    stored_bytes = Count(host.host_bytes);
    shard_bytes = Count(none.max_stored_bytes);
    expanded_bytes = Count(none.max_expanded_bytes);
    std::vector<double> bytes(work.layers.size() + 1, 0.0);
    for (const StreamedShard& shard : work.shards) {
      bytes[static_cast<size_t>(shard.layer)] += Count(shard.bytes);
    }
    bytes.back() = 0.0;
    layer_bytes = *std::max_element(bytes.begin(), bytes.end());
  }

  const PackManifest& manifest;
  const KvLayers layers;
  ModelWork work;               // with nothing on the device but what always is
  double always_bytes = 0.0;    // on the device
  double matrix_bytes = 0.0;    // the others, on the device
  double stored_bytes = 0.0;    // those, beside it
  double layer_bytes = 0.0;     // of the largest layer, streamed
  double shard_bytes = 0.0;     // of the largest shard
  double expanded_bytes = 0.0;  // 0: ops read what is stored
};

namespace {

// The program of one choice.
class ProgramMaker {
 public:
  struct Parts {
    const SweepCosts& costs;
    const BlockChoice& choice;
    const BlockSizes& sizes;
    bool unified_memory = true;
    double ring_bytes = 0.0;         // on the host
    double device_ring_bytes = 0.0;  // 0 with unified memory
  };
  explicit ProgramMaker(const Parts& parts)
      : p_(parts),
        config_(parts.costs.model().config),
        layers_(parts.costs.num_layers(0) + parts.costs.num_layers(1)),
        unified_(parts.unified_memory) {}

  CostPhase Phase(const SweepKind& kind, size_t index) const {
    CostPhase phase{.name = absl::StrCat("sweeps of kind ", index + 1),
                    .times = kind.times,
                    .serial = {},
                    .overlapped = {}};
    phase.serial.push_back({"embedding", EmbeddingReads(kind)});
    LinearForm compute = Compute(kind);
    LinearForm staging;
    if (!unified_) {
      // A slot of staging memory is filled, computed with and emptied, one batch after the other,
      // in three slots. Of a single batch a layer's pages and the weights that its ring has room
      // for take turns: in the simulation that is worth one and a half.
      staging = UploadedPages(kind);
      staging += DownloadedPages(kind);
      staging += compute;
      staging *= Batches(kind) > 1.0 ? 1.0 / 3.0 : 1.0 / 1.5;
    }
    if (p_.choice.host_attention) {
      // Device and host attend one batch after the other; they work at one time on two batches.
      const LinearForm alone = OffDevice(ShareId::kKvHost, ShareId::kKvDisk,
                                         Sum(kind.decoding, &AttentionLoad::host_seconds));
      phase.overlapped.push_back(
          {LaneName(LaneId::kHostAttention), AndPartOf(alone, compute, 1.0 / Batches(kind))});
      compute = AndPartOf(compute, alone, 1.0 / Batches(kind));
    }
    if (!unified_) {
      phase.overlapped.push_back({"staging", staging});
    }
    phase.overlapped.push_back({LaneName(LaneId::kCompute), compute});
    phase.overlapped.push_back({LaneName(LaneId::kRead), Read(kind)});
    phase.overlapped.push_back({LaneName(LaneId::kWrite), Write(kind)});
    if (!unified_) {
      phase.overlapped.push_back({LaneName(LaneId::kUpload), Upload(kind)});
      phase.overlapped.push_back({LaneName(LaneId::kDownload), Download(kind)});
    }
    return phase;
  }

  // Of all layers that have experts.
  CostPhase ExpertPhase(const SweepKind& kind, size_t index) const {
    const SweepCosts::ExpertTimes times = p_.costs.TimesOfExperts(kind.rows);
    CostPhase phase{.name = absl::StrCat("experts in sweeps of kind ", index + 1),
                    .times = kind.times,
                    .serial = {},
                    .overlapped = {}};
    const double layers = p_.costs.num_expert_layers();
    LinearForm compute = Constant(layers * times.compute);
    compute += OffDevice(ShareId::kWeightsHost, ShareId::kWeightsDisk,
                         layers * (times.unpack + times.upload_disk));
    phase.serial.push_back({"first expert", On(ShareId::kWeightsDisk, layers * times.first_read)});
    phase.overlapped.push_back({LaneName(LaneId::kCompute), compute});
    phase.overlapped.push_back(
        {LaneName(LaneId::kRead), On(ShareId::kWeightsDisk, layers * times.read)});
    return phase;
  }

 private:
  // Over all layers.
  double Sum(const LoadByKind& loads, double AttentionLoad::*field) const {
    return p_.costs.num_layers(0) * loads[0].*field + p_.costs.num_layers(1) * loads[1].*field;
  }
  double PageSeconds(LaneId lane, double pages) const {
    return p_.costs.PageSeconds(lane, pages * p_.costs.page_bytes());
  }
  static LinearForm AndPartOf(LinearForm form, LinearForm other, double part) {
    other *= part;
    form += other;
    return form;
  }
  // Of the device's attention over what lies beside it.
  LinearForm UploadedPages(const SweepKind& kind) const {
    double pages = Sum(kind.prompts, &AttentionLoad::earlier_pages);
    if (!p_.choice.host_attention) {
      pages += Sum(kind.decoding, &AttentionLoad::earlier_pages);
    }
    return OffDevice(ShareId::kKvHost, ShareId::kKvDisk, PageSeconds(LaneId::kUpload, pages));
  }
  LinearForm DownloadedPages(const SweepKind& kind) const {
    double pages = Sum(kind.prompts, &AttentionLoad::touched_pages);
    if (!p_.choice.host_attention) {
      pages += Sum(kind.decoding, &AttentionLoad::touched_pages);
    }
    return OffDevice(ShareId::kKvHost, ShareId::kKvDisk, PageSeconds(LaneId::kDownload, pages));
  }
  double Batches(const SweepKind& kind) const {
    return std::ceil(kind.rows / Count(p_.sizes.max_batch_tokens));
  }
  bool KeepsEmbedding() const {
    const double tokens = Count(p_.sizes.max_sweep_tokens);
    const ModelWork& work = p_.costs.model().work;
    return config_.tied_head || HitShare(work.embedding_shards, tokens) >= 0.9;
  }
  // What streaming the embedding with the rest takes of a lane.
  double EmbeddingSeconds(LaneId lane) const {
    const ModelWork& work = p_.costs.model().work;
    return config_.tied_head || !KeepsEmbedding()
               ? 0.0
               : p_.costs.WeightSeconds(lane, work.embedding_disk_bytes);
  }
  // Of all layers, one way.
  double RowsSeconds(LaneId lane, const SweepKind& kind) const {
    const double bytes =
        kind.rows * Count(RowStride(config_.model_width) * FloatBytes(DType::kF32));
    return layers_ * p_.costs.RowsSeconds(lane, bytes / Batches(kind)) * Batches(kind);
  }

  // Of shards that tokens hit. An embedding that is also the head, or that a sweep hits all over,
  // is the first thing that the device keeps: then it is no more than its part of what is streamed.
  LinearForm EmbeddingReads(const SweepKind& kind) const {
    if (KeepsEmbedding()) {
      return {};
    }
    LinearForm form = On(ShareId::kWeightsDisk, p_.costs.EmbeddingReadSeconds(kind.rows));
    form += OffDevice(ShareId::kWeightsHost, ShareId::kWeightsDisk,
                      p_.costs.EmbeddingUploadSeconds(kind.rows));
    return form;
  }

  LinearForm Compute(const SweepKind& kind) const {
    const SweepCosts& costs = p_.costs;
    const double batches = Batches(kind);
    const double head_rows = costs.HeadRows(kind.sampled);
    const double steps = batches * (layers_ + 1.0) + 1.0;
    const double embedding = costs.EmbeddingSeconds(kind.rows) -
                             costs.EmbeddingReadSeconds(kind.rows) -
                             costs.EmbeddingUploadSeconds(kind.rows);
    LinearForm form = Constant(
        batches * costs.MatmulSeconds(costs.layers().flops_per_row, kind.rows / batches) +
        costs.RowSeconds(kind.rows * costs.layers().row_bytes) + embedding +
        (head_rows > 0.0 ? costs.MatmulSeconds(costs.head().flops_per_row, head_rows) : 0.0) +
        costs.HeadRestSeconds(kind.sampled) + steps * costs.step_seconds() +
        Sum(kind.prompts, &AttentionLoad::device_seconds));
    const double decoding = Sum(kind.decoding, &AttentionLoad::device_seconds);
    form += p_.choice.host_attention ? On(ShareId::kKvDevice, decoding) : Constant(decoding);
    const double pieces = batches * costs.layers().pieces + costs.head().pieces;
    const double unpack = batches * costs.UnpackSeconds(costs.layers().unpacked_elements) +
                          costs.UnpackSeconds(costs.head().unpacked_elements);
    form += OffDevice(ShareId::kWeightsHost, ShareId::kWeightsDisk,
                      pieces * costs.step_seconds() + unpack);
    form += On(ShareId::kWeightsDisk, (costs.layers().disk_bytes + costs.head().disk_bytes) *
                                          costs.model().compute_seconds_per_read_byte);
    return form;
  }

  // Seconds of a layer's attention by the device, in which nothing leaves a ring, beyond those that
  // filling the ring takes; of all layers.
  double RingStall(const SweepKind& kind, double ring_bytes, LaneId lane) const {
    if (p_.sizes.buffering != WeightBuffering::kRing) {
      return 0.0;
    }
    double stall = 0.0;
    for (size_t i = 0; i < 2; ++i) {
      const double attention = kind.prompts[i].device_seconds +
                               (p_.choice.host_attention ? 0.0 : kind.decoding[i].device_seconds);
      stall += p_.costs.num_layers(i) *
               std::max(0.0, attention - p_.costs.WeightSeconds(lane, ring_bytes));
    }
    return stall;
  }

  LinearForm Read(const SweepKind& kind) const {
    const double bytes = p_.costs.layers().disk_bytes + p_.costs.head().disk_bytes;
    LinearForm form = On(ShareId::kWeightsDisk, p_.costs.WeightSeconds(LaneId::kRead, bytes) +
                                                    EmbeddingSeconds(LaneId::kRead));
    form.constant = RingStall(kind, p_.ring_bytes, LaneId::kRead);
    form += On(ShareId::kKvDisk,
               PageSeconds(LaneId::kRead, Sum(kind.prompts, &AttentionLoad::earlier_pages) +
                                              Sum(kind.decoding, &AttentionLoad::earlier_pages)));
    form += On(ShareId::kActivationsDisk, RowsSeconds(LaneId::kRead, kind));
    return form;
  }

  LinearForm Write(const SweepKind& kind) const {
    LinearForm form =
        On(ShareId::kKvDisk,
           PageSeconds(LaneId::kWrite, Sum(kind.prompts, &AttentionLoad::touched_pages) +
                                           Sum(kind.decoding, &AttentionLoad::touched_pages)));
    form += On(ShareId::kActivationsDisk, RowsSeconds(LaneId::kWrite, kind));
    return form;
  }

  LinearForm Upload(const SweepKind& kind) const {
    LinearForm form = OffDevice(ShareId::kWeightsHost, ShareId::kWeightsDisk,
                                p_.costs.WeightSeconds(LaneId::kUpload, p_.costs.streamed_bytes()) +
                                    EmbeddingSeconds(LaneId::kUpload));
    form.constant = RingStall(kind, p_.device_ring_bytes, LaneId::kUpload);
    form += UploadedPages(kind);
    if (p_.choice.host_attention) {
      const double mixed = RowBytesOf(kind, config_.num_heads * config_.head_width);
      form += OffDevice(ShareId::kKvHost, ShareId::kKvDisk,
                        p_.costs.RowsSeconds(LaneId::kUpload, mixed));
    }
    form += OffDevice(ShareId::kActivationsHost, ShareId::kActivationsDisk,
                      RowsSeconds(LaneId::kUpload, kind));
    return form;
  }

  LinearForm Download(const SweepKind& kind) const {
    LinearForm form = DownloadedPages(kind);
    if (p_.choice.host_attention) {
      const double queries = RowBytesOf(kind, config_.num_heads * config_.head_width) +
                             2.0 * RowBytesOf(kind, config_.num_kv_heads * config_.head_width);
      form += OffDevice(ShareId::kKvHost, ShareId::kKvDisk,
                        p_.costs.RowsSeconds(LaneId::kDownload, queries));
    }
    form += OffDevice(ShareId::kActivationsHost, ShareId::kActivationsDisk,
                      RowsSeconds(LaneId::kDownload, kind));
    return form;
  }

  // Of decoding rows of this width, over all layers.
  double RowBytesOf(const SweepKind& kind, int64_t width) const {
    return Sum(kind.decoding, &AttentionLoad::host_rows) *
           Count(RowStride(width) * FloatBytes(DType::kF32));
  }

  const Parts p_;
  const ModelConfig& config_;
  const double layers_;
  const bool unified_;
};

// What the executor takes of a tier when one thing lies there and all else on the device.
struct WorkingForms {
  LinearForm device;
  LinearForm host;
  LinearForm disk;
};

WorkingForms WorkingFormsOf(const EngineOptions& options, const PackManifest& manifest,
                            double committed_pages) {
  const int64_t pages =
      std::min(static_cast<int64_t>(std::ceil(committed_pages)), int64_t{1} << 40);
  const auto bytes = [&](const TierShares& activations, const KvPages& of) {
    EngineOptions with = options;
    with.tiers.activations = activations;
    return WorkingBytesOf(with, manifest, /*streams_weights=*/true, of);
  };
  const TierShares on_device{.device = 1.0, .host = 0.0};
  const WorkingBytes base = bytes(on_device, {.device = pages});
  WorkingForms forms;
  forms.device = Constant(Count(base.device));
  forms.host = Constant(Count(base.host));
  forms.disk = Constant(Count(base.disk));
  const auto add = [&](ShareId share, const WorkingBytes& there) {
    forms.device[share] += Count(there.device - base.device);
    forms.host[share] += Count(there.host - base.host);
    forms.disk[share] += Count(there.disk - base.disk);
  };
  if (!options.tiers.unified_memory()) {
    add(ShareId::kActivationsHost, bytes({.device = 0.0, .host = 1.0}, {.device = pages}));
    add(ShareId::kKvHost, bytes(on_device, {.host = pages}));
  }
  add(ShareId::kActivationsDisk, bytes({.device = 0.0, .host = 0.0}, {.device = pages}));
  add(ShareId::kKvDisk, bytes(on_device, {.disk = pages}));
  return forms;
}

}  // namespace

DType MatrixType(const PackManifest& manifest) {
  std::map<DType, int64_t> bytes;
  for (const TensorEntry& tensor : manifest.tensors) {
    if (tensor.layout == TensorLayout::kVector) {
      continue;
    }
    for (const ShardEntry& shard : tensor.shards) {
      bytes[tensor.dtype] += shard.bytes;
    }
  }
  DType most = DType::kBF16;
  for (const auto& [dtype, count] : bytes) {
    most = count > bytes[most] ? dtype : most;
  }
  return most;
}

NightshiftCost::NightshiftCost(const NightshiftModel& model, ComputeType compute_type,
                               const HardwareProfile& hardware, WorkloadProfile workload)
    : model_(model),
      compute_type_(compute_type),
      hardware_(hardware),
      workload_(std::move(workload)) {}

NightshiftCost::~NightshiftCost() = default;

absl::StatusOr<std::unique_ptr<NightshiftCost>> NightshiftCost::Create(
    const NightshiftModel& model, ComputeType compute_type, const HardwareProfile& hardware,
    const WorkloadProfile& workload) {
  if (model.forms.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, " has no form that could be planned for"));
  }
  RETURN_IF_ERROR(ValidateHardwareProfile(hardware));
  WorkloadProfile merged = workload;
  for (const auto& [dtype, manifest] : model.forms) {
    RETURN_IF_ERROR(workload.Validate(manifest.config.context_tokens));
  }
  merged.Merge(kMostClasses);
  std::unique_ptr<NightshiftCost> cost(
      new NightshiftCost(model, compute_type, hardware, std::move(merged)));
  for (const auto& [dtype, manifest] : model.forms) {
    cost->forms_[dtype] = std::make_unique<Form>(manifest, compute_type);
  }
  return cost;
}

int64_t NightshiftCost::LayerBytes(DType weights) const {
  const auto form = forms_.find(weights);
  return form == forms_.end() ? 0 : static_cast<int64_t>(form->second->layer_bytes);
}

absl::StatusOr<PlacementProgram> NightshiftCost::Program(const BlockChoice& choice) const {
  const auto found = forms_.find(choice.weights);
  if (found == forms_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("plan ", model_.name, " with weights as ",
                                                   DTypeName(choice.weights),
                                                   ": it has no such form"));
  }
  if (choice.block_requests < 1 || choice.block_requests > kMostBlock ||
      choice.batch_requests < 1 || choice.batch_requests > choice.block_requests ||
      choice.chunk_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan ", model_.name, " for a block of ", choice.block_requests, " requests in batches of ",
        choice.batch_requests, " and chunks of ", choice.chunk_tokens, " tokens: a block has 1 to ",
        kMostBlock, " requests, a batch no more than its block"));
  }
  if (!IsKvType(choice.kv, compute_type_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan ", model_.name, " with keys and values as ", DTypeName(choice.kv),
        ": computed in ", ComputeTypeName(compute_type_),
        " they can be kept as such, as U4G64 or as U8G64"));
  }
  const Form& form = *found->second;
  const ModelConfig& config = form.manifest.config;
  const KvPageLayout kv = KvLayoutOf(config, compute_type_, choice.kv);
  const bool unified = hardware_.unified_memory;
  const WorkRates rates(hardware_, compute_type_);
  const SweepCosts costs({.config = config,
                          .work = form.work,
                          .kv = kv,
                          .sparse_attention = model_.sparse_attention,
                          .unified_memory = unified,
                          .compute_seconds_per_read_byte = 0.0},
                         rates);
  const BlockSizes sizes = SizesOf(choice, workload_);
  const EngineOptions options =
      OptionsFor({}, choice, {1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0},
                 {.device = unified ? 0 : hardware_.device_bytes,
                  .host = hardware_.host_bytes,
                  .disk = hardware_.disk_bytes},
                 workload_, static_cast<int64_t>(form.layer_bytes));
  ASSIGN_OR_RETURN(const JobShape job, JobRunner(costs, form.layers, workload_, sizes).Run());

  const double least_ring = sizes.buffering == WeightBuffering::kRing
                                ? 2.0 * form.shard_bytes
                                : 2.0 * form.layer_bytes + form.shard_bytes;
  const auto ring = [&](double least, int64_t budget) {
    return std::max(least, std::min(Count(options.weight_ring_bytes), Count(budget) / 8.0));
  };
  const double host_ring =
      ring(unified ? least_ring : 2.0 * form.shard_bytes, hardware_.host_bytes);
  const double device_ring = unified ? 0.0 : ring(least_ring, hardware_.device_bytes);

  PlacementProgram program;
  program.requests = Count(workload_.requests());
  program.held_share = std::min(1.0, Count(sizes.max_block_requests) / Count(workload_.requests()));
  const ProgramMaker maker({costs, choice, sizes, unified, host_ring, device_ring});
  for (size_t i = 0; i < job.kinds.size(); ++i) {
    program.phases.push_back(maker.Phase(job.kinds[i], i));
    if (costs.num_expert_layers() > 0.0) {
      program.phases.push_back(maker.ExpertPhase(job.kinds[i], i));
    }
  }
  const double kv_bytes = job.committed_pages * Count(KvCache::PageBytes(kv, form.layers));
  const WorkingForms working = WorkingFormsOf(options, form.manifest, job.committed_pages);
  const double aside = kAsideSlots * form.shard_bytes;
  const auto row = [&](Tier tier, const char* name, LinearForm bytes, int64_t capacity) {
    bytes.constant += kRounding;
    program.capacities.push_back({tier, name, bytes, Count(capacity)});
  };
  LinearForm device = working.device;
  device.constant += form.always_bytes;
  device += On(ShareId::kWeightsDevice, form.matrix_bytes);
  device += On(ShareId::kKvDevice, kv_bytes);
  device += OffDevice(ShareId::kWeightsHost, ShareId::kWeightsDisk,
                      unified ? host_ring + aside + form.expanded_bytes
                              : device_ring + form.shard_bytes + form.expanded_bytes);
  row(Tier::kDevice, unified ? "memory" : "device", device,
      unified ? hardware_.host_bytes : hardware_.device_bytes);
  if (!unified) {
    LinearForm host = working.host;
    host += On(ShareId::kWeightsHost, form.stored_bytes);
    host += OffDevice(ShareId::kWeightsHost, ShareId::kWeightsDisk, host_ring + aside);
    host += On(ShareId::kKvHost, kv_bytes);
    row(Tier::kHost, "host", host, hardware_.host_bytes);
  }
  LinearForm disk = working.disk;
  disk += On(ShareId::kWeightsDisk, form.stored_bytes);
  disk += On(ShareId::kKvDisk, kv_bytes);
  row(Tier::kDisk, "disk", disk, hardware_.disk_bytes);
  if (unified) {
    for (const ShareId share :
         {ShareId::kWeightsHost, ShareId::kKvHost, ShareId::kActivationsHost}) {
      program.fixed[static_cast<size_t>(share)] = 0.0;
    }
  }
  program.max_seconds = workload_.deadline_seconds;
  return program;
}

}  // namespace nightshift
