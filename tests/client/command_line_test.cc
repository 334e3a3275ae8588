#include "client/command_line.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/option_checks.h"
#include "proto/nightshift/default_address.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

class CommandLineTest : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("NIGHTSHIFT_ADDRESS");
    setenv("XDG_CONFIG_HOME", config_.path().c_str(), 1);
  }
  void TearDown() override {
    unsetenv("NIGHTSHIFT_ADDRESS");
    unsetenv("XDG_CONFIG_HOME");
  }

  // As a user keeps it in client.toml.
  std::string Configure(const std::string& text) {
    std::filesystem::create_directories(config_.path() + "/nightshift");
    const std::string path = config_.path() + "/nightshift/client.toml";
    std::ofstream(path) << text;
    return path;
  }

  static CommandLine Parse(const std::vector<std::string>& arguments) {
    const ParsedCommandLine parsed = ParseCommandLine(arguments);
    EXPECT_TRUE(parsed.command_line.has_value()) << parsed.error;
    return parsed.command_line.value_or(CommandLine());
  }

  static std::string Refuse(const std::vector<std::string>& arguments) {
    const ParsedCommandLine parsed = ParseCommandLine(arguments);
    EXPECT_FALSE(parsed.command_line.has_value());
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_EQ(parsed.error.find('\n'), std::string::npos);
    return parsed.error;
  }

  const TemporaryFolder config_;
};

TEST_F(CommandLineTest, TakesWhatNoCommandSaysFromTheUsersFile) {
  Configure("# the batch machine\naddress = \"batch.example:7443\"\ntoken-file = '/home/a/token'\n"
            "ca = \"/home/a/ca.pem\"\nclient-cert = \"/home/a/c.pem\"\nclient-key = \"/home/a/c.key\"\n");
  const CommandLine line = Parse({"list"});
  EXPECT_EQ(line.address, "batch.example:7443");
  EXPECT_EQ(line.credentials.token, "/home/a/token");
  EXPECT_EQ(line.credentials.ca, "/home/a/ca.pem");
  EXPECT_EQ(line.credentials.client_certificate, "/home/a/c.pem");
  EXPECT_EQ(line.credentials.client_key, "/home/a/c.key");
  EXPECT_EQ(Parse({"list", "--token-file", "mine"}).credentials.token, "mine");
  setenv("NIGHTSHIFT_ADDRESS", "unix:/from/environment", 1);
  EXPECT_EQ(Parse({"list"}).address, "unix:/from/environment");
  EXPECT_EQ(Parse({"list"}).credentials.ca, "/home/a/ca.pem");
}

TEST_F(CommandLineTest, RefusesAUsersFileByItsNameAndKey) {
  for (const auto& [text, wrong] : std::vector<std::pair<std::string, std::string>>{
           {"adress = \"x\"\n", "adress is no key of it; there are address, token-file"},
           {"[run]\nmodel = \"x\"\n", "run is no key of it"},
           {"token-file = \"token\"\n", "token-file is token, must be an absolute path"},
           {"address = \"\"\n", "address must be one text"},
           {"address = [\"a\", \"b\"]\n", "address must be one text"}}) {
    const std::string path = Configure(text);
    EXPECT_NE(Refuse({"list"}).find(path + ": " + wrong), std::string::npos) << Refuse({"list"});
  }
}

TEST_F(CommandLineTest, EvaluateTakesTaskDataAndWhatToCompareWith) {
  const CommandLine line =
      Parse({"evaluate", "small", "--task", "next-word", "--data", "words.jsonl", "--against",
             "packs/large", "--compute-type", "bf16", "--against-compute-type", "f32", "--kv-type",
             "int4", "--against-kv-type", "none", "--sparse-attention", "0.1",
             "--against-sparse-attention", "1", "--json"});
  EXPECT_EQ(line.command, Command::kEvaluate);
  EXPECT_EQ(line.task, EvaluationTask::kNextWord);
  EXPECT_EQ(line.model, "small");
  EXPECT_EQ(line.input, "words.jsonl");
  EXPECT_EQ(line.against, "packs/large");
  EXPECT_EQ(line.spec.compute_type(), v1::COMPUTE_TYPE_CHOICE_BF16);
  EXPECT_EQ(line.against_compute_type, v1::COMPUTE_TYPE_CHOICE_F32);
  EXPECT_EQ(line.spec.compression().kv(), v1::COMPRESSION_CHOICE_INT4);
  EXPECT_EQ(line.against_kv_type, v1::COMPRESSION_CHOICE_NONE);
  EXPECT_EQ(line.spec.sparse_attention(), 0.1);
  EXPECT_EQ(line.against_sparse_attention, 1.0);
  const std::vector<std::string> start = {"evaluate", "m", "--task", "perplexity", "--data", "x"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), start.begin(), start.end());
    return more;
  };
  EXPECT_EQ(Parse(with({"--window", "64", "--stride", "32"})).windows.stride_words, 32);
  EXPECT_NE(Refuse(with({"--window", "64", "--stride", "64"})).find("--stride 64 must be below"),
            std::string::npos);
  EXPECT_NE(Refuse(with({"--against-compute-type", "f32"})).find("needs --against"),
            std::string::npos);
  EXPECT_NE(Refuse(with({"--against-kv-type", "int8"})).find("--against-kv-type needs --against"),
            std::string::npos);
  EXPECT_NE(Refuse(with({"--kv-type", "int2"})).find("int2"), std::string::npos);
  EXPECT_NE(Refuse(with({"--against-sparse-attention", "1"})).find("needs --against"),
            std::string::npos);
  for (const char* share : {"0", "1.5", "nan", "-1"}) {
    EXPECT_NE(Refuse(with({"--sparse-attention", share})).find("above 0, at most 1"),
              std::string::npos);
  }
  EXPECT_NE(Refuse({"evaluate", "m", "--task", "recall", "--data", "x"}).find("next-word"),
            std::string::npos);
  EXPECT_NE(Refuse({"evaluate", "m", "--task", "perplexity"}).find("--data"), std::string::npos);
}

TEST_F(CommandLineTest, RunTakesJobAndSamplingOptions) {
  const CommandLine line = Parse({"run",
                                  "in.jsonl",
                                  "-o",
                                  "out.jsonl",
                                  "--max-tokens",
                                  "64",
                                  "--temperature",
                                  "0.7",
                                  "--top-p",
                                  "0.9",
                                  "--top-k",
                                  "40",
                                  "--seed",
                                  "18446744073709551615",
                                  "--stop",
                                  "###",
                                  "--stop",
                                  "\n\n",
                                  "--top-logprobs",
                                  "3",
                                  "--chat-template-kwargs",
                                  R"({"enable_thinking": false})",
                                  "--priority",
                                  "high",
                                  "--label",
                                  "team=a=b",
                                  "--on-invalid-line",
                                  "reject",
                                  "--compute-type",
                                  "f32",
                                  "--kv-type",
                                  "int4",
                                  "--weight-type",
                                  "auto",
                                  "--sparse-attention",
                                  "0.1",
                                  "--timeout",
                                  "1h30m",
                                  "--cancel-on-interrupt"});
  EXPECT_EQ(line.command, Command::kRun);
  EXPECT_EQ(line.input, "in.jsonl");
  EXPECT_EQ(line.output, "out.jsonl");
  const v1::SamplingOptions& sampling = line.spec.sampling();
  EXPECT_EQ(sampling.max_output_tokens(), 64);
  EXPECT_EQ(sampling.temperature(), 0.7);
  EXPECT_EQ(sampling.top_p(), 0.9);
  EXPECT_EQ(sampling.top_k(), 40);
  EXPECT_EQ(sampling.seed(), UINT64_MAX);
  ASSERT_EQ(sampling.stop_size(), 2);
  EXPECT_EQ(sampling.stop(1), "\n\n");
  EXPECT_TRUE(sampling.logprobs());
  EXPECT_EQ(sampling.top_logprobs(), 3);
  EXPECT_EQ(line.spec.prompt_options().chat_template_kwargs(), R"({"enable_thinking": false})");
  EXPECT_EQ(line.spec.priority(), v1::PRIORITY_HIGH);
  EXPECT_EQ(line.spec.labels().at("team"), "a=b");
  EXPECT_EQ(line.spec.on_invalid_line(), v1::ON_INVALID_LINE_REJECT_JOB);
  EXPECT_EQ(line.spec.compute_type(), v1::COMPUTE_TYPE_CHOICE_F32);
  EXPECT_EQ(line.spec.compression().kv(), v1::COMPRESSION_CHOICE_INT4);
  EXPECT_EQ(line.spec.sparse_attention(), 0.1);
  EXPECT_EQ(line.spec.compression().weights(), v1::COMPRESSION_CHOICE_AUTO);
  EXPECT_EQ(line.timeout, absl::Minutes(90));
  EXPECT_TRUE(line.cancel_on_interrupt);
}

TEST_F(CommandLineTest, RunTakesPenaltiesBansAndChoices) {
  const CommandLine line = Parse({"run",
                                  "in.jsonl",
                                  "-o",
                                  "out.jsonl",
                                  "--min-p",
                                  "0.1",
                                  "--repetition-penalty",
                                  "1.2",
                                  "--presence-penalty",
                                  "-0.5",
                                  "--frequency-penalty",
                                  "0.5",
                                  "--logit-bias",
                                  "50256=-100",
                                  "--logit-bias",
                                  "7=1.5",
                                  "--bad-word",
                                  "bad",
                                  "--bad-word",
                                  "worse",
                                  "--min-tokens",
                                  "4",
                                  "--ignore-eos",
                                  "--n",
                                  "3"});
  const v1::SamplingOptions& sampling = line.spec.sampling();
  EXPECT_EQ(sampling.min_p(), 0.1);
  EXPECT_EQ(sampling.repetition_penalty(), 1.2);
  EXPECT_EQ(sampling.presence_penalty(), -0.5);
  EXPECT_EQ(sampling.frequency_penalty(), 0.5);
  EXPECT_EQ(sampling.logit_bias().at(50256), -100);
  EXPECT_EQ(sampling.logit_bias().at(7), 1.5);
  ASSERT_EQ(sampling.bad_words_size(), 2);
  EXPECT_EQ(sampling.bad_words(1).text(), "worse");
  EXPECT_EQ(sampling.min_output_tokens(), 4);
  EXPECT_TRUE(sampling.ignore_eos());
  EXPECT_EQ(sampling.num_choices(), 3);
}

TEST_F(CommandLineTest, WhatIsNotSaidStaysUnset) {
  const CommandLine line = Parse({"run", "-", "-o", "-"});
  EXPECT_FALSE(line.spec.sampling().has_temperature());
  EXPECT_FALSE(line.spec.sampling().has_max_output_tokens());
  EXPECT_FALSE(line.spec.sampling().has_logprobs());
  EXPECT_EQ(line.spec.priority(), v1::PRIORITY_UNSPECIFIED);
  EXPECT_EQ(line.timeout, absl::InfiniteDuration());
}

TEST_F(CommandLineTest, TheAddressComesFromOptionThenEnvironmentThenDefault) {
  EXPECT_EQ(Parse({"health"}).address, DefaultAddress());
  setenv("NIGHTSHIFT_ADDRESS", "unix:/from/environment", 1);
  EXPECT_EQ(Parse({"health"}).address, "unix:/from/environment");
  EXPECT_EQ(Parse({"health", "--address", "unix:/given"}).address, "unix:/given");
  EXPECT_EQ(Parse({"--address", "unix:/given", "health"}).address, "unix:/given");
}

TEST_F(CommandLineTest, AJobMayBeNamedWithOrWithoutItsCollection) {
  EXPECT_EQ(Parse({"status", "abc"}).job, "jobs/abc");
  EXPECT_EQ(Parse({"status", "jobs/abc"}).job, "jobs/abc");
}

TEST_F(CommandLineTest, AJobMayRunAfterAnother) {
  EXPECT_EQ(Parse({"submit", "in.jsonl", "--after", "abc"}).spec.after_job(), "jobs/abc");
  EXPECT_EQ(Parse({"run", "in.jsonl", "-o", "out", "--after", "jobs/abc"}).spec.after_job(), "jobs/abc");
}

TEST_F(CommandLineTest, ResultsGoToStandardOutputUnlessTold) {
  EXPECT_EQ(Parse({"results", "a"}).output, "-");
  const CommandLine line = Parse({"results", "a", "--follow", "--after", "12", "-o", "x"});
  EXPECT_TRUE(line.follow);
  EXPECT_EQ(line.after_seq, 12);
  EXPECT_EQ(line.output, "x");
}

TEST_F(CommandLineTest, ImportAndModelGoToTheDaemonAsTheyAre) {
  const CommandLine import = Parse({"import", "model.gguf", "--output", "pack", "--quiet"});
  EXPECT_EQ(import.command, Command::kDaemonTool);
  EXPECT_EQ(import.tool_arguments,
            (std::vector<std::string>{"import", "model.gguf", "--output", "pack", "--quiet"}));
  EXPECT_EQ(Parse({"model", "show", "pack", "--json"}).tool_arguments,
            (std::vector<std::string>{"model", "show", "pack", "--json"}));
  EXPECT_EQ(Parse({"import", "--help"}).tool_arguments,
            (std::vector<std::string>{"import", "--help"}));
}

TEST_F(CommandLineTest, ServerKnowsInfoAndTimeline) {
  EXPECT_EQ(Parse({"server", "info"}).command, Command::kServerInfo);
  const CommandLine line = Parse({"server", "timeline", "trace.json", "--quiet"});
  EXPECT_EQ(line.command, Command::kServerTimeline);
  EXPECT_EQ(line.output, "trace.json");
  EXPECT_TRUE(line.quiet);
  EXPECT_NE(Refuse({"server", "timeline"}).find("file is required"), std::string::npos);
}

TEST_F(CommandLineTest, ListTakesStateAndLimit) {
  const CommandLine line = Parse({"list", "--state", "running", "--limit", "7", "--json"});
  EXPECT_EQ(line.state, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(line.limit, 7);
  EXPECT_TRUE(line.json);
  EXPECT_EQ(Parse({"list"}).state, v1::JOB_STATE_UNSPECIFIED);
}

TEST_F(CommandLineTest, RefusalsNameOptionAndValue) {
  EXPECT_NE(Refuse({"run", "x"}).find("--output is required"), std::string::npos);
  EXPECT_NE(Refuse({"frobnicate"}).find("'frobnicate'"), std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--temperature", "9"}).find("--temperature: '9'"),
            std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--temperature", "nan"}).find("--temperature"),
            std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--top-p", "0"}).find("--top-p"), std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--logit-bias", "a=1"}).find("TOKEN=BIAS"),
            std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--logit-bias", "4=nan"}).find("--logit-bias"),
            std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--repetition-penalty", "0"}).find("'0'"),
            std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--priority", "urgent"}).find("low, normal, high"),
            std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--label", "=v"}).find("KEY=VALUE"), std::string::npos);
  EXPECT_NE(Refuse({"wait", "x", "--timeout", "soon"}).find("'soon'"), std::string::npos);
  EXPECT_NE(Refuse({"results", "x", "--after", "-1"}).find("--after"), std::string::npos);
  EXPECT_NE(Refuse({"run", "x", "-o", "y", "--private"}).find("--model"), std::string::npos);
  EXPECT_NE(Refuse({"results", "x", "--follow", "--partial"}).find("one of them"),
            std::string::npos);
  EXPECT_NE(Refuse({"server", "backup", ""}).find("is a variable of the script empty?"),
            std::string::npos);
  EXPECT_NE(Refuse({"server", "backup", "-"}).find("is a folder"), std::string::npos);
  Refuse({"results", "x", "-o", ""});
  Refuse({"run", "", "-o", "y"});
  Refuse({"run", "x", "-o", "y", "--after", ""});
  Refuse({});
  Refuse({"server"});
  Refuse({"status"});
  Refuse({"run", "x", "-o", "y", "--no-such-option"});
}

TEST_F(CommandLineTest, DocumentsComeWithATemplate) {
  const CommandLine line =
      Parse({"run", "--template", "t", "--input", "a/*.txt", "b.csv", "--too-long", "split",
             "--overlap", "20", "--max-prompt-tokens", "900", "--id-field", "key", "--merge", "m",
             "-o", "out"});
  EXPECT_EQ(line.documents.inputs, (std::vector<std::string>{"a/*.txt", "b.csv"}));
  EXPECT_EQ(line.documents.template_path, "t");
  EXPECT_EQ(line.documents.too_long, v1::TOO_LONG_SPLIT);
  EXPECT_EQ(line.documents.overlap_tokens, 20);
  EXPECT_EQ(line.documents.max_prompt_tokens, 900);
  EXPECT_EQ(line.documents.id_field, "key");
  EXPECT_EQ(line.documents.merge_path, "m");
  EXPECT_EQ(Parse({"run", "--input", "in.jsonl", "-o", "out"}).input, "in.jsonl");
  EXPECT_EQ(Parse({"submit", "in.jsonl"}).input, "in.jsonl");

  const auto refuse = [&](const std::vector<std::string>& options, const std::string& problem) {
    std::vector<std::string> arguments = {"run", "x", "-o", "y"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    EXPECT_NE(Refuse(arguments).find(problem), std::string::npos) << problem;
  };
  refuse({"z"}, "one file of requests, not 2; documents need --template");
  refuse({"--too-long", "split"}, "are for documents: give --template");
  refuse({"--template", "t", "--overlap", "5"}, "--overlap and --merge need --too-long split");
  refuse({"--template", "t", "--merge", "m"}, "--overlap and --merge need --too-long split");
  refuse({"--template", "t", "--too-long", "maybe"}, "none of error, truncate, split");
  refuse({"--template", "t", "--too-long", "split", "--merge", "m", "--n", "2"}, "not --n");
  refuse({"--template", "t", "--too-long", "split", "--merge", "m", "--cancel-on-interrupt"},
         "several jobs");
  EXPECT_NE(Refuse({"submit", "-", "--template", "t"}).find("not standard input"),
            std::string::npos);
}

TEST_F(CommandLineTest, WithJsonARefusalIsJson) {
  const std::string line = Refuse({"--json", "run", "in.jsonl", "--max-tokens", "0"});
  const auto error = nlohmann::json::parse(line)["error"];
  EXPECT_EQ(error["code"], "INVALID_ARGUMENT");
  EXPECT_NE(error["message"].get<std::string>().find("from 1 to 1048576"), std::string::npos);
}

TEST_F(CommandLineTest, HelpAndVersionGoToStandardOutput) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"run", "--help"}, {"--version"}}) {
    const ParsedCommandLine parsed = ParseCommandLine(arguments);
    EXPECT_FALSE(parsed.command_line.has_value());
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_FALSE(parsed.output.empty());
    EXPECT_TRUE(parsed.error.empty());
  }
}

TEST(DurationTextTest, TakesUnitsOrSeconds) {
  EXPECT_EQ(ParseDurationText("90"), absl::Seconds(90));
  EXPECT_EQ(ParseDurationText("1.5"), absl::Milliseconds(1500));
  EXPECT_EQ(ParseDurationText("10m"), absl::Minutes(10));
  EXPECT_EQ(ParseDurationText("0"), absl::ZeroDuration());
  for (const char* wrong : {"", "x", "-1", "-5s", "5 apples", "nan"}) {
    EXPECT_FALSE(ParseDurationText(wrong).has_value()) << wrong;
  }
}

}  // namespace
}  // namespace nightshift
