#include "server/tools/plan_model.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "engine/model/known_shapes.h"
#include "engine/model/pack.h"
#include "engine/model/shape_manifest.h"
#include "engine/policy/engine_policy.h"
#include "engine/policy/flexgen_cost.h"
#include "engine/policy/flexgen_rates.h"
#include "engine/policy/frontier.h"
#include "engine/policy/hardware_file.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/nightshift_cost.h"
#include "engine/policy/plan.h"
#include "engine/policy/plan_trials.h"
#include "engine/policy/quantity_text.h"
#include "engine/policy/sweep_simulation.h"
#include "engine/policy/workload_profile.h"
#include "kernels/base/new_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

// The machine that FlexGen's constants were fitted on; known to the forms paper and flexgen only.
constexpr char kFlexGenMachine[] = "flexgen-t4";
constexpr double kFlexGenGigabytes[] = {15, 200, 1500};

constexpr DType kAllTypes[] = {DType::kF32,   DType::kF16,   DType::kBF16,  DType::kI8G32,
                               DType::kI8G64, DType::kU8G32, DType::kU8G64, DType::kI4G32,
                               DType::kI4G64, DType::kU4G32, DType::kU4G64};

struct PlannedModel {
  std::string name;
  ModelConfig config;
  // By the type of its matrices: a pack has one, a known shape any. The first one is the default.
  std::vector<DType> types;
  NightshiftModel forms;
};

absl::StatusOr<PlannedModel> FindModel(const PlanModelOptions& options) {
  if (std::filesystem::exists(options.model + "/" + kManifestFile)) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(options.model));
    const PackManifest& manifest = pack->manifest();
    const DType weights = MatrixType(manifest);
    return PlannedModel{manifest.model_name,
                        manifest.config,
                        {weights},
                        {manifest.model_name, {{weights, manifest}}}};
  }
  const auto shape = FindKnownShape(options.model);
  if (!shape.ok()) {
    return absl::NotFoundError(absl::StrCat(
        options.model.substr(0, 256), " is no folder of a pack, and ", shape.status().message()));
  }
  PlannedModel model{shape->name, shape->config, options.weights, {shape->name, {}}};
  if (model.types.empty()) {
    model.types.push_back(DType::kBF16);
  }
  for (const DType dtype : model.types) {
    model.forms.forms[dtype] = ManifestOf(*shape, dtype);
  }
  return model;
}

// The machine of a plan: a profile, or the one that FlexGen's constants were fitted on.
struct Machine {
  std::string name;
  std::array<double, 3> tier_bytes = {};
  bool unified_memory = false;
  std::optional<HardwareProfile> profile = {};
};

absl::StatusOr<Machine> FindMachine(const PlanModelOptions& options) {
  if (options.hardware == kFlexGenMachine) {
    if (options.form == ModelForm::kNightshift) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--hardware ", kFlexGenMachine,
          " has rates of --model-form paper and flexgen only; t4 is a profile of that machine"));
    }
    Machine machine{.name = kFlexGenMachine};
    for (size_t tier = 0; tier < machine.tier_bytes.size(); ++tier) {
      machine.tier_bytes[tier] = kFlexGenGigabytes[tier] * (1 << 30);
    }
    return machine;
  }
  ASSIGN_OR_RETURN(const HardwareProfile profile, options.hardware.empty()
                                                      ? LoadHardwareProfile(DefaultHardwarePath())
                                                      : FindHardwareProfile(options.hardware));
  return Machine{.name = profile.name,
                 .tier_bytes = TierBytesOf(profile),
                 .unified_memory = profile.unified_memory,
                 .profile = profile};
}

WorkloadProfile WorkloadOf(const PlanModelOptions& options) {
  WorkloadProfile workload;
  workload.classes = {{options.prompt_tokens, options.output_tokens, options.requests}};
  workload.shared_prefix_tokens = options.shared_prefix_tokens;
  return workload;
}

// Runs a choice in virtual time, whichever cost model made it. What is referred to outlives it.
absl::StatusOr<TryChoice> TrialsOf(const PlanModelOptions& options, const PlannedModel& model,
                                   const Machine& machine) {
  if (!machine.profile) {
    return absl::InvalidArgumentError(
        absl::StrCat("--simulate needs a profile; ", machine.name, " is none"));
  }
  const HardwareProfile& hardware = *machine.profile;
  const WorkloadProfile workload = WorkloadOf(options);
  ASSIGN_OR_RETURN(std::unique_ptr<NightshiftCost> made,
                   NightshiftCost::Create(model.forms, ComputeType::kBF16, hardware, workload));
  const std::shared_ptr<const NightshiftCost> cost = std::move(made);
  const TierBudgets budgets = {.device = hardware.unified_memory ? 0 : hardware.device_bytes,
                               .host = hardware.host_bytes,
                               .disk = hardware.disk_bytes};
  return [&model, &hardware, workload, cost, budgets](
             const BlockChoice& choice, const Shares& shares) -> absl::StatusOr<TriedChoice> {
    TriedChoice tried{.options = OptionsFor({}, choice, shares, budgets, workload,
                                            cost->LayerBytes(choice.weights)),
                      .run = {}};
    ASSIGN_OR_RETURN(tried.run, SimulateRun({.manifest = model.forms.forms.at(choice.weights),
                                             .name = model.name,
                                             .options = tried.options,
                                             .hardware = hardware},
                                            workload));
    return tried;
  };
}

std::string SimulationText(const SimulatedRun& run) {
  return absl::StrFormat("%-10s %s; %.4g generated and %.4g prompt tokens/s; %s works most\n",
                         "simulated", DurationText(run.seconds), run.output_tokens_per_s,
                         run.prompt_tokens_per_s, LaneName(run.bottleneck));
}

Json SimulationToJson(const SimulatedRun& run) {
  return {{"seconds", run.seconds},
          {"output_tokens_per_s", run.output_tokens_per_s},
          {"prompt_tokens_per_s", run.prompt_tokens_per_s},
          {"bottleneck", LaneName(run.bottleneck)}};
}

// `model` and `machine` outlive it.
absl::StatusOr<std::unique_ptr<CostModel>> CostOf(const PlanModelOptions& options,
                                                  const PlannedModel& model,
                                                  const Machine& machine) {
  if (options.form == ModelForm::kNightshift) {
    return NightshiftCost::Create(model.forms, ComputeType::kBF16, *machine.profile,
                                  WorkloadOf(options));
  }
  if (options.shared_prefix_tokens > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shared-prefix-tokens is ", options.shared_prefix_tokens,
                     ": --model-form paper and flexgen know no shared prefix"));
  }
  ASSIGN_OR_RETURN(const FlexGenShape shape, FlexGenShapeOf(model.config));
  return FlexGenCost::Create(
      {.form = options.form == ModelForm::kPaper ? FlexGenForm::kPaper : FlexGenForm::kReleased,
       .shape = shape,
       .prompt_tokens = options.prompt_tokens,
       .output_tokens = options.output_tokens,
       .requests = options.requests,
       .rates = machine.profile ? FlexGenRatesOf(*machine.profile, shape, options.prompt_tokens)
                                : ShippedFlexGenRates(),
       .tier_bytes = machine.tier_bytes,
       .unified_memory = machine.unified_memory});
}

// Whole prompts, and of long ones also chunks, which only this engine has.
std::vector<int64_t> ChunksOf(const PlanModelOptions& options) {
  constexpr int64_t kChunk = 512;
  if (options.chunk_tokens) {
    return {*options.chunk_tokens};
  }
  const bool has_chunks = options.form == ModelForm::kNightshift && options.prompt_tokens > kChunk;
  return has_chunks ? std::vector<int64_t>{0, kChunk} : std::vector<int64_t>{0};
}

SearchSpace SpaceOf(const PlanModelOptions& options, const PlannedModel& model,
                    const Machine& machine) {
  SearchSpace space;
  space.requests = options.requests;
  space.weights = options.weights.empty() ? model.types : options.weights;
  if (!options.kv.empty()) {
    space.kv = options.kv;
  }
  space.chunk_tokens = ChunksOf(options);
  space.host_attention = options.host_attention;
  if (options.form == ModelForm::kNightshift && machine.unified_memory) {
    space.host_attention = options.host_attention.value_or(false);  // it is the same
  }
  if (options.block != 0) {
    space.block_requests = options.block;
  }
  if (options.batch != 0) {
    space.batch_requests = options.batch;
  }
  space.shares = options.shares;
  space.deadline_seconds = options.deadline_s;
  space.max_held_seconds = options.max_held_s;
  space.margin = options.margin_percent / 100;
  return space;
}

absl::Status CheckTokens(const PlanModelOptions& options, const ModelConfig& config) {
  constexpr int64_t kMany = int64_t{1} << 31;
  for (const auto& [flag, value, least] : {std::tuple("requests", options.requests, 1),
                                           {"prompt-tokens", options.prompt_tokens, 1},
                                           {"output-tokens", options.output_tokens, 0}}) {
    if (value < least || value > kMany) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " is ", value, ", must be ", least, " to ", kMany));
    }
  }
  if (options.prompt_tokens + options.output_tokens > config.context_tokens) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.prompt_tokens, " prompt and ", options.output_tokens,
        " output tokens are more than the model's context of ", config.context_tokens));
  }
  return absl::OkStatus();
}

const char* FormName(ModelForm form) {
  switch (form) {
    case ModelForm::kNightshift:
      return "nightshift";
    case ModelForm::kPaper:
      return "paper";
    case ModelForm::kFlexGen:
      return "flexgen";
  }
  return "unknown";
}

// What is planned for, above the plan itself.
struct Heading {
  std::string model;
  std::string machine;
  std::string memory;
  std::string job;
  std::string form;
};

Heading HeadingOf(const PlanModelOptions& options, const PlannedModel& model,
                  const Machine& machine) {
  const std::array<double, 3>& bytes = machine.tier_bytes;
  return {.model = model.name,
          .machine = machine.name,
          .memory = machine.unified_memory
                        ? absl::StrCat(BytesText(bytes[1]), " of memory, ", BytesText(bytes[2]),
                                       " of disk")
                        : absl::StrCat(BytesText(bytes[0]), " on the device, ", BytesText(bytes[1]),
                                       " of memory, ", BytesText(bytes[2]), " of disk"),
          .job = absl::StrFormat("%d requests of %d prompt and %d output tokens", options.requests,
                                 options.prompt_tokens, options.output_tokens),
          .form = FormName(options.form)};
}

std::string WithHeading(const Heading& heading, const std::string& text) {
  return absl::StrFormat("%-10s %s\n%-10s %s: %s\n%-10s %s\n%-10s %s\n%s", "model", heading.model,
                         "machine", heading.machine, heading.memory, "job", heading.job, "form",
                         heading.form, text);
}

std::string JsonWithHeading(const Heading& heading, const char* name, const std::string& json,
                            const std::optional<SimulatedRun>& simulated) {
  Json document = {{"model", heading.model},     {"machine", heading.machine},
                   {"memory", heading.memory},   {"job", heading.job},
                   {"model_form", heading.form}, {name, Json::parse(json, nullptr, false)}};
  if (simulated) {
    document["simulated"] = SimulationToJson(*simulated);
  }
  return document.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<std::vector<DType>> ParseTypes(const std::string& flag, const std::string& text) {
  std::vector<DType> types;
  std::vector<std::string> names;
  for (const DType dtype : kAllTypes) {
    names.push_back(absl::AsciiStrToLower(DTypeName(dtype)));
  }
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    size_t i = 0;
    while (i < names.size() && !absl::EqualsIgnoreCase(part, names[i])) {
      ++i;
    }
    if (i == names.size()) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " has \"", part.substr(0, 64),
                                                     "\"; there are ", absl::StrJoin(names, ", ")));
    }
    types.push_back(kAllTypes[i]);
  }
  return types;
}

absl::StatusOr<std::string> PlanModel(const PlanModelOptions& options) {
  ASSIGN_OR_RETURN(const PlannedModel model, FindModel(options));
  RETURN_IF_ERROR(CheckTokens(options, model.config));
  ASSIGN_OR_RETURN(const Machine machine, FindMachine(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<CostModel> cost, CostOf(options, model, machine));
  const PlanOptions plan_options = {
      .space = SpaceOf(options, model, machine),
      .prompt_tokens = static_cast<double>(options.requests * options.prompt_tokens),
      .output_tokens = static_cast<double>(options.requests * options.output_tokens)};
  const Heading heading = HeadingOf(options, model, machine);
  if (options.frontier) {
    if (!options.svg_path.empty()) {
      RETURN_IF_ERROR(CheckNoFile(options.svg_path));
      RETURN_IF_ERROR(CheckWritable(options.svg_path));
    }
    ASSIGN_OR_RETURN(const Frontier frontier, FindFrontier(*cost, plan_options));
    if (!options.svg_path.empty()) {
      RETURN_IF_ERROR(WriteNewFile(
          options.svg_path,
          FrontierSvg(frontier,
                      absl::StrCat(heading.model, " on ", heading.machine, ", ", heading.job))));
    }
    return options.json ? JsonWithHeading(heading, "frontier", FrontierJson(frontier), std::nullopt)
                        : WithHeading(heading, FrontierText(frontier));
  }
  Plan plan;
  std::optional<SimulatedRun> simulated;
  if (options.form == ModelForm::kNightshift) {
    ASSIGN_OR_RETURN(const TryChoice try_choice, TrialsOf(options, model, machine));
    ASSIGN_OR_RETURN(Trial trial, TryPlans(*cost, plan_options, try_choice));
    plan = std::move(trial.plan);
    if (options.simulate) {
      simulated = std::move(trial.tried.run);
    }
  } else {
    ASSIGN_OR_RETURN(plan, MakePlan(*cost, plan_options));
    if (options.simulate) {
      ASSIGN_OR_RETURN(const TryChoice try_choice, TrialsOf(options, model, machine));
      ASSIGN_OR_RETURN(TriedChoice tried, try_choice(plan.choice, plan.shares));
      simulated = std::move(tried.run);
    }
  }
  return options.json
             ? JsonWithHeading(heading, "plan", PlanJson(plan), simulated)
             : WithHeading(heading, PlanText(plan)) + (simulated ? SimulationText(*simulated) : "");
}

}  // namespace nightshift
