// SweepCosts: what a sweep's batches move and compute, and the seconds of each of its steps and of
// each lane. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory_plan.h"
#include "engine/policy/model_work.h"
#include "engine/policy/request_flow.h"
#include "engine/policy/work_rates.h"
#include "engine/schedule/sweep_schedule.h"
#include "engine/schedule/sweep_steps.h"
#include "kernels/kv_page.h"

namespace nightshift {

// What one span asks of a layer; of several spans, the sum.
struct AttentionLoad {
  double device_seconds = 0.0;
  double host_seconds = 0.0;   // if the host attends
  double earlier_pages = 0.0;  // read
  double touched_pages = 0.0;  // written
  double host_rows = 0.0;      // rows that the host may attend for

  void Add(const AttentionLoad& other, double count);
};

// Layers that keep every position, and those that keep a window.
using LoadByKind = std::array<AttentionLoad, 2>;

struct BatchLoad {
  double rows = 0.0;
  std::array<double, 2> device_attention_seconds = {};  // of a layer, by kind
  std::array<double, 2> host_attention_seconds = {};
};

struct SweepLoad {
  SweepShape shape;
  std::vector<BatchLoad> batches;
  double rows = 0.0;
  double sampled_rows = 0.0;
};

// The part of `shards` that rows hit at random.
double HitShare(double shards, double rows);

using LaneSeconds = std::array<double, kNumLanes>;

class SweepCosts {
 public:
  struct Model {
    const ModelConfig& config;
    const ModelWork& work;
    KvPageLayout kv;
    double sparse_attention = 1.0;  // as EngineOptions: of the values, those that decoding reads
    bool unified_memory = true;
    double compute_seconds_per_read_byte = 0.0;
  };
  // What is referred to outlives this.
  SweepCosts(const Model& model, const WorkRates& rates);

  // At a layer of either kind.
  LoadByKind LoadOf(const Span& span) const;
  // Of one scheduled sweep, with everything where the plan has it.
  SweepLoad Load(const SweepSchedule& schedule, const std::vector<FlowRequest>& held,
                 const ExecutorLimits& limits) const;

  // Of all steps of the sweep together.
  LaneSeconds SecondsOf(const SweepLoad& load) const;

  // Parts of the above, of one batch or of a sweep.
  double MatmulSeconds(double flops_per_row, double rows) const;
  double UnpackSeconds(double elements) const;
  double RowSeconds(double bytes) const { return rates_.RowSeconds(bytes); }
  double step_seconds() const { return rates_.step_seconds(); }
  double EmbeddingSeconds(double rows) const;
  // Of the head behind its last streamed shard: rows that a second look is needed for, and folding.
  double HeadRestSeconds(double sampled_rows) const;
  // The head is multiplied by at most so many rows at one time.
  double HeadRows(double sampled_rows) const;
  // Of one layer's experts, whose shards are waited for where they are read.
  double ExpertSeconds(double rows) const;
  // What that is made of: the first shard, and then the longer of the others.
  struct ExpertTimes {
    double compute = 0.0;
    double unpack = 0.0;
    double read = 0.0;
    double upload_disk = 0.0;  // of those from disk
    double upload_host = 0.0;
    double first_read = 0.0;
  };
  ExpertTimes TimesOfExperts(double rows) const;
  // Of the embedding's shards that are not on the device.
  double EmbeddingReadSeconds(double rows) const;
  double EmbeddingUploadSeconds(double rows) const;
  double WeightSeconds(LaneId lane, double bytes) const;
  double PageSeconds(LaneId lane, double bytes) const;
  double RowsSeconds(LaneId lane, double bytes) const;
  double page_bytes() const { return page_bytes_; }
  const Model& model() const { return model_; }

  // Of parts together.
  struct Totals {
    double flops_per_row = 0.0;
    double unpacked_elements = 0.0;
    double disk_bytes = 0.0;
    double row_bytes = 0.0;
    double pieces = 0.0;

    void Add(const PartWork& part);
  };
  const Totals& layers() const { return layers_; }  // all of them
  const Totals& head() const { return head_; }
  double num_layers(size_t kind) const { return num_layers_[kind]; }
  double num_expert_layers() const { return num_expert_layers_; }
  double streamed_bytes() const { return streamed_bytes_; }

 private:
  AttentionLoad LoadOfKind(const Span& span, bool slides) const;

  const Model model_;
  const WorkRates& rates_;
  const double page_bytes_;  // of a layer
  Totals layers_;
  Totals head_;
  double streamed_bytes_ = 0.0;            // uploaded
  std::array<double, 2> num_layers_ = {};  // of each kind
  double num_expert_layers_ = 0.0;
};

// The compute lane's steps of one sweep, one after the other.
class ComputeClock {
 public:
  ComputeClock(const SweepCosts& costs, const SweepLoad& load) : costs_(costs), load_(load) {}

  // Seconds of a compute step: before it waits for what its first matmul needs, and from then on.
  struct Times {
    double before_wait = 0.0;
    double after_wait = 0.0;
  };
  Times Next(const Step& step);

 private:
  // A part of the call as far as it is computed: its streamed pieces, or its rest.
  Times OfPiece(const Step& step, const std::array<const PartWork*, 2>& parts, double rows);
  double Rest(const PartWork& part, double rows);
  double AttentionSeconds(const Step& step) const;
  // In proportion to the operations for equal rows, which follow one another.
  double MatmulSeconds(double flops_per_row, double rows);

  const SweepCosts& costs_;
  const SweepLoad& load_;
  double rows_ = -1.0;  // of the last matmul
  double seconds_per_flop_ = 0.0;
  // Of the call that is being computed.
  bool has_begun_ = false;
  bool has_attended_ = false;
  size_t next_piece_ = 0;
};

}  // namespace nightshift
