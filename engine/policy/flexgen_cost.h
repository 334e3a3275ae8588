// FlexGenCost: what a run costs by the cost model of FlexGen, in two forms. Pure.
//
// `paper` is the model as published: all transfers and the computing of a layer overlap. `released`
// is the one in the code that its authors released: the disk's and the link's part of one direction
// add up, the upload of weights is not hidden in decode, activations never lie on disk. Both
// describe equal requests in closed blocks, left to right through one layer after another, and
// leave out embedding and head.
//
// Beyond the source: grouped heads, gated feed-forwards, compressed types, and attention on the
// device over keys and values that are uploaded for it. With types of 16 bits and attention on the
// host the formulas are the published ones.
//
// Source: FlexGen (Sheng et al. 2023) section 4.3 and appendix A.2, A.3; the released form and the
// shipped rates: github.com/FMInference/FlexLLMGen, experimental/cost_model.py at 004ffef.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/config.h"
#include "engine/policy/cost_model.h"
#include "engine/policy/placement_program.h"

namespace nightshift {

enum class FlexGenForm : uint8_t { kPaper, kReleased };

// A dense decoder. In brackets the paper's letters.
struct FlexGenShape {
  int64_t layers = 0;           // [l]
  int64_t width = 0;            // [h1] of hidden rows
  int64_t ffn_width = 0;        // [h2]
  int64_t heads = 0;            // [nh]
  int64_t attention_width = 0;  // of all query heads; the paper's models: width
  int64_t kv_width = 0;         // of all key heads; the paper's models: width
  int64_t layer_weights = 0;    // numbers in the matrices of a layer; the paper: 4*h1^2 + 2*h1*h2
};

// Errors: INVALID_ARGUMENT for mixtures of experts, which neither form describes.
absl::StatusOr<FlexGenShape> FlexGenShapeOf(const ModelConfig& config);

// Of a machine: bytes and floating-point operations per second.
struct FlexGenRates {
  double upload = 0.0;                    // [ctog]
  double download_kv = 0.0;               // [gtoc] of keys and values
  double download_activations = 0.0;      // [gtoc] of hidden rows
  double read = 0.0;                      // [dtoc]
  double write_prompt_kv = 0.0;           // [ctod] of keys and values in prefill
  double write_prompt_activations = 0.0;  // [ctod] of hidden rows in prefill
  double write_decode = 0.0;              // [ctod] in decode
  double prompt_matmul = 0.0;             // [mm_flops]
  double decode_matmul = 0.0;
  double prompt_attention = 0.0;  // [bmm_flops] 4 * width a pair of positions, causal or not
  double decode_attention = 0.0;  // 4 * width a position, which is its bytes
  double host_attention = 0.0;    // [cpu_flops] the same
  // Attention on the host slows down for batches below 64 [c2], widths below 4096 [c3], both [c1].
  double small_batch_and_width = 0.0;
  double small_batch = 0.0;
  double small_width = 0.0;
  // Weights, keys and values that are made 16 bits wide again. Not in the source.
  double unpacked_elements = 0.0;
};

// What FlexGen ships, fitted by its authors on a cloud machine with a T4; GB there are 2^30.
// Unpacking is not among it: 5 kernels that read and write 16 bits a number at the T4's 320 GB/s.
FlexGenRates ShippedFlexGenRates();

struct FlexGenOptions {
  FlexGenForm form = FlexGenForm::kPaper;
  FlexGenShape shape;
  int64_t prompt_tokens = 0;  // [s]
  int64_t output_tokens = 0;  // [n]
  // Of the job, which takes whole blocks; 0: endless, the program is that of one block.
  int64_t requests = 0;
  FlexGenRates rates;
  std::array<double, 3> tier_bytes = {};  // device, host, disk
  bool unified_memory = false;            // nothing but what is staged lies on the host
};

// Seconds of one layer: of all prompts of a block, or of one token of each of its requests.
struct FlexGenTerms {
  LinearForm upload;
  LinearForm download;
  LinearForm read;
  LinearForm write;
  LinearForm compute;
};

class FlexGenCost final : public CostModel {
 public:
  // Errors: INVALID_ARGUMENT naming what is not positive or out of range.
  static absl::StatusOr<std::unique_ptr<FlexGenCost>> Create(const FlexGenOptions& options);

  // Phases "prefill" and "decode", each time a layer.
  // Errors: INVALID_ARGUMENT for prompt chunks, and for attention on the host over keys and values
  // that are compressed: FlexGen has neither.
  absl::StatusOr<PlacementProgram> Program(const BlockChoice& choice) const override;

  // Of a choice that Program takes.
  FlexGenTerms PrefillTerms(const BlockChoice& choice) const;
  FlexGenTerms DecodeTerms(const BlockChoice& choice) const;
  // Where a memory's peak has several candidates, one row each.
  std::vector<CapacityRow> Capacities(const BlockChoice& choice) const;

 private:
  explicit FlexGenCost(const FlexGenOptions& options) : options_(options) {}

  absl::Status Check(const BlockChoice& choice) const;
  double HostAttentionRate(double batch_requests) const;
  double UnpackSeconds(const BlockChoice& choice) const;

  const FlexGenOptions options_;
};

}  // namespace nightshift
