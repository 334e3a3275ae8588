#include "engine/policy/flexgen_cost.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/model/known_shapes.h"
#include "tests/support/status_matchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

// Cases of an independent implementation (tests/data/flexgen/flexgen_cost_reference.py).
Json ReadCases(const std::string& kind) {
  std::ifstream file(TEST_DATA_DIR "/flexgen/flexgen_cost_cases.json");
  const Json document = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  Json cases = Json::array();
  for (const Json& each : document["cases"]) {
    if (each["kind"] == kind) {
      cases.push_back(each);
    }
  }
  return cases;
}

FlexGenShape ShapeOf(const Json& model) {
  const int64_t width = model["h1"];
  const int64_t ffn_width = model["h2"];
  return {.layers = model["l"],
          .width = width,
          .ffn_width = ffn_width,
          .heads = model["nh"],
          .attention_width = width,
          .kv_width = width,
          .layer_weights = 4 * width * width + 2 * width * ffn_width};
}

FlexGenRates RatesOf(const Json& hardware) {
  return {.upload = hardware["ctog"],
          .download_kv = hardware["gtoc_cache"],
          .download_activations = hardware["gtoc_hidden"],
          .read = hardware["dtoc"],
          .write_prompt_kv = hardware["ctod_cache_p"],
          .write_prompt_activations = hardware["ctod_hidden_p"],
          .write_decode = hardware["ctod_g"],
          .prompt_matmul = hardware["mm_flops_p"],
          .decode_matmul = hardware["mm_flops_g"],
          .prompt_attention = hardware["bmm_flops_p"],
          .decode_attention = hardware["bmm_flops_g"],
          .host_attention = hardware["cpu_flops"],
          .small_batch_and_width = hardware["c1"],
          .small_batch = hardware["c2"],
          .small_width = hardware["c3"],
          .unpacked_elements = 1e12};
}

FlexGenOptions OptionsOf(const Json& each) {
  FlexGenOptions options{
      .form = each["form"] == "paper" ? FlexGenForm::kPaper : FlexGenForm::kReleased,
      .shape = ShapeOf(each["model"]),
      .prompt_tokens = each["workload"]["s"],
      .output_tokens = each["workload"]["n"],
      .rates = RatesOf(each["hardware"])};
  if (each.contains("capacity")) {
    const Json& bytes = each["capacity"];
    options.tier_bytes = {bytes["gpu"], bytes["cpu"], bytes["disk"]};
  }
  return options;
}

BlockChoice ChoiceOf(const Json& batches) {
  const int64_t batch = batches["gbs"];
  return {.block_requests = batch * batches["K"].get<int64_t>(),
          .batch_requests = batch,
          .host_attention = true};
}

Shares SharesOf(const Json& policy) {
  return {policy["wg"], policy["wc"], policy["wd"], policy["cg"], policy["cc"],
          policy["cd"], policy["hg"], policy["hc"], policy["hd"]};
}

// Values of one case by the reference's names.
std::map<std::string, double> ValuesOf(const Json& each) {
  const auto cost = FlexGenCost::Create(OptionsOf(each));
  EXPECT_OK(cost);
  const BlockChoice choice = ChoiceOf(each["policy"]);
  const Shares shares = SharesOf(each["policy"]);
  std::map<std::string, double> values;
  const auto add_terms = [&](const FlexGenTerms& terms, const std::string& phase) {
    values["ctog" + phase] = terms.upload.At(shares);
    values["gtoc" + phase] = terms.download.At(shares);
    values["dtoc" + phase] = terms.read.At(shares);
    values["ctod" + phase] = terms.write.At(shares);
    values["comp" + phase] = terms.compute.At(shares);
  };
  add_terms((*cost)->PrefillTerms(choice), "_p");
  add_terms((*cost)->DecodeTerms(choice), "_g");
  const std::map<std::string, std::string> memories = {{"device, prefill", "gpu_prefill"},
                                                       {"device, decode", "gpu_decode"},
                                                       {"host, prefill", "cpu_prefill"},
                                                       {"host, decode", "cpu_decode"},
                                                       {"disk", "disk"}};
  for (const CapacityRow& row : (*cost)->Capacities(choice)) {
    double& most = values[memories.at(row.name.substr(0, row.name.find(':')))];
    most = std::max(most, row.bytes.At(shares));
  }
  const auto program = (*cost)->Program(choice);
  EXPECT_OK(program);
  values["Tpre"] = PhaseSeconds(program->phases[0], shares);
  values["Tgen"] = PhaseSeconds(program->phases[1], shares);
  values["T"] = TotalSeconds(*program, shares);
  values["seconds_per_request"] = values["T"] / program->requests;
  values["throughput"] = program->requests * each["workload"]["n"].get<double>() / values["T"];
  return values;
}

TEST(FlexGenCostTest, EveryTermAndPeakIsTheReferences) {
  const Json cases = ReadCases("policy");
  EXPECT_EQ(cases.size(), 15U);
  for (const Json& each : cases) {
    std::map<std::string, double> values = ValuesOf(each);
    Json expected = each["expected"];
    expected.update(each["expected"]["terms"]);
    expected.update(each["expected"]["memory"]);
    expected.erase("terms");
    expected.erase("memory");
    EXPECT_EQ(expected.size(), 20U);
    for (const auto& [name, value] : expected.items()) {
      const auto right = value.get<double>();
      EXPECT_NEAR(values[name], right, 1e-9 * right) << each["name"] << " " << name;
    }
  }
}

TEST(FlexGenCostTest, PublishedValuesAreReproducedToTheirDigits) {
  size_t num_compared = 0;
  for (const Json& each : ReadCases("policy")) {
    if (!each.contains("published")) {
      continue;
    }
    std::map<std::string, double> values = ValuesOf(each);
    for (const auto& [name, published] : each["published"].items()) {
      const bool is_memory = name.find("gpu_") == 0 || name.find("cpu_") == 0;
      EXPECT_NEAR(values[name] / (is_memory ? 1 << 30 : 1), published[0].get<double>(),
                  published[1].get<double>())
          << each["name"] << " " << name;
      ++num_compared;
    }
  }
  EXPECT_GE(num_compared, 40U);
}

TEST(FlexGenCostTest, EveryPlacementIsAsGoodAsTheReferences) {
  const Json cases = ReadCases("lp");
  EXPECT_EQ(cases.size(), 6U);
  for (const Json& each : cases) {
    ASSERT_OK_AND_ASSIGN(const auto cost, FlexGenCost::Create(OptionsOf(each)));
    ASSERT_OK_AND_ASSIGN(const PlacementProgram program, cost->Program(ChoiceOf(each)));
    const auto solution = SolvePlacement(program);
    const Json& expected = each["expected"];
    if (!expected["feasible"].get<bool>()) {
      EXPECT_THAT(solution, StatusIs(absl::StatusCode::kResourceExhausted, "the disk lacks"));
      continue;
    }
    ASSERT_OK(solution) << each["name"];
    const double right = expected["seconds_per_request"];
    EXPECT_NEAR(solution->seconds_per_request, right, 1e-6 * right) << each["name"];
    EXPECT_NEAR(solution->phase_seconds[0], expected["Tpre"], 1e-5 * right) << each["name"];
    for (size_t i = 0; i < program.capacities.size(); ++i) {
      EXPECT_LE(solution->capacity_bytes[i], program.capacities[i].capacity_bytes * (1 + 1e-6))
          << each["name"] << " " << program.capacities[i].name;
    }
  }
}

FlexGenOptions SmallOptions() {
  return {.form = FlexGenForm::kPaper,
          .shape = FlexGenShapeOf(FindKnownShape("opt-30b")->config).value(),
          .prompt_tokens = 512,
          .output_tokens = 32,
          .rates = ShippedFlexGenRates(),
          .tier_bytes = {16e9, 208e9, 1.5e12}};
}

TEST(FlexGenCostTest, ShippedRatesAreThoseOfTheReference) {
  const FlexGenRates shipped = ShippedFlexGenRates();
  const FlexGenRates reference = RatesOf(ReadCases("policy")[0]["hardware"]);
  EXPECT_DOUBLE_EQ(shipped.upload, reference.upload);
  EXPECT_DOUBLE_EQ(shipped.download_kv, reference.download_kv);
  EXPECT_DOUBLE_EQ(shipped.read, reference.read);
  EXPECT_DOUBLE_EQ(shipped.write_prompt_kv, reference.write_prompt_kv);
  EXPECT_DOUBLE_EQ(shipped.host_attention, reference.host_attention);
  EXPECT_DOUBLE_EQ(shipped.decode_attention, reference.decode_attention);
}

TEST(FlexGenCostTest, AnOptModelHasTheShapeOfThePaper) {
  ASSERT_OK_AND_ASSIGN(const KnownShape known, FindKnownShape("opt-30b"));
  ASSERT_OK_AND_ASSIGN(const FlexGenShape shape, FlexGenShapeOf(known.config));
  EXPECT_EQ(shape.layer_weights, 4 * 7168 * 7168 + 2 * 7168 * int64_t{28672});
  EXPECT_EQ(shape.kv_width, 7168);
}

TEST(FlexGenCostTest, GroupedHeadsAndGatedFeedForwardsCount) {
  ASSERT_OK_AND_ASSIGN(const KnownShape known, FindKnownShape("llama-3-8b"));
  ASSERT_OK_AND_ASSIGN(const FlexGenShape shape, FlexGenShapeOf(known.config));
  EXPECT_EQ(shape.layer_weights, 4096 * (2 * 4096 + 2 * 1024 + 3 * int64_t{14336}));
  EXPECT_EQ(shape.kv_width, 1024);
}

TEST(FlexGenCostTest, ExpertsAreRefused) {
  ASSERT_OK_AND_ASSIGN(const KnownShape known, FindKnownShape("mixtral-8x7b"));
  EXPECT_THAT(FlexGenShapeOf(known.config),
              StatusIs(absl::StatusCode::kInvalidArgument, "mixture of 8 experts"));
}

TEST(FlexGenCostTest, CompressionTakesFourAndAHalfBitsAndTheTimeOfUnpacking) {
  ASSERT_OK_AND_ASSIGN(const auto cost, FlexGenCost::Create(SmallOptions()));
  const BlockChoice plain{.block_requests = 144, .batch_requests = 48};
  BlockChoice compressed = plain;
  compressed.weights = compressed.kv = DType::kU4G64;
  const FlexGenTerms before = cost->DecodeTerms(plain);
  const FlexGenTerms after = cost->DecodeTerms(compressed);
  for (const ShareId share : {ShareId::kWeightsDisk, ShareId::kKvDisk}) {
    EXPECT_NEAR(after.read[share], 4.5 / 16 * before.read[share], 1e-12);
    EXPECT_NEAR(after.upload[share], 4.5 / 16 * before.upload[share], 1e-12);
  }
  // Three batches unpack the layer's weights, each request its keys and values.
  const double elements =
      3.0 * static_cast<double>(SmallOptions().shape.layer_weights) + 144.0 * 528 * 2 * 7168;
  EXPECT_NEAR(after.compute.constant - before.compute.constant,
              elements / ShippedFlexGenRates().unpacked_elements, 1e-12);
}

TEST(FlexGenCostTest, WithoutTheHostsAttentionKeysAreUploaded) {
  ASSERT_OK_AND_ASSIGN(const auto cost, FlexGenCost::Create(SmallOptions()));
  BlockChoice choice{.block_requests = 144, .batch_requests = 48};
  const FlexGenTerms uploaded = cost->DecodeTerms(choice);
  choice.host_attention = true;
  const FlexGenTerms delegated = cost->DecodeTerms(choice);
  const double kv_bytes = 4.0 * 144 * 528 * 7168;
  EXPECT_NEAR(uploaded.upload[ShareId::kKvHost], kv_bytes / ShippedFlexGenRates().upload, 1e-12);
  EXPECT_EQ(delegated.upload[ShareId::kKvHost], 0);
  EXPECT_EQ(uploaded.compute[ShareId::kKvHost], uploaded.compute[ShareId::kKvDevice]);
}

TEST(FlexGenCostTest, AJobTakesWholeBlocks) {
  FlexGenOptions options = SmallOptions();
  options.requests = 300;
  ASSERT_OK_AND_ASSIGN(const auto cost, FlexGenCost::Create(options));
  ASSERT_OK_AND_ASSIGN(const PlacementProgram program,
                       cost->Program({.block_requests = 144, .batch_requests = 48}));
  EXPECT_EQ(program.requests, 300);
  EXPECT_EQ(program.phases[0].times, 3 * 48);
  EXPECT_EQ(program.phases[1].times, 3 * 48 * 31);
  EXPECT_DOUBLE_EQ(program.held_share, 1.0 / 3);
}

TEST(FlexGenCostTest, PromptsThatAreOnlyScoredHaveNoDecode) {
  FlexGenOptions options = SmallOptions();
  options.output_tokens = 0;
  ASSERT_OK_AND_ASSIGN(const auto cost, FlexGenCost::Create(options));
  ASSERT_OK_AND_ASSIGN(const PlacementProgram program, cost->Program({}));
  EXPECT_EQ(program.phases[1].times, 0);
}

TEST(FlexGenCostTest, NonsenseIsRefusedByName) {
  const auto refusal = [](void (*change)(FlexGenOptions&)) {
    FlexGenOptions options = SmallOptions();
    change(options);
    return FlexGenCost::Create(options).status();
  };
  EXPECT_THAT(refusal([](FlexGenOptions& o) { o.rates.upload = 0; }),
              StatusIs(absl::StatusCode::kInvalidArgument, "rate of upload is 0"));
  EXPECT_THAT(refusal([](FlexGenOptions& o) { o.rates.read = -1; }),
              StatusIs(absl::StatusCode::kInvalidArgument, "rate of reading is -1"));
  EXPECT_THAT(refusal([](FlexGenOptions& o) { o.rates.prompt_matmul = 0.0 / 0.0; }),
              StatusIs(absl::StatusCode::kInvalidArgument, "prompts' matmul is nan"));
  EXPECT_THAT(refusal([](FlexGenOptions& o) { o.shape.layers = 0; }),
              StatusIs(absl::StatusCode::kInvalidArgument, "number of layers is 0"));
  EXPECT_THAT(refusal([](FlexGenOptions& o) { o.prompt_tokens = -5; }),
              StatusIs(absl::StatusCode::kInvalidArgument, "prompt tokens is -5"));
  EXPECT_THAT(refusal([](FlexGenOptions& o) { o.tier_bytes[1] = -1; }),
              StatusIs(absl::StatusCode::kInvalidArgument, "memory of a tier is -1"));
}

TEST(FlexGenCostTest, ChoicesThatFlexGenDoesNotHaveAreRefused) {
  ASSERT_OK_AND_ASSIGN(const auto cost, FlexGenCost::Create(SmallOptions()));
  EXPECT_THAT(cost->Program({.block_requests = 4, .batch_requests = 8}),
              StatusIs(absl::StatusCode::kInvalidArgument, "requests of a block is 4"));
  EXPECT_THAT(cost->Program({.block_requests = 4, .batch_requests = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, "requests of a batch is 0"));
  EXPECT_THAT(cost->Program({.chunk_tokens = 128}),
              StatusIs(absl::StatusCode::kInvalidArgument, "chunks of 128 tokens"));
  EXPECT_THAT(cost->Program({.kv = DType::kU4G64, .host_attention = true}),
              StatusIs(absl::StatusCode::kInvalidArgument, "values in U4G64"));
}

}  // namespace
}  // namespace nightshift
