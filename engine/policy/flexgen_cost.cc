#include "engine/policy/flexgen_cost.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using enum ShareId;

constexpr double kGigabyte = 1 << 30;
constexpr int64_t kMany = int64_t{1} << 31;
// Of weights, in decode, in the released form.
constexpr double kReadEfficiency = 0.95;
constexpr double kLeastHostEfficiency = 0.1;

double Real(int64_t value) {
  return static_cast<double>(value);
}

// Part of the 16 bits that the formulas are written for.
double SizeRatio(DType dtype) {
  return StoredBits(dtype) / 16;
}

LinearForm On(std::initializer_list<ShareId> shares, double each) {
  LinearForm form;
  for (const ShareId share : shares) {
    form[share] = each;
  }
  return form;
}

LinearForm Constant(double value) {
  LinearForm form;
  form.constant = value;
  return form;
}

LinearForm Plus(LinearForm a, const LinearForm& b) {
  a += b;
  return a;
}

absl::Status CheckPositive(const char* name, double value) {
  if (std::isfinite(value) && value > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, ", must be above 0"));
}

absl::Status CheckCount(const char* name, int64_t value, int64_t least) {
  if (value >= least && value <= kMany) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, ", must be ", least, " to ", kMany));
}

absl::Status CheckShape(const FlexGenShape& shape) {
  RETURN_IF_ERROR(CheckCount("the number of layers", shape.layers, 1));
  RETURN_IF_ERROR(CheckCount("the width", shape.width, 1));
  RETURN_IF_ERROR(CheckCount("the width of the feed-forward", shape.ffn_width, 1));
  RETURN_IF_ERROR(CheckCount("the number of heads", shape.heads, 1));
  RETURN_IF_ERROR(CheckCount("the width of the query heads", shape.attention_width, 1));
  RETURN_IF_ERROR(CheckCount("the width of the key heads", shape.kv_width, 1));
  return CheckPositive("the number of weights of a layer", Real(shape.layer_weights));
}

absl::Status CheckRates(const FlexGenRates& rates) {
  RETURN_IF_ERROR(CheckPositive("the rate of upload", rates.upload));
  RETURN_IF_ERROR(CheckPositive("the rate of download of keys and values", rates.download_kv));
  RETURN_IF_ERROR(CheckPositive("the rate of download of activations", rates.download_activations));
  RETURN_IF_ERROR(CheckPositive("the rate of reading", rates.read));
  RETURN_IF_ERROR(CheckPositive("the rate of writing prompts' keys", rates.write_prompt_kv));
  RETURN_IF_ERROR(
      CheckPositive("the rate of writing prompts' activations", rates.write_prompt_activations));
  RETURN_IF_ERROR(CheckPositive("the rate of writing in decode", rates.write_decode));
  RETURN_IF_ERROR(CheckPositive("the rate of prompts' matmul", rates.prompt_matmul));
  RETURN_IF_ERROR(CheckPositive("the rate of matmul in decode", rates.decode_matmul));
  RETURN_IF_ERROR(CheckPositive("the rate of prompts' attention", rates.prompt_attention));
  RETURN_IF_ERROR(CheckPositive("the rate of attention in decode", rates.decode_attention));
  RETURN_IF_ERROR(CheckPositive("the rate of attention on the host", rates.host_attention));
  RETURN_IF_ERROR(CheckPositive("the rate of unpacking", rates.unpacked_elements));
  for (const double slope : {rates.small_batch_and_width, rates.small_batch, rates.small_width}) {
    if (!std::isfinite(slope) || slope < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a slope of the host's attention is ", slope, ", must be at least 0"));
    }
  }
  return absl::OkStatus();
}

// The work memory of one batch on the device, as rows that must all fit.
struct WorkMemory {
  std::string name;
  LinearForm bytes;
};

}  // namespace

absl::StatusOr<FlexGenShape> FlexGenShapeOf(const ModelConfig& config) {
  if (config.experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("a mixture of ", config.experts->count,
                     " experts cannot be planned by the forms paper and flexgen"));
  }
  FlexGenShape shape{.layers = config.num_layers,
                     .width = config.model_width,
                     .ffn_width = config.ffn_width,
                     .heads = config.num_heads,
                     .attention_width = config.num_heads * config.head_width,
                     .kv_width = config.num_kv_heads * config.head_width};
  shape.layer_weights = shape.width * (2 * shape.attention_width + 2 * shape.kv_width +
                                       (config.gated_ffn ? 3 : 2) * shape.ffn_width);
  return shape;
}

FlexGenRates ShippedFlexGenRates() {
  return {.upload = 12.89 * kGigabyte,
          .download_kv = 0.97 * kGigabyte,
          .download_activations = 4.82 * kGigabyte,
          .read = 0.473 * kGigabyte,
          .write_prompt_kv = 0.746 * kGigabyte,
          .write_prompt_activations = 2.015 * kGigabyte,
          .write_decode = 2.015 * kGigabyte,
          .prompt_matmul = 21.24e12,
          .decode_matmul = 4.3e12,
          .prompt_attention = 9.97e12,
          .decode_attention = 0.079e12,
          .host_attention = 0.0123e12,
          .small_batch_and_width = 0.0168,
          .small_batch = 0.0328,
          .small_width = 0.0621,
          .unpacked_elements = 320e9 / (5 * (2 + 2))};
}

absl::StatusOr<std::unique_ptr<FlexGenCost>> FlexGenCost::Create(const FlexGenOptions& options) {
  RETURN_IF_ERROR(CheckShape(options.shape));
  RETURN_IF_ERROR(CheckRates(options.rates));
  RETURN_IF_ERROR(CheckCount("the number of prompt tokens", options.prompt_tokens, 1));
  RETURN_IF_ERROR(CheckCount("the number of output tokens", options.output_tokens, 0));
  RETURN_IF_ERROR(CheckCount("the number of requests", options.requests, 0));
  for (const double bytes : options.tier_bytes) {
    if (!std::isfinite(bytes) || bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the memory of a tier is ", bytes, " bytes, must be at least 0"));
    }
  }
  return std::unique_ptr<FlexGenCost>(new FlexGenCost(options));
}

absl::Status FlexGenCost::Check(const BlockChoice& choice) const {
  RETURN_IF_ERROR(CheckCount("the requests of a batch", choice.batch_requests, 1));
  RETURN_IF_ERROR(
      CheckCount("the requests of a block", choice.block_requests, choice.batch_requests));
  if (choice.chunk_tokens != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("prompt chunks of ", choice.chunk_tokens, " tokens: FlexGen has none"));
  }
  if (choice.host_attention && !IsFloat(choice.kv)) {
    return absl::InvalidArgumentError(absl::StrCat("attention on the host over keys and values in ",
                                                   DTypeName(choice.kv), ": FlexGen has none"));
  }
  return absl::OkStatus();
}

double FlexGenCost::HostAttentionRate(double batch_requests) const {
  const FlexGenRates& rates = options_.rates;
  const double batch = std::max(0.0, std::log2(64 / batch_requests));
  const double width = std::max(0.0, std::log2(4096 / Real(options_.shape.width)));
  const double efficiency = 1 + rates.small_batch_and_width * batch * width -
                            rates.small_batch * batch - rates.small_width * width;
  return rates.host_attention * std::max(kLeastHostEfficiency, efficiency);
}

// Of a layer's weights, once a batch.
double FlexGenCost::UnpackSeconds(const BlockChoice& choice) const {
  if (IsFloat(choice.weights)) {
    return 0;
  }
  const int64_t batches =
      (choice.block_requests + choice.batch_requests - 1) / choice.batch_requests;
  return Real(batches) * Real(options_.shape.layer_weights) / options_.rates.unpacked_elements;
}

FlexGenTerms FlexGenCost::PrefillTerms(const BlockChoice& choice) const {
  const FlexGenShape& shape = options_.shape;
  const FlexGenRates& rates = options_.rates;
  const double prompt = Real(options_.prompt_tokens);
  const double requests = Real(choice.block_requests);
  const double weights = SizeRatio(choice.weights) * 2 * Real(shape.layer_weights);
  const double hidden = 2 * prompt * Real(shape.width) * requests;
  const double kv = SizeRatio(choice.kv) * 4 * (prompt + 1) * Real(shape.kv_width) * requests;
  FlexGenTerms terms;
  terms.upload = Plus(On({kWeightsHost, kWeightsDisk}, weights / rates.upload),
                      On({kActivationsHost, kActivationsDisk}, hidden / rates.upload));
  terms.download =
      Plus(On({kKvHost, kKvDisk}, kv / rates.download_kv),
           On({kActivationsHost, kActivationsDisk}, hidden / rates.download_activations));
  terms.read =
      Plus(On({kWeightsDisk}, weights / rates.read), On({kActivationsDisk}, hidden / rates.read));
  terms.write = Plus(On({kKvDisk}, kv / rates.write_prompt_kv),
                     On({kActivationsDisk}, hidden / rates.write_prompt_activations));
  terms.compute = Constant(requests * prompt * 2 * Real(shape.layer_weights) / rates.prompt_matmul +
                           4 * requests * prompt * prompt * Real(shape.attention_width) /
                               rates.prompt_attention +
                           UnpackSeconds(choice));
  return terms;
}

FlexGenTerms FlexGenCost::DecodeTerms(const BlockChoice& choice) const {
  const FlexGenShape& shape = options_.shape;
  const FlexGenRates& rates = options_.rates;
  const double requests = Real(choice.block_requests);
  const double weights = SizeRatio(choice.weights) * 2 * Real(shape.layer_weights);
  const double hidden = 2 * Real(shape.width) * requests;
  // On average half of the outputs are there.
  const double positions = Real(options_.prompt_tokens) + Real(options_.output_tokens) / 2;
  const double kv_read = 4 * positions * Real(shape.kv_width) * requests;  // in 16 bits
  const double kv_ratio = SizeRatio(choice.kv);
  const double kv_written = kv_ratio * 4 * Real(shape.kv_width) * requests;
  const double weight_read_rate =
      rates.read * (options_.form == FlexGenForm::kReleased ? kReadEfficiency : 1.0);
  FlexGenTerms terms;
  terms.upload = Plus(On({kWeightsHost, kWeightsDisk}, weights / rates.upload),
                      On({kActivationsHost, kActivationsDisk}, hidden / rates.upload));
  terms.download = On({kActivationsHost, kActivationsDisk}, hidden / rates.download_activations);
  terms.read = Plus(On({kKvDisk}, kv_ratio * kv_read / rates.read),
                    On({kActivationsDisk}, hidden / rates.read));
  terms.read += On({kWeightsDisk}, weights / weight_read_rate);
  terms.write = Plus(On({kKvDisk}, kv_written / rates.write_decode),
                     On({kActivationsDisk}, hidden / rates.write_decode));
  terms.compute = Constant(requests * 2 * Real(shape.layer_weights) / rates.decode_matmul +
                           UnpackSeconds(choice));
  terms.compute += On({kKvDevice}, kv_read / rates.decode_attention);
  if (choice.host_attention) {
    terms.compute +=
        On({kKvHost, kKvDisk}, kv_read / HostAttentionRate(Real(choice.batch_requests)));
  } else {
    terms.compute += On({kKvHost, kKvDisk}, kv_read / rates.decode_attention);
    terms.upload += On({kKvHost, kKvDisk}, kv_ratio * kv_read / rates.upload);
  }
  if (!IsFloat(choice.kv)) {
    terms.compute +=
        Constant(requests * positions * 2 * Real(shape.kv_width) / rates.unpacked_elements);
  }
  return terms;
}

std::vector<CapacityRow> FlexGenCost::Capacities(const BlockChoice& choice) const {
  const bool released = options_.form == FlexGenForm::kReleased;
  const FlexGenShape& shape = options_.shape;
  const double layers = Real(shape.layers);
  const double width = Real(shape.width);
  const double ffn_width = Real(shape.ffn_width);
  const double heads = Real(shape.heads);
  const double kv_width = Real(shape.kv_width);
  const double prompt = Real(options_.prompt_tokens);
  const double whole = prompt + Real(options_.output_tokens);
  const double batch = Real(choice.batch_requests);
  const double block = Real(choice.block_requests);
  const double plain_weights = 2 * Real(shape.layer_weights);
  const double weights = SizeRatio(choice.weights) * plain_weights;
  const double kv_token = SizeRatio(choice.kv) * 4 * kv_width;  // of a layer
  const double kv = kv_token * whole * block * layers;

  // Where attention on the device reads keys and values from; the host's part it does itself.
  const auto attention = [&](double bytes) {
    return choice.host_attention ? On({kKvDevice}, bytes)
                                 : On({kKvDevice, kKvHost, kKvDisk}, bytes);
  };
  // What lies on a tier between batches: weights, activations and keys of `positions`.
  const auto home = [&](ShareId on_weights, ShareId on_kv, ShareId on_activations, double positions,
                        double kv_bytes) {
    LinearForm form = On({on_weights}, weights * layers);
    form[on_kv] = kv_bytes;
    form[on_activations] = 2 * positions * width * block;
    return form;
  };
  // Two layers of what is not on the device, and one batch of activations.
  const auto staging = [&](double layers_held, double positions) {
    LinearForm form = On({kWeightsHost, kWeightsDisk}, layers_held * weights);
    form += On({kActivationsHost, kActivationsDisk}, 2 * positions * width * batch);
    return form;
  };
  // Of compressed weights one layer in full; of keys that are uploaded two batches.
  LinearForm extra = Constant(IsFloat(choice.weights) ? 0 : plain_weights);
  if (!choice.host_attention) {
    extra += On({kKvHost, kKvDisk}, 2 * kv_token * whole * batch);
  }

  const double prompt_scores = 2 * heads * prompt * prompt;
  const LinearForm prompt_home = home(kWeightsDevice, kKvDevice, kActivationsDevice, prompt, kv);
  const LinearForm decode_home = home(kWeightsDevice, kKvDevice, kActivationsDevice, 1, kv);
  LinearForm prompt_base = Plus(Plus(prompt_home, staging(2, prompt)), extra);
  LinearForm decode_base = Plus(Plus(decode_home, staging(2, released ? 1 : prompt)), extra);
  std::vector<WorkMemory> prompt_work;
  std::vector<WorkMemory> decode_work;
  const double decode_keys = 2 * width + 2 * whole * kv_width + 2 * heads * whole;
  if (released) {
    decode_base += attention(4 * batch * whole * kv_width);
    prompt_work = {{"", Constant(batch * (8 * prompt * width + 2 * prompt * width + prompt_scores +
                                          2 * prompt * width + 4 * prompt * width +
                                          2 * prompt * ffn_width + 2 * prompt * width))}};
    decode_work = {{"", Plus(Constant(batch * (8 * width + 4 * width + 2 * ffn_width + 2 * width)),
                             attention(batch * (decode_keys + 2 * whole * kv_width + 2 * width)))}};
  } else {
    prompt_work = {{": projections", Constant(batch * 8 * prompt * width)},
                   {": attention", attention(batch * (4 * prompt * width + prompt_scores))},
                   {": output", Constant(batch * 4 * prompt * width)},
                   {": feed-forward", Constant(batch * 2 * prompt * (width + ffn_width))}};
    decode_work = {{": projections", Constant(batch * 8 * width)},
                   {": attention", attention(batch * decode_keys)},
                   {": output", Constant(batch * 4 * width)},
                   {": feed-forward", Constant(batch * 2 * (width + ffn_width))}};
  }

  std::vector<CapacityRow> rows;
  const auto add = [&](Tier tier, std::string name, LinearForm bytes) {
    rows.push_back({tier, std::move(name), bytes, options_.tier_bytes[static_cast<size_t>(tier)]});
  };
  for (const WorkMemory& work : prompt_work) {
    add(Tier::kDevice, "device, prefill" + work.name, Plus(prompt_base, work.bytes));
  }
  for (const WorkMemory& work : decode_work) {
    add(Tier::kDevice, "device, decode" + work.name, Plus(decode_base, work.bytes));
  }
  const double prompt_kv = released ? kv_token * prompt * block * layers : kv;
  add(Tier::kHost, "host, prefill",
      Plus(home(kWeightsHost, kKvHost, kActivationsHost, prompt, prompt_kv), staging(1, prompt)));
  LinearForm host = home(kWeightsHost, kKvHost, kActivationsHost, 1, kv);
  host += On({kWeightsDisk}, weights);
  host += On({kActivationsDisk}, 4 * width * batch);
  host += On({kKvDisk}, 2 * kv_token * whole * batch);
  host += Constant((choice.host_attention ? 2 * heads * whole * batch : 0) + 2 * width * batch);
  add(Tier::kHost, "host, decode", host);
  add(Tier::kDisk, "disk", home(kWeightsDisk, kKvDisk, kActivationsDisk, prompt, kv));
  return rows;
}

absl::StatusOr<PlacementProgram> FlexGenCost::Program(const BlockChoice& choice) const {
  RETURN_IF_ERROR(Check(choice));
  const FlexGenTerms prefill = PrefillTerms(choice);
  const FlexGenTerms decode = DecodeTerms(choice);
  const int64_t blocks = options_.requests == 0 ? 1
                                                : (options_.requests + choice.block_requests - 1) /
                                                      choice.block_requests;
  const double layers = Real(blocks) * Real(options_.shape.layers);

  PlacementProgram program;
  program.requests = Real(options_.requests == 0 ? choice.block_requests : options_.requests);
  program.held_share = 1 / Real(blocks);
  CostPhase prompts{.name = "prefill", .times = layers, .serial = {}, .overlapped = {}};
  CostPhase tokens{.name = "decode",
                   .times = layers * std::max(0.0, Real(options_.output_tokens) - 1),
                   .serial = {},
                   .overlapped = {{"download", decode.download},
                                  {"read", decode.read},
                                  {"write", decode.write},
                                  {"compute", decode.compute}}};
  if (options_.form == FlexGenForm::kPaper) {
    prompts.overlapped = {{"upload", prefill.upload},
                          {"download", prefill.download},
                          {"read", prefill.read},
                          {"write", prefill.write},
                          {"compute", prefill.compute}};
    tokens.overlapped.insert(tokens.overlapped.begin(), {"upload", decode.upload});
  } else {
    prompts.overlapped = {{"read and upload", Plus(prefill.upload, prefill.read)},
                          {"download and write", Plus(prefill.download, prefill.write)},
                          {"compute", prefill.compute}};
    tokens.serial = {{"upload", decode.upload}};
    program.fixed[static_cast<size_t>(kActivationsDisk)] = 0.0;
  }
  if (options_.unified_memory) {
    for (const ShareId share : {kWeightsHost, kKvHost, kActivationsHost}) {
      program.fixed[static_cast<size_t>(share)] = 0.0;
    }
  }
  program.phases = {std::move(prompts), std::move(tokens)};
  program.capacities = Capacities(choice);
  return program;
}

}  // namespace nightshift
