#include "server/options.h"

#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "server/memory_limit.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Read(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv = {"nightshiftd"};
  for (const std::string& argument : arguments) {
    argv.push_back(argument.c_str());
  }
  return ReadCommandLine(static_cast<int>(argv.size()), argv.data());
}

class OptionsTest : public ::testing::Test {
 protected:
  ~OptionsTest() override {
    ::unsetenv("NIGHTSHIFT_DRAIN_TIMEOUT");
    ::unsetenv("NIGHTSHIFT_STATE_DIR");
  }
  std::string ConfigFile(const std::string& text) {
    const std::string path = folder_.path() + "/nightshiftd.toml";
    std::ofstream(path) << text;
    return path;
  }

  TemporaryFolder folder_;
};

TEST_F(OptionsTest, ReadsFlags) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Read({"--model", "a", "--model", "b", "--state-dir", "/s", "--memory-budget", "3GiB",
            "--weight-budget", "1GiB",
            "--listen", "127.0.0.1:0", "--compute-type", "f32", "--threads=3",
            "--kv-type", "auto", "--allow-lossy", "yes", "--sparse-attention", "0.1"}));
  EXPECT_EQ(line.command, Command::kServe);
  EXPECT_THAT(line.options.models, ElementsAre("a", "b"));
  EXPECT_THAT(line.options.listen, ElementsAre("127.0.0.1:0"));
  EXPECT_EQ(line.options.memory_budget_bytes, int64_t{3} << 30);
  EXPECT_EQ(line.options.weight_budget_bytes, int64_t{1} << 30);
  EXPECT_EQ(line.options.compute_type, ComputeType::kF32);
  EXPECT_EQ(line.options.kv_type, v1::COMPRESSION_CHOICE_AUTO);
  EXPECT_TRUE(line.options.allow_lossy);
  EXPECT_EQ(line.options.sparse_attention, 0.1);
  EXPECT_EQ(line.options.threads, 3);
}

TEST_F(OptionsTest, ListensInTheStateDirectoryByDefault) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line, Read({"--state-dir", "/s"}));
  EXPECT_THAT(line.options.listen, ElementsAre("unix:/s/nightshift.sock"));
  EXPECT_GT(line.options.memory_budget_bytes, 0);
}

TEST_F(OptionsTest, LetsFlagsWinOverEnvironmentAndEnvironmentOverFile) {
  const std::string config =
      ConfigFile("drain-timeout = 5\nthreads = 2\nmax-uploads = 3\nmax-choices = 4\n");
  ::setenv("NIGHTSHIFT_DRAIN_TIMEOUT", "6", 1);
  ASSERT_OK_AND_ASSIGN(const CommandLine line,
                       Read({"--config", config, "--threads", "4", "--print-config"}));
  EXPECT_EQ(line.command, Command::kPrintConfig);
  EXPECT_EQ(line.options.drain_timeout_s, 6);
  EXPECT_EQ(line.options.threads, 4);
  EXPECT_EQ(line.options.max_uploads, 3);
  EXPECT_EQ(line.options.max_choices, 4);
  EXPECT_THAT(line.effective, Contains("drain-timeout=6 (NIGHTSHIFT_DRAIN_TIMEOUT)"));
  EXPECT_THAT(line.effective, Contains("threads=4 (command line)"));
  EXPECT_THAT(line.effective, Contains("max-uploads=3 (config file)"));
  EXPECT_THAT(line.effective, Contains("max-block-requests=256 (default)"));
}

TEST_F(OptionsTest, RefusesUnknownFlagsAndKeys) {
  EXPECT_THAT(Read({"--modle", "x"}), StatusIs(absl::StatusCode::kInvalidArgument, "--modle"));
  const std::string config = ConfigFile("modle = \"x\"\n");
  EXPECT_THAT(Read({"--config", config}), StatusIs(absl::StatusCode::kInvalidArgument, "modle"));
  EXPECT_THAT(Read({"--config", config}),
              StatusIs(absl::StatusCode::kInvalidArgument, "config file"));
  EXPECT_FALSE(Read({"--config", folder_.path() + "/missing.toml"}).ok());
}

TEST_F(OptionsTest, RefusesValuesOutOfRange) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--threads", "-1"},
                                             {"--threads", "many"},
                                             {"--memory-budget", "4 apples"},
                                             {"--memory-budget", "1k"},
                                             {"--memory-budget", "0"},
                                             {"--compute-type", "f64"},
                                             {"--kv-type", "int3"},
                                             {"--allow-lossy", "maybe"},
                                             {"--sparse-attention", "0"},
                                             {"--sparse-attention", "1.1"},
                                             {"--sparse-attention", "nan"},
                                             {"--log-format", "xml"},
                                             {"--drain-timeout", "0"},
                                             {"--max-prompt-bytes", "2GiB"},
                                             {"--max-custom-id-bytes", "0"},
                                             {"--max-labels", "-1"},
                                             {"--max-json-depth", "1000"},
                                             {"--max-message-bytes", "1KiB"},
                                             {"--max-chunk-bytes", "4MiB"},
                                             {"--max-wait", "0"},
                                             {"--max-block-requests", "0"}}) {
    const auto line = Read(flags);
    EXPECT_THAT(line, StatusIs(absl::StatusCode::kInvalidArgument, flags[0])) << flags[1];
  }
}

TEST_F(OptionsTest, ExplainsAddressesItDoesNotServe) {
  EXPECT_THAT(Read({"--listen", "0.0.0.0:9000"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no TLS"));
  EXPECT_THAT(Read({"--listen", "127.0.0.1"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "HOST:PORT"));
  EXPECT_THAT(Read({"--state-dir", "/" + std::string(200, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument, "a socket path has 1 to 107 bytes"));
  EXPECT_OK(Read({"--listen", "[::1]:9000"}));
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--listen", "0.0.0.0:9000", "--tls-cert", "c", "--tls-key", "k"});
    return Read(more);
  };
  EXPECT_THAT(with({}), StatusIs(absl::StatusCode::kInvalidArgument, "no --access-file"));
  EXPECT_THAT(with({"--access-file", "a"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "no --tls-client-ca"));
  EXPECT_OK(with({"--access-file", "a", "--allow-token-only", "yes"}));
  EXPECT_OK(with({"--access-file", "a", "--tls-client-ca", "ca"}));
  EXPECT_THAT(Read({"--tls-cert", "c"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--tls-cert and --tls-key"));
  EXPECT_THAT(Read({"--tls-client-ca", "c"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--tls-client-ca needs"));
  EXPECT_THAT(Read({"--allow-token-only", "maybe"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--allow-token-only is maybe"));
}

TEST_F(OptionsTest, ServesHttpOnLoopbackAndOnRequest) {
  ASSERT_OK_AND_ASSIGN(const CommandLine plain, Read({}));
  EXPECT_EQ(plain.options.http_listen, "");
  ASSERT_OK_AND_ASSIGN(const CommandLine asked, Read({"--http-listen", "127.0.0.1:9464"}));
  EXPECT_EQ(asked.options.http_listen, "127.0.0.1:9464");
  EXPECT_THAT(Read({"--http-listen", "0.0.0.0:9464"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--http-listen is 0.0.0.0:9464"));
}

TEST_F(OptionsTest, ReadsTools) {
  ASSERT_OK_AND_ASSIGN(const CommandLine import,
                       Read({"import", "folder", "--output", "pack", "--name", "n"}));
  EXPECT_EQ(import.command, Command::kImport);
  EXPECT_EQ(import.source, "folder");
  EXPECT_EQ(import.output, "pack");
  ASSERT_OK_AND_ASSIGN(const CommandLine show, Read({"model", "show", "pack", "--json"}));
  EXPECT_EQ(show.command, Command::kModelShow);
  EXPECT_TRUE(show.json);
  ASSERT_OK_AND_ASSIGN(const CommandLine verify, Read({"model", "verify", "pack"}));
  EXPECT_EQ(verify.command, Command::kModelVerify);
  EXPECT_FALSE(Read({"import", "folder"}).ok());
  EXPECT_FALSE(Read({"model"}).ok());
}

TEST_F(OptionsTest, ReadsACalibration) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Read({"calibrate", "--out", "here.json", "--folder", "/packs", "--seconds", "30", "--threads",
            "2", "--device-budget", "1GiB", "--upload-rate", "2GiB", "--json"}));
  EXPECT_EQ(line.command, Command::kCalibrate);
  EXPECT_EQ(line.calibrate.output, "here.json");
  const CalibrationOptions& calibration = line.calibrate.calibration;
  EXPECT_EQ(calibration.folder, "/packs");
  EXPECT_EQ(calibration.measure.most_seconds, 30.0);
  EXPECT_EQ(calibration.discrete.num_threads, 2);
  EXPECT_EQ(calibration.device_bytes, int64_t{1} << 30);
  EXPECT_EQ(calibration.discrete.upload_bytes_per_s, 2.0 * (1 << 30));
  EXPECT_GT(calibration.host_bytes, 0);
  EXPECT_GE(calibration.memory_limit_bytes, calibration.host_bytes);
  EXPECT_TRUE(line.json);
}

TEST_F(OptionsTest, RefusesCalibrationsThatCannotBe) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--seconds", "0"}, {"--threads", "-1"}, {"--device-budget", "a lot"}, {"--loud", "1"}}) {
    EXPECT_THAT(Read({"calibrate", flags[0], flags[1]}),
                StatusIs(absl::StatusCode::kInvalidArgument, flags[0]));
  }
}

TEST_F(OptionsTest, ReadsAnImportOfRandomWeights) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line,
                       Read({"import", "--random", "1b", "-o", "pack", "--weights", "f32", "--seed",
                             "18446744073709551615", "--tokenizer", "texts"}));
  EXPECT_EQ(line.command, Command::kImportRandom);
  EXPECT_EQ(line.random.shape, "1b");
  EXPECT_EQ(line.random.output, "pack");
  EXPECT_EQ(line.random.weights, DType::kF32);
  EXPECT_EQ(line.random.seed, UINT64_MAX);
  EXPECT_EQ(line.random.tokenizer, "texts");
}

TEST_F(OptionsTest, ReadsTypesOfWeightsToImport) {
  ASSERT_OK_AND_ASSIGN(const CommandLine plain, Read({"import", "folder", "-o", "pack"}));
  EXPECT_EQ(plain.types.matrices, std::nullopt);
  EXPECT_FALSE(plain.types.requantises);
  ASSERT_OK_AND_ASSIGN(const CommandLine line,
                       Read({"import", "folder", "-o", "pack", "--weights", "int4", "--embeddings",
                             "INT8", "--head", "bf16", "--requantise"}));
  EXPECT_EQ(line.types.matrices, DType::kU4G64);
  EXPECT_EQ(line.types.embeddings, DType::kI8G64);
  EXPECT_EQ(line.types.head, DType::kBF16);
  EXPECT_TRUE(line.types.requantises);
  ASSERT_OK_AND_ASSIGN(const CommandLine random,
                       Read({"import", "--random", "1b", "-o", "pack", "--weights", "i4g64"}));
  EXPECT_EQ(random.random.weights, DType::kI4G64);
  EXPECT_THAT(Read({"import", "folder", "-o", "pack", "--head", "q4"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "--head: q4 is no type of weights; there are f32, bf16, int8, int4"));
}

TEST_F(OptionsTest, RefusesImportsThatContradictThemselves) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--output", "pack"},
           {"folder", "--random", "1b", "--output", "pack"},
           {"folder", "--seed", "1", "--output", "pack"},
           {"--random", "1b", "--weights", "q4", "--output", "pack"},
           {"--random", "1b", "--head", "int8", "--output", "pack"},
           {"--random", "1b", "--requantise", "--output", "pack"},
           {"--random", "1b", "--seed", "-1", "--output", "pack"},
           {"--random", "1b", "--chat-template", "file", "--output", "pack"}}) {
    std::vector<std::string> arguments = {"import"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    EXPECT_FALSE(Read(arguments).ok()) << words[1];
  }
}

TEST_F(OptionsTest, ReadsABenchWithOptionsOfTheEngine) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Read({"bench", "pack", "--requests", "64", "--prompt-tokens", "100", "--output-tokens", "10",
            "--sweeps", "4", "--start-context", "50", "--memory-budget", "1GiB", "--weight-budget",
            "0", "--block", "32", "--sweep-tokens", "4096", "--batch-tokens", "256", "--threads",
            "2", "--disk-backend", "threads", "--compute-type", "f32", "--kv-type", "int8",
            "--sparse-attention", "0.5", "--json"}));
  EXPECT_EQ(line.command, Command::kBench);
  EXPECT_TRUE(line.json);
  EXPECT_EQ(line.bench.requests, 64);
  EXPECT_EQ(line.bench.start_context, 50);
  const EngineOptions& engine = line.bench.engine;
  EXPECT_EQ(engine.pack_path, "pack");
  EXPECT_EQ(engine.memory_budget_bytes, int64_t{1} << 30);
  EXPECT_EQ(engine.weight_budget_bytes, 0);
  EXPECT_EQ(engine.max_block_requests, 32);
  EXPECT_EQ(engine.max_sweep_tokens, 4096);
  EXPECT_EQ(engine.max_batch_tokens, 256);
  EXPECT_EQ(engine.num_threads, 2);
  EXPECT_EQ(engine.disk_backend, DiskBackend::kThreads);
  EXPECT_EQ(engine.compute_type, ComputeType::kF32);
  EXPECT_EQ(engine.kv_type, DType::kU8G64);
  EXPECT_EQ(engine.sparse_attention, 0.5);
}

TEST_F(OptionsTest, RefusesBenchesThatCannotRun) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--requests", "1"},
           {"pack", "--requests", "0"},
           {"pack", "--memory-budget", "much"},
           {"pack", "--disk-backend", "tape"},
           {"pack", "--compute-type", "f64"},
           {"pack", "--kv-type", "auto"},
           {"pack", "--sparse-attention", "0"},
           {"pack", "--start-context", "9999"}}) {
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    EXPECT_EQ(Read(arguments).status().code(), absl::StatusCode::kInvalidArgument) << words[1];
  }
}

TEST_F(OptionsTest, ReadsAPlan) {
  ASSERT_OK_AND_ASSIGN(
      const CommandLine line,
      Read({"plan", "opt-30b", "--requests", "1000", "--prompt-tokens", "100", "--output-tokens",
            "10", "--hardware", "t4", "--model-form", "flexgen", "--deadline", "1h30m",
            "--max-latency", "20m", "--weights", "bf16,u4g64", "--kv", "i8g32", "--attention",
            "host", "--weight-shares", "20,50", "--block", "64", "--batch", "8", "--margin", "2.5",
            "--frontier", "--svg", "plot.svg", "--json"}));
  EXPECT_EQ(line.command, Command::kPlan);
  const PlanModelOptions& plan = line.plan;
  EXPECT_EQ(plan.model, "opt-30b");
  EXPECT_EQ(plan.hardware, "t4");
  EXPECT_EQ(plan.form, ModelForm::kFlexGen);
  EXPECT_EQ(plan.requests, 1000);
  EXPECT_EQ(plan.prompt_tokens, 100);
  EXPECT_EQ(plan.output_tokens, 10);
  EXPECT_EQ(plan.deadline_s, 5400);
  EXPECT_EQ(plan.max_held_s, 1200);
  EXPECT_THAT(plan.weights, ElementsAre(DType::kBF16, DType::kU4G64));
  EXPECT_THAT(plan.kv, ElementsAre(DType::kI8G32));
  EXPECT_EQ(plan.host_attention, true);
  EXPECT_EQ(plan.shares[0], 0.2);
  EXPECT_NEAR(*plan.shares[2], 0.3, 1e-12);
  EXPECT_EQ(plan.shares[3], std::nullopt);
  EXPECT_EQ(plan.block, 64);
  EXPECT_EQ(plan.batch, 8);
  EXPECT_EQ(plan.margin_percent, 2.5);
  EXPECT_TRUE(plan.frontier && plan.json);
  EXPECT_EQ(plan.svg_path, "plot.svg");
}

TEST_F(OptionsTest, RefusesPlansThatMeanNothing) {
  for (const auto& [flag, text] : std::vector<std::pair<std::string, std::string>>{
           {"--deadline", "soon"},
           {"--deadline", "-6h"},
           {"--deadline", "inf"},
           {"--max-latency", "0s"},
           {"--model-form", "guess"},
           {"--weights", "bf17"},
           {"--attention", "both"},
           {"--kv-shares", "60,50"},
           {"--requests", "many"},
           {"--svg", "plot.svg"}}) {
    EXPECT_THAT(Read({"plan", "opt-30b", flag, text}),
                StatusIs(absl::StatusCode::kInvalidArgument, flag))
        << text;
  }
  EXPECT_FALSE(Read({"plan"}).ok());
}

TEST_F(OptionsTest, HelpsWithVariables) {
  ASSERT_OK_AND_ASSIGN(const CommandLine line, Read({"--help"}));
  EXPECT_EQ(line.command, Command::kPrintText);
  EXPECT_THAT(line.text, HasSubstr("NIGHTSHIFT_MEMORY_BUDGET"));
}

TEST(MemoryLimitTest, ReadsSizesWithUnits) {
  EXPECT_EQ(ParseSize("4GiB").value(), int64_t{4} << 30);
  EXPECT_EQ(ParseSize("1.5 MB").value(), 1'500'000);
  EXPECT_EQ(ParseSize("64k").value(), 64 << 10);
  EXPECT_EQ(ParseSize("123").value(), 123);
  for (const char* wrong : {"", "GiB", "-1", "1 XB", "1e3", "1GiBs", "99999999999TiB"}) {
    EXPECT_FALSE(ParseSize(wrong).ok()) << wrong;
  }
}

TEST(MemoryLimitTest, FindsWhatTheMachineHas) {
  EXPECT_EQ(ParseMemAvailable("MemTotal: 10 kB\nMemAvailable:   7 kB\n"), 7 * 1024);
  EXPECT_EQ(ParseMemAvailable("MemTotal: 10 kB\n"), std::nullopt);
  EXPECT_GT(AvailableMemoryBytes(), 0);
}

}  // namespace
}  // namespace nightshift
