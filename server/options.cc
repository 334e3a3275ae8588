#include "server/options.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "engine/engine.h"
#include "kernels/base/command_help.h"
#include "kernels/base/exit_code.h"
#include "kernels/base/status_macros.h"
#include "proto/nightshift/default_address.h"
#include "server/http/http_server.h"
#include "server/manual.h"
#include "server/memory_limit.h"
#include "server/plan_flags.h"
#include "server/security/listen_address.h"
#include "server/tier_flags.h"

namespace nightshift {
namespace {

constexpr char kVersionText[] = "nightshiftd " NIGHTSHIFT_VERSION "\n";

std::string EnvironmentName(const std::string& key) {
  return "NIGHTSHIFT_" + absl::AsciiStrToUpper(absl::StrReplaceAll(key, {{"-", "_"}}));
}

bool IsOnCommandLine(const std::vector<std::string>& arguments, const std::string& key) {
  const std::string flag = "--" + key;
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == flag || absl::StartsWith(argument, flag + "=");
  });
}

// What the parser fills and Options does not hold as it is written.
struct Written {
  std::string memory_budget;
  std::string weight_budget;
  std::string compute_type = "bf16";
  std::string kv_type = "none";
  std::string allow_lossy = "no";
  std::string allow_token_only = "no";
  std::string max_metadata;
  std::string rpc_memory;
  std::string weights;
  std::string embeddings;
  std::string head;
  std::string disk_backend;
  TierFlags tiers;
  PlanFlags plan;
  std::string plans = "auto";
  std::string log_format = "text";
  std::string max_input;
  std::string max_line;
  std::string max_prompt;
  std::string max_message;
  std::string max_chunk;
  std::string disk_reserve;
  std::string keep_prompts;
  std::string disk_ballast;
  std::string config;
  bool check_config = false;
  bool print_config = false;
  bool version = false;
};

// The command line, environment and file of the daemon, declared once.
class Declaration {
 public:
  Declaration(CommandLine& line, Written& written)
      : app_("Runs batch jobs of language models that do not fit in memory.", "nightshiftd") {
    app_.footer(ExitCodesText());
    DeclareServing(line.options, written);
    DeclareImport(line, written);
    DeclareModelTools(line);
    DeclareBench(line, written);
    DeclareCalibrate(line, written);
    DeclarePlan(line.plan, written.plan);
    DeclareMakeToken(line);
    man_ = app_.add_subcommand("man", "Prints the manual page: nightshiftd man | man -l -");
    for (CLI::App* tool : app_.get_subcommands({})) {
      tool->configurable(false);
    }
  }

  // May throw CLI::ParseError.
  void Parse(int argc, const char* const* argv) {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    flags_ = arguments;
    if (arguments.empty() || absl::StartsWith(arguments[0], "-")) {
      AddEnvironment(arguments);
    }
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app_.parse(std::move(arguments));
  }

  std::vector<std::string> Effective() const {
    std::vector<std::string> lines;
    for (const auto& [key, value] : values_) {
      lines.push_back(absl::StrCat(key, "=", value(), " (", SourceOf(key), ")"));
    }
    return lines;
  }

  // Which options of the engine are given, in a flag, the environment or the file.
  FixedOptions Fixed() const {
    const auto given = [this](const char* key) { return app_.get_option(key)->count() > 0; };
    return {.max_block_requests = given("--max-block-requests"),
            .max_sweep_tokens = given("--max-sweep-tokens"),
            .max_batch_tokens = given("--max-batch-tokens"),
            .prompt_chunk_tokens = given("--prompt-chunk-tokens"),
            .weights = given("--weight-budget") || given("--weight-shares"),
            .kv = given("--kv-shares"),
            .activations = given("--activation-shares"),
            .schedule = given("--schedule"),
            .buffering = given("--weight-buffer"),
            .host_attention = given("--attention")};
  }

  CLI::App& app() { return app_; }
  bool imports() const { return import_->parsed(); }
  bool benches() const { return bench_->parsed(); }
  bool calibrates() const { return calibrate_->parsed(); }
  bool plans() const { return plan_->parsed(); }
  bool makes_token() const { return make_token_->parsed(); }
  bool shows() const { return show_->parsed(); }
  bool verifies() const { return verify_->parsed(); }
  bool prints_manual() const { return man_->parsed(); }

 private:
  // A key of flags, environment and file. `value` tells it as it is in effect.
  template <typename Target>
  void Add(const std::string& key, Target& target, const std::string& help,
           std::function<std::string()> value) {
    app_.add_option("--" + key, target, absl::StrCat(help, " [", EnvironmentName(key), "]"))
        ->capture_default_str();
    values_.emplace_back(key, std::move(value));
  }
  void AddNumber(const std::string& key, int64_t& target, const std::string& help) {
    Add(key, target, help, [&target] { return absl::StrCat(target); });
  }
  void AddText(const std::string& key, std::string& target, const std::string& help) {
    Add(key, target, help, [&target] { return target; });
  }

  void DeclareServing(Options& options, Written& written) {
    app_.set_config("--config", "", "TOML file with these options as keys [NIGHTSHIFT_CONFIG]");
    app_.allow_config_extras(CLI::config_extras_mode::error);
    const auto join = [](const std::vector<std::string>& list) { return absl::StrJoin(list, ","); };
    Add("model", options.models, "pack to serve; may be repeated",
        [&options, join] { return join(options.models); });
    AddText("models", options.models_directory, "folder whose packs are served");
    AddText("state-dir", options.state_directory, "folder of jobs and results");
    Add("listen", options.listen,
        "unix:PATH or HOST:PORT, of another host than this one with TLS; may be repeated (default: "
        "unix:STATE_DIR/nightshift.sock)",
        [&options, join] { return join(options.listen); });
    AddText("http-listen", options.http_listen,
            "127.0.0.1:PORT for /metrics, /readyz, /livez and /statusz, for every user of this machine "
            "(default: none)");
    AddText("log-format", written.log_format,
            "text: lines for people; json: one object a line");
    Add("memory-budget", written.memory_budget,
        "memory of the engine, as 4GiB (default: half of what is available)",
        [&options] { return SizeText(options.memory_budget_bytes); });
    Add("weight-budget", written.weight_budget,
        "of that, memory of weights, as 1GiB; the rest is read from disk in every sweep (default: "
        "planned)",
        [&options] {
          return options.weight_budget_bytes < 0 ? "planned"
                                                 : SizeText(options.weight_budget_bytes);
        });
    for (const TierFlag& flag : ListTierFlags(written.tiers)) {
      AddText(flag.key, *flag.text, flag.help);
    }
    AddNumber("threads", options.threads, "compute threads; 0: one a core");
    AddText("compute-type", written.compute_type, "of jobs that do not say: f32, bf16 or int8");
    AddText("kv-type", written.kv_type,
            "of keys and values of jobs that do not say: none (as computed), int8, int4 or auto");
    Add("sparse-attention", options.sparse_attention,
        "of jobs that do not say: the share of values, above 0, that generated tokens attend to; 1: "
        "all",
        [&options] { return absl::StrCat(options.sparse_attention); });
    AddText("allow-lossy", written.allow_lossy,
            "yes: auto may choose int8 or int4 where a plan says that is faster; no: auto is none");
    AddNumber("max-block-requests", options.max_block_requests,
              "requests that the engine holds at one time");
    AddNumber("max-sweep-tokens", options.max_sweep_tokens, "tokens of one sweep");
    AddNumber("max-batch-tokens", options.max_batch_tokens,
              "tokens that a layer computes at one time; where weights are streamed through a ring "
              "all of a sweep");
    AddNumber("prompt-chunk-tokens", options.prompt_chunk_tokens,
              "prompt tokens of one request in a sweep; 0: unlimited");
    AddText("plan", written.plans,
            "auto: block, batches and placement, as far as they are not given, follow from a plan "
            "for what is queued; off: from the options");
    AddText("hardware", options.hardware,
            "profile to plan with: a file or a known machine (default: what nightshift calibrate "
            "has measured)");
    AddNumber("drain-timeout", options.drain_timeout_s, "seconds from SIGTERM to the end");
    AddNumber("max-requests-per-job", options.max_requests_per_job, "rows of one job");
    Add("max-input-bytes", written.max_input, "size of one job's input (default: 20GiB)",
        [&options] { return SizeText(options.max_input_bytes); });
    Add("max-line-bytes", written.max_line, "size of one row (default: 16MiB)",
        [&options] { return SizeText(options.max_line_bytes); });
    Add("max-prompt-bytes", written.max_prompt, "text of one row's prompt (default: 8MiB)",
        [&options] { return SizeText(options.max_prompt_bytes); });
    AddNumber("max-custom-id-bytes", options.max_custom_id_bytes, "a row's custom_id");
    AddNumber("max-labels", options.max_labels, "labels of one job");
    AddNumber("max-json-depth", options.max_json_depth, "nesting of one row");
    AddNumber("max-choices", options.max_choices, "completions of one row, its n");
    AddNumber("max-uploads", options.max_uploads, "inputs of a tenant received at one time");
    Add("disk-reserve", written.disk_reserve,
        "free disk below which no job is accepted (default: the larger of 5 % and 2GiB)",
        [&options] {
          return options.disk_reserve_bytes < 0 ? "default" : SizeText(options.disk_reserve_bytes);
        });
    Add("keep-prompts", written.keep_prompts,
        "disk for token ids of prompts that were checked and wait; the others are tokenized again "
        "(default: 4GiB)",
        [&options] { return SizeText(options.kept_prompt_bytes); });
    AddNumber(
        "claim-window", options.claim_window_rows,
        "checked rows among which the longest run first, of all jobs together; about 100 bytes "
        "of memory each");
    Add("disk-ballast", written.disk_ballast,
        "disk that is set aside for a full disk, so that what has happened can still be written "
        "(default: 64MiB)",
        [&options] { return SizeText(options.disk_ballast_bytes); });
    AddNumber("keep-results", options.keep_results_days,
              "days for which input and results of a job that has ended are kept");
    AddNumber("keep-records", options.keep_records_days,
              "days for which the record of a job that has ended is kept");
    AddNumber("max-connections", options.max_connections, "connections at one time");
    AddNumber("max-streams", options.max_streams_per_connection,
              "calls of a connection at one time");
    Add("max-metadata-bytes", written.max_metadata, "headers of one call (default: 8KiB)",
        [&options] { return absl::StrCat(options.max_metadata_bytes); });
    Add("max-message-bytes", written.max_message,
        "one message of a call; inline requests of a job have 7/8 of it (default: 4MiB)",
        [&options] { return SizeText(options.max_message_bytes); });
    Add("max-chunk-bytes", written.max_chunk, "one chunk of an upload (default: 1MiB)",
        [&options] { return SizeText(options.max_chunk_bytes); });
    AddNumber("max-wait", options.max_wait_s, "seconds of one call that waits for a job");
    AddNumber("idle-connection", options.idle_connection_s,
              "seconds after which a connection without a call ends");
    Add("rpc-memory", written.rpc_memory,
        "memory of connections and calls, beyond which calls fail (default: 1GiB)",
        [&options] { return SizeText(options.rpc_memory_bytes); });
    AddText(
        "tls-cert", options.tls.certificate,
        "PEM file: the daemon's certificate, then what signed it; HOST:PORT is served over TLS. A "
        "changed file is taken over within a minute, or on SIGHUP");
    AddText("tls-key", options.tls.key, "PEM file: its private key");
    AddText("tls-client-ca", options.tls.client_ca,
            "PEM file: who signs certificates of clients, which then must show one");
    AddText("allow-token-only", written.allow_token_only,
            "yes: clients of HOST:PORT need no certificate, their token is enough");
    AddText(
        "access-file", options.access_file,
        "tokens, their tenants and roles, one a line (nightshift make-token); without, everybody "
        "who reaches the daemon may do everything; SIGHUP reads it again");
    AddText("ready-file", options.ready_file, "gets the addresses once they accept calls");
    app_.add_flag("--check-config", written.check_config, "checks the options and ends")
        ->configurable(false);
    app_.add_flag("--print-config", written.print_config,
                  "prints the options and where each comes from, and ends")
        ->configurable(false);
    app_.add_flag("--version", written.version, "prints the version")->configurable(false);
  }

  void DeclareImport(CommandLine& line, Written& written) {
    app_.require_subcommand(0, 1);
    import_ = app_.add_subcommand(
        "import",
        "Makes a pack of a Hugging Face folder or a GGUF file, or of random weights in the shape "
        "of a known model.");
    CLI::Option* source = import_->add_option("source", line.source, "folder or file");
    import_->add_option("--output,-o", line.output, "the pack's folder; must not exist")
        ->required();
    import_->add_option("--name", line.name, "what the pack calls the model");
    import_->add_flag("--json", line.json, "what the pack holds, as model show --json");
    CLI::Option* random =
        import_->add_option("--random", line.random.shape,
                            "in place of a source: the shape whose weights are random numbers, as "
                            "1b, opt-30b or llama-3-8b; a wrong name lists them all");
    random->excludes(source);
    import_->add_option("--weights", written.weights,
                        "type of matrices: int4 or int8 (groups of 64), bf16 or f32, or u4g64, "
                        "i4g64, u8g64, i8g64 (default: the source's; of --random bf16)");
    import_
        ->add_option(
            "--embeddings", written.embeddings,
            "the same of the embedding, which is the head too where that is tied (default: "
            "int8 where matrices have 4 bits, else as --weights)")
        ->excludes(random);
    import_->add_option("--head", written.head, "the same of the head (default: as the embedding)")
        ->excludes(random);
    import_
        ->add_flag("--requantise", line.types.requantises,
                   "let --weights, --embeddings and --head change what is quantised in the source")
        ->excludes(random);
    import_->add_option("--seed", line.random.seed, "of --random")
        ->needs(random)
        ->check(CLI::NonNegativeNumber);
    import_
        ->add_option(
            "--tokenizer", line.random.tokenizer,
            "of --random: Hugging Face folder or pack with the tokenizer and template that "
            "the pack gets; without, it takes token ids only")
        ->needs(random);
    import_
        ->add_flag("--without-tokenizer", line.without_tokenizer,
                   "leave out a tokenizer that cannot be run: the pack takes token ids only")
        ->excludes(random);
    CLI::Option* without_template =
        import_
            ->add_flag("--without-template", line.without_template,
                       "leave out a chat template that cannot be run: the pack takes no chats")
            ->excludes(random);
    import_
        ->add_option("--chat-template", line.chat_template_file,
                     "file with a chat template that takes the place of the source's")
        ->excludes(without_template)
        ->excludes(random);
  }

  void DeclareModelTools(CommandLine& line) {
    CLI::App* model = app_.add_subcommand("model", "Looks at a pack.");
    model->require_subcommand(1);
    show_ = model->add_subcommand("show", "What a pack holds.");
    show_->add_option("pack", line.pack, "the pack's folder")->required();
    show_->add_flag("--json", line.json, "as JSON");
    verify_ = model->add_subcommand("verify", "Checks every checksum of a pack.");
    verify_->add_option("pack", line.pack, "the pack's folder")->required();
    verify_->add_flag("--json", line.json, "as JSON");
    for (CLI::App* tool : {show_, verify_}) {
      tool->configurable(false);
    }
  }

  void DeclareBench(CommandLine& line, Written& written) {
    BenchOptions& bench = line.bench;
    bench_ = app_.add_subcommand(
        "bench", "Runs the engine alone on a job of equal synthetic requests and measures it.");
    const auto number = [&](const char* name, int64_t& target, const char* help) {
      bench_->add_option(name, target, help)->capture_default_str();
    };
    bench_->add_option("pack", bench.engine.pack_path, "the pack's folder")->required();
    number("--requests", bench.requests, "of the job");
    number("--prompt-tokens", bench.prompt_tokens, "of each request");
    number("--output-tokens", bench.output_tokens,
           "of each request; 0: the log-probabilities of its prompt");
    number("--sweeps", bench.sweeps, "cuts the run after so many; 0: to its end");
    number("--start-context", bench.start_context,
           "so many tokens of each request count as computed, over made-up keys and values");
    bench_->add_option("--seed", bench.seed, "of the prompts")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    bench_->add_flag("--json", line.json, "as JSON");
    bench_->add_option("--timeline", line.timeline_path,
                       "file for a trace of the last sweeps' steps, for chrome://tracing");
    DeclareEngine(bench.engine, written);
  }

  // The engine's options, all of which bench can set.
  void DeclareEngine(EngineOptions& engine, Written& written) {
    const auto number = [&](const char* name, int64_t& target, const char* help) {
      bench_->add_option(name, target, help)->capture_default_str();
    };
    bench_->add_option("--memory-budget", written.memory_budget,
                       "memory of the engine, as 4GiB (default: half of what is available)");
    bench_->add_option("--weight-budget", written.weight_budget,
                       "of that, memory of weights (default: planned)");
    for (const TierFlag& flag : ListTierFlags(written.tiers)) {
      bench_->add_option(absl::StrCat("--", flag.key), *flag.text, flag.help)
          ->capture_default_str();
    }
    number("--block", engine.max_block_requests, "most requests held at one time");
    number("--sweep-tokens", engine.max_sweep_tokens, "most tokens of one sweep");
    number("--batch-tokens", engine.max_batch_tokens, "most tokens of one batch");
    number("--prompt-chunk-tokens", engine.prompt_chunk_tokens,
           "most prompt tokens of one request in a sweep; 0: unlimited");
    bench_->add_option("--threads", engine.num_threads, "compute threads; 0: one a core")
        ->capture_default_str();
    bench_->add_option("--disk-backend", written.disk_backend,
                       "io_uring or threads (default: io_uring where the kernel gives it)");
    bench_->add_option("--compute-type", written.compute_type, "f32, bf16 or int8")
        ->capture_default_str();
    bench_->add_option("--kv-type", written.kv_type, "none, int8 or int4")->capture_default_str();
    bench_->add_option("--sparse-attention", engine.sparse_attention,
                       "share of values, above 0, that generated tokens attend to; 1: all")
        ->capture_default_str();
  }

  void DeclareCalibrate(CommandLine& line, Written& written) {
    CalibrateOptions& calibrate = line.calibrate;
    calibrate_ = app_.add_subcommand(
        "calibrate", "Measures what this machine can do, for planning; takes under two minutes.");
    calibrate_->add_option("--out", calibrate.output,
                           "file for the profile, in place of an older one (default: "
                           "nightshift/hardware.json in the user's cache folder)");
    calibrate_->add_option("--folder", calibrate.calibration.folder,
                           "on the disk of packs and of what is spilled; a file is made there and "
                           "is gone at the end (default: the user's cache folder)");
    calibrate_
        ->add_option("--seconds", calibrate.calibration.measure.most_seconds,
                     "for measuring, after the file is written")
        ->capture_default_str();
    calibrate_
        ->add_option("--threads", calibrate.calibration.discrete.num_threads,
                     "compute threads; 0: one a core")
        ->capture_default_str();
    for (const TierFlag& flag : ListTierFlags(written.tiers)) {
      const absl::string_view key = flag.key;
      if (key == "device-budget" || key == "upload-rate" || key == "download-rate" ||
          key == "device-flops") {
        calibrate_->add_option(absl::StrCat("--", flag.key), *flag.text, flag.help);
      }
    }
    calibrate_->add_flag("--json", line.json, "prints the profile");
  }

  void DeclarePlan(PlanModelOptions& plan, PlanFlags& flags) {
    plan_ = app_.add_subcommand(
        "plan", "Finds the fastest way to run a job on a machine, and how long it takes.");
    const auto number = [&](const char* name, int64_t& target, const char* help) {
      plan_->add_option(name, target, help)->capture_default_str();
    };
    plan_->add_option("model", plan.model, "a pack's folder, or a known shape, as opt-30b")
        ->required();
    number("--requests", plan.requests, "of the job");
    number("--prompt-tokens", plan.prompt_tokens, "of each request");
    number("--output-tokens", plan.output_tokens, "of each request");
    number("--shared-prefix-tokens", plan.shared_prefix_tokens, "that all prompts begin with");
    plan_->add_option("--prompt-chunk-tokens", plan.chunk_tokens,
                      "most prompt tokens of one request in a sweep; 0: whole prompts (default: as "
                      "it is best)");
    plan_->add_option("--hardware", plan.hardware,
                      "a profile's file, or a known machine, as t4 (default: this machine, as "
                      "`nightshift calibrate` measured it)");
    for (const TierFlag& flag : ListPlanFlags(flags)) {
      plan_->add_option(absl::StrCat("--", flag.key), *flag.text, flag.help)->capture_default_str();
    }
    number("--block", plan.block, "requests held at one time; 0: as it is best");
    number("--batch", plan.batch, "requests on the device at one time; 0: as it is best");
    plan_->add_option("--margin", plan.margin_percent, "per cent of each memory that stay free")
        ->capture_default_str();
    plan_->add_flag("--simulate", plan.simulate,
                    "also tell what this engine's schedule takes in virtual time, which a plan of "
                    "--model-form nightshift has as its own");
    plan_->add_flag("--frontier", plan.frontier, "throughput by latency, in place of a plan");
    plan_->add_option("--svg", plan.svg_path, "with --frontier: file for a plot")
        ->needs("--frontier");
    plan_->add_flag("--json", plan.json, "as JSON");
  }

  void DeclareMakeToken(CommandLine& line) {
    MakeTokenOptions& options = line.make_token;
    make_token_ = app_.add_subcommand(
        "make-token",
        "Makes a token: prints it on standard output, and its line for the daemon's access file on "
        "standard error.");
    make_token_->add_option("--tenant", options.tenant, "whose jobs it sees and makes")
        ->capture_default_str();
    make_token_->add_option("--role", options.role, "reader, submitter or admin")->required();
    make_token_->add_option("--days", options.days, "for which it is good; 0: for ever")
        ->capture_default_str();
    make_token_->add_flag("--json", line.json, "both on standard output, as JSON");
  }

  // Variables stand for flags that are not there, so that they win over the file.
  void AddEnvironment(std::vector<std::string>& arguments) {
    std::vector<std::string> keys = {"config"};
    for (const auto& [key, value] : values_) {
      keys.push_back(key);
    }
    for (const std::string& key : keys) {
      const char* text = std::getenv(EnvironmentName(key).c_str());
      if (text == nullptr || *text == '\0' || IsOnCommandLine(flags_, key)) {
        continue;
      }
      from_environment_.push_back(key);
      const bool is_list = key == "model" || key == "listen";
      const std::vector<std::string> items =
          is_list ? std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipEmpty()))
                  : std::vector<std::string>{text};
      for (const std::string& item : items) {
        arguments.push_back(absl::StrCat("--", key, "=", item));
      }
    }
  }

  std::string SourceOf(const std::string& key) const {
    if (IsOnCommandLine(flags_, key)) {
      return "command line";
    }
    if (std::find(from_environment_.begin(), from_environment_.end(), key) !=
        from_environment_.end()) {
      return EnvironmentName(key);
    }
    return app_.get_option("--" + key)->count() > 0 ? "config file" : "default";
  }

  CLI::App app_;
  CLI::App* import_ = nullptr;
  CLI::App* bench_ = nullptr;
  CLI::App* calibrate_ = nullptr;
  CLI::App* plan_ = nullptr;
  CLI::App* make_token_ = nullptr;
  CLI::App* show_ = nullptr;
  CLI::App* verify_ = nullptr;
  CLI::App* man_ = nullptr;
  std::vector<std::pair<std::string, std::function<std::string()>>> values_;
  std::vector<std::string> flags_;  // as the caller wrote them
  std::vector<std::string> from_environment_;
};

absl::StatusOr<ComputeType> ReadComputeType(const std::string& text) {
  if (const std::optional<ComputeType> type = ComputeTypeNamed(text)) {
    return *type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--compute-type is \"", text, "\", must be f32, bf16 or int8"));
}

absl::StatusOr<v1::CompressionChoice> ReadKvType(const std::string& text, bool may_be_auto) {
  for (const v1::CompressionChoice choice :
       {v1::COMPRESSION_CHOICE_NONE, v1::COMPRESSION_CHOICE_INT8, v1::COMPRESSION_CHOICE_INT4,
        v1::COMPRESSION_CHOICE_AUTO}) {
    if (text == CompressionName(choice) && (may_be_auto || choice != v1::COMPRESSION_CHOICE_AUTO)) {
      return choice;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("--kv-type is ", text, ", must be none, int8",
                                                 may_be_auto ? ", int4 or auto" : " or int4"));
}

absl::StatusOr<bool> ReadYesOrNo(const char* key, const std::string& text) {
  if (text != "yes" && text != "no") {
    return absl::InvalidArgumentError(absl::StrCat("--", key, " is ", text, ", must be yes or no"));
  }
  return text == "yes";
}

absl::Status CheckSparseAttention(double share) {
  return IsSparseAttention(share)
             ? absl::OkStatus()
             : absl::InvalidArgumentError(absl::StrCat("--sparse-attention is ", share,
                                                       ", must be above 0 and at most 1"));
}

// Fills what is written in another form, and what has a default of the machine.
absl::Status Resolve(const Written& written, Options& options) {
  RETURN_IF_ERROR(
      ReadSizeFlag("memory-budget", written.memory_budget, options.memory_budget_bytes));
  RETURN_IF_ERROR(
      ReadSizeFlag("weight-budget", written.weight_budget, options.weight_budget_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("max-input-bytes", written.max_input, options.max_input_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("disk-reserve", written.disk_reserve, options.disk_reserve_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("keep-prompts", written.keep_prompts, options.kept_prompt_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("disk-ballast", written.disk_ballast, options.disk_ballast_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("max-line-bytes", written.max_line, options.max_line_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("max-prompt-bytes", written.max_prompt, options.max_prompt_bytes));
  RETURN_IF_ERROR(
      ReadSizeFlag("max-message-bytes", written.max_message, options.max_message_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("max-chunk-bytes", written.max_chunk, options.max_chunk_bytes));
  ASSIGN_OR_RETURN(options.compute_type, ReadComputeType(written.compute_type));
  ASSIGN_OR_RETURN(options.kv_type, ReadKvType(written.kv_type, /*may_be_auto=*/true));
  RETURN_IF_ERROR(
      ReadSizeFlag("max-metadata-bytes", written.max_metadata, options.max_metadata_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("rpc-memory", written.rpc_memory, options.rpc_memory_bytes));
  ASSIGN_OR_RETURN(options.allow_lossy, ReadYesOrNo("allow-lossy", written.allow_lossy));
  ASSIGN_OR_RETURN(options.allow_token_only,
                   ReadYesOrNo("allow-token-only", written.allow_token_only));
  RETURN_IF_ERROR(CheckSparseAttention(options.sparse_attention));
  TierFlags tiers = written.tiers;
  if (tiers.spill_folder.empty()) {
    tiers.spill_folder = options.state_directory;
  }
  ASSIGN_OR_RETURN(options.device, ReadDeviceFlags(tiers));
  ASSIGN_OR_RETURN(options.tiers, ReadTierFlags(tiers));
  if (written.plans != "auto" && written.plans != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("--plan is \"", written.plans, "\", must be auto or off"));
  }
  options.plans = written.plans == "auto";
  if (written.log_format != "text" && written.log_format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-format is ", written.log_format, ", must be text or json"));
  }
  options.log_format = written.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  if (written.memory_budget.empty()) {
    options.memory_budget_bytes = AvailableMemoryBytes() / 2;
  }
  if (options.listen.empty()) {
    options.listen.push_back(AddressOfStateDirectory(options.state_directory));
  }
  return options.Validate();
}

absl::Status ResolveBench(const Written& written, BenchOptions& bench) {
  EngineOptions& engine = bench.engine;
  engine.memory_budget_bytes = AvailableMemoryBytes() / 2;
  RETURN_IF_ERROR(ReadSizeFlag("memory-budget", written.memory_budget, engine.memory_budget_bytes));
  RETURN_IF_ERROR(ReadSizeFlag("weight-budget", written.weight_budget, engine.weight_budget_bytes));
  ASSIGN_OR_RETURN(engine.compute_type, ReadComputeType(written.compute_type));
  ASSIGN_OR_RETURN(const v1::CompressionChoice kv_type,
                   ReadKvType(written.kv_type, /*may_be_auto=*/false));
  engine.kv_type = KvTypeOf(kv_type);
  RETURN_IF_ERROR(CheckSparseAttention(engine.sparse_attention));
  ASSIGN_OR_RETURN(bench.device, ReadDeviceFlags(written.tiers));
  ASSIGN_OR_RETURN(engine.tiers, ReadTierFlags(written.tiers));
  if (!written.disk_backend.empty()) {
    for (const DiskBackend backend : {DiskBackend::kIoUring, DiskBackend::kThreads}) {
      if (written.disk_backend == DiskBackendName(backend)) {
        engine.disk_backend = backend;
      }
    }
    if (!engine.disk_backend) {
      return absl::InvalidArgumentError(absl::StrCat("--disk-backend is \"", written.disk_backend,
                                                     "\", must be io_uring or threads"));
    }
  }
  return bench.Validate();
}

absl::Status ResolveCalibrate(const Written& written, CalibrateOptions& calibrate) {
  CalibrationOptions& calibration = calibrate.calibration;
  ASSIGN_OR_RETURN(const TierOptions tiers, ReadTierFlags(written.tiers));
  calibration.device_bytes = tiers.device_budget_bytes;
  calibration.discrete.upload_bytes_per_s = tiers.upload_bytes_per_s;
  calibration.discrete.download_bytes_per_s = tiers.download_bytes_per_s;
  calibration.discrete.flops_per_s = tiers.device_flops_per_s;
  calibration.host_bytes = AvailableMemoryBytes();
  calibration.memory_limit_bytes = MemoryLimitBytes();
  return calibrate.Resolve();
}

absl::StatusOr<std::optional<DType>> ReadWeightType(const char* option, const std::string& name) {
  if (name.empty()) {
    return std::optional<DType>();
  }
  const absl::StatusOr<DType> dtype = ParseWeightType(name);
  if (!dtype.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": ", dtype.status().message()));
  }
  return std::optional<DType>(*dtype);
}

absl::Status ResolveImport(const Written& written, CommandLine& line) {
  if (line.source.empty() && line.random.shape.empty()) {
    return absl::InvalidArgumentError(
        "import: neither a source nor --random SHAPE says what to import");
  }
  ASSIGN_OR_RETURN(line.types.matrices, ReadWeightType("--weights", written.weights));
  ASSIGN_OR_RETURN(line.types.embeddings, ReadWeightType("--embeddings", written.embeddings));
  ASSIGN_OR_RETURN(line.types.head, ReadWeightType("--head", written.head));
  line.random.weights = line.types.matrices.value_or(DType::kBF16);
  line.random.output = line.output;
  line.random.name = line.name;
  line.command = line.random.shape.empty() ? Command::kImport : Command::kImportRandom;
  return absl::OkStatus();
}

Command ChooseCommand(const Declaration& declaration, const Written& written) {
  if (declaration.imports()) {
    return Command::kImport;
  }
  if (declaration.benches()) {
    return Command::kBench;
  }
  if (declaration.calibrates()) {
    return Command::kCalibrate;
  }
  if (declaration.plans()) {
    return Command::kPlan;
  }
  if (declaration.makes_token()) {
    return Command::kMakeToken;
  }
  if (declaration.shows()) {
    return Command::kModelShow;
  }
  if (declaration.verifies()) {
    return Command::kModelVerify;
  }
  if (written.version || declaration.prints_manual()) {
    return Command::kPrintText;
  }
  if (written.check_config) {
    return Command::kCheckConfig;
  }
  return written.print_config ? Command::kPrintConfig : Command::kServe;
}

}  // namespace

absl::Status Options::Validate() const {
  const auto check = [](const char* name, int64_t value, int64_t low,
                        int64_t high) -> absl::Status {
    return value >= low && value <= high
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     absl::StrCat("--", name, " is ", value, ", must be ", low, " to ", high));
  };
  constexpr int64_t kMany = 1 << 20;
  RETURN_IF_ERROR(check("threads", threads, 0, 4096));
  RETURN_IF_ERROR(check("memory-budget", memory_budget_bytes, 1 << 20, INT64_MAX));
  RETURN_IF_ERROR(check("max-block-requests", max_block_requests, 1, kMany));
  RETURN_IF_ERROR(check("max-sweep-tokens", max_sweep_tokens, 1, kMany));
  RETURN_IF_ERROR(check("prompt-chunk-tokens", prompt_chunk_tokens, 0, kMany));
  RETURN_IF_ERROR(check("drain-timeout", drain_timeout_s, 1, 24 * 3600));
  RETURN_IF_ERROR(check("max-requests-per-job", max_requests_per_job, 1, 1'000'000'000));
  RETURN_IF_ERROR(check("max-input-bytes", max_input_bytes, 1, int64_t{1} << 44));
  RETURN_IF_ERROR(check("max-line-bytes", max_line_bytes, 1024, int64_t{1} << 30));
  RETURN_IF_ERROR(check("max-prompt-bytes", max_prompt_bytes, 1024, int64_t{1} << 30));
  RETURN_IF_ERROR(check("max-custom-id-bytes", max_custom_id_bytes, 1, 4096));
  RETURN_IF_ERROR(check("max-labels", max_labels, 0, 256));
  RETURN_IF_ERROR(check("max-json-depth", max_json_depth, 4, 512));
  // Clients send chunks of 256 KiB, in a message that has more than the chunk.
  constexpr int64_t kClientsChunkBytes = 256 << 10;
  RETURN_IF_ERROR(check("max-message-bytes", max_message_bytes, 1 << 20, 256 << 20));
  RETURN_IF_ERROR(check("max-chunk-bytes", max_chunk_bytes, kClientsChunkBytes,
                        max_message_bytes - 1024));
  RETURN_IF_ERROR(check("max-wait", max_wait_s, 1, 3600));
  RETURN_IF_ERROR(check("disk-ballast", disk_ballast_bytes, 0, int64_t{1} << 40));
  RETURN_IF_ERROR(check("keep-results", keep_results_days, 1, 36500));
  RETURN_IF_ERROR(check("keep-records", keep_records_days, keep_results_days, 36500));
  RETURN_IF_ERROR(check("max-choices", max_choices, 1, 1024));
  RETURN_IF_ERROR(check("claim-window", claim_window_rows, 1, 1 << 20));
  RETURN_IF_ERROR(check("max-uploads", max_uploads, 1, 4096));
  if (state_directory.empty()) {
    return absl::InvalidArgumentError("--state-dir is empty");
  }
  RETURN_IF_ERROR(check("max-connections", max_connections, 1, kMany));
  RETURN_IF_ERROR(check("max-streams", max_streams_per_connection, 1, kMany));
  RETURN_IF_ERROR(check("max-metadata-bytes", max_metadata_bytes, 1024, 1 << 20));
  RETURN_IF_ERROR(check("idle-connection", idle_connection_s, 1, 24 * 3600));
  RETURN_IF_ERROR(check("rpc-memory", rpc_memory_bytes, 16 << 20, int64_t{1} << 40));
  if (tls.certificate.empty() != tls.key.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together; one is missing");
  }
  if (tls.certificate.empty() && !tls.client_ca.empty()) {
    return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert and --tls-key");
  }
  const ListenProtection protection = {.tls = !tls.certificate.empty(),
                                       .client_ca = !tls.client_ca.empty(),
                                       .access_file = !access_file.empty(),
                                       .allow_token_only = allow_token_only};
  for (const std::string& address : listen) {
    RETURN_IF_ERROR(CheckAddress(address, protection));
  }
  if (!http_listen.empty()) {
    RETURN_IF_ERROR(CheckHttpAddress(http_listen));
  }
  return absl::OkStatus();
}

absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv) {
  CommandLine line;
  Written written;
  line.options.state_directory = DefaultStateDirectory();
  Declaration declaration(line, written);
  // CLI11 reports by exceptions; they end here.
  try {
    declaration.Parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    line.command = Command::kPrintText;
    line.text = declaration.app().help();
    return line;
  } catch (const CLI::ConfigError& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("config file: ", error.what(),
                     "; its keys are the options without --, as memory-budget = \"4GiB\""));
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(error.what());
  }
  line.command = ChooseCommand(declaration, written);
  line.text =
      declaration.prints_manual() ? DaemonManualPage(HelpOf(declaration.app())) : kVersionText;
  const bool serves = line.command == Command::kServe || line.command == Command::kCheckConfig ||
                      line.command == Command::kPrintConfig;
  if (serves) {
    line.options.fixed = declaration.Fixed();
    RETURN_IF_ERROR(Resolve(written, line.options));
    line.effective = declaration.Effective();
  }
  if (line.command == Command::kImport) {
    RETURN_IF_ERROR(ResolveImport(written, line));
  }
  if (line.command == Command::kBench) {
    RETURN_IF_ERROR(ResolveBench(written, line.bench));
  }
  if (line.command == Command::kCalibrate) {
    RETURN_IF_ERROR(ResolveCalibrate(written, line.calibrate));
  }
  if (line.command == Command::kPlan) {
    RETURN_IF_ERROR(ReadPlanFlags(written.plan, line.plan));
  }
  return line;
}

}  // namespace nightshift
