// `nightshift plan MODEL`: what a job would take on a machine, and how it would be run.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/policy/placement_program.h"
#include "kernels/dtype.h"

namespace nightshift {

enum class ModelForm : uint8_t { kNightshift, kPaper, kFlexGen };

struct PlanModelOptions {
  std::string model;     // a name of engine/model/known_shapes.h, or a pack's folder
  std::string hardware;  // a file, a known machine's name; empty: this machine's calibration
  ModelForm form = ModelForm::kNightshift;
  int64_t requests = 256;
  int64_t prompt_tokens = 512;       // of each
  int64_t output_tokens = 32;        // of each; 0: prompts are only scored
  int64_t shared_prefix_tokens = 0;  // that all prompts begin with
  std::optional<double> deadline_s;  // for the job
  std::optional<double> max_held_s;  // for one request
  // Types that may be used; empty: of weights the pack's, else bf16; of keys and values bf16.
  std::vector<DType> weights;
  std::vector<DType> kv;
  std::optional<bool> host_attention;  // nothing: as it is best
  int64_t block = 0;                   // 0: as it is best
  int64_t batch = 0;
  std::optional<int64_t>
      chunk_tokens;  // of prompts, in a sweep; 0: whole prompts; nothing: as it is best
  std::array<std::optional<double>, kNumShares> shares;
  double margin_percent = 5.0;  // of each memory, left free
  bool simulate = false;        // also tells what the plan takes in virtual time
  bool frontier = false;
  std::string svg_path;  // of the frontier's plot; empty for none
  bool json = false;
};

// Types by their names without regard to case, as "bf16,u4g64". Errors: INVALID_ARGUMENT naming the
// flag and the names that there are.
absl::StatusOr<std::vector<DType>> ParseTypes(const std::string& flag, const std::string& text);

// The plan, or the frontier, for people or as JSON; writes the plot. The same arguments give the
// same text. Errors: INVALID_ARGUMENT naming what is out of range; NOT_FOUND (model, hardware);
// RESOURCE_EXHAUSTED when nothing fits, with what is lacking; of WriteNewFile.
absl::StatusOr<std::string> PlanModel(const PlanModelOptions& options);

}  // namespace nightshift
