#include "client/command_line.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include <CLI/CLI.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "client/completion.h"
#include "client/config_file.h"
#include "client/console.h"
#include "client/job_text.h"
#include "client/manual.h"
#include "client/option_checks.h"
#include "kernels/base/exit_code.h"
#include "proto/nightshift/default_address.h"

namespace nightshift {
namespace {

constexpr char kDescription[] =
    "Batch jobs for large language models: submit a file, get a file.";

constexpr int64_t kDefaultListed = 50;
constexpr double kMaxListed = 100'000;

// Values as they are parsed, before they become a CommandLine.
struct Values {
  CommandLine line;
  std::string timeout;
  std::string state;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int32_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<double> presence_penalty;
  std::optional<double> frequency_penalty;
  std::vector<std::string> logit_bias;
  std::vector<std::string> bad_words;
  std::optional<int64_t> min_tokens;
  bool ignore_eos = false;
  std::optional<int32_t> num_choices;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  bool logprobs = false;
  std::optional<int32_t> top_logprobs;
  std::string chat_template_kwargs;
  std::string priority;
  std::string on_invalid_line;
  std::string compute_type;
  std::string task;
  std::string against_compute_type;
  std::string kv_type;
  std::string against_kv_type;
  std::optional<double> sparse_attention;
  std::optional<double> against_sparse_attention;
  std::string weight_type;
  std::string completion_window;
  std::string not_before;
  std::string after;
  std::string order;
  std::string too_long;
  std::vector<std::string> labels;
  std::string shell;
};

// With or without its "jobs/".
std::string JobName(const std::string& job) {
  return absl::StartsWith(job, "jobs/") ? job : absl::StrCat("jobs/", job);
}

const NamesOf& PriorityNames() {
  static const NamesOf names = {
      {"low", v1::PRIORITY_LOW}, {"normal", v1::PRIORITY_NORMAL}, {"high", v1::PRIORITY_HIGH}};
  return names;
}
const NamesOf& OnInvalidLineNames() {
  static const NamesOf names = {{"record", v1::ON_INVALID_LINE_RECORD_ERROR},
                                {"reject", v1::ON_INVALID_LINE_REJECT_JOB}};
  return names;
}
const NamesOf& ComputeTypeNames() {
  static const NamesOf names = {{"f32", v1::COMPUTE_TYPE_CHOICE_F32},
                                {"bf16", v1::COMPUTE_TYPE_CHOICE_BF16},
                                {"int8", v1::COMPUTE_TYPE_CHOICE_INT8}};
  return names;
}

const NamesOf& TaskNames() {
  static const NamesOf names = {{"next-word", static_cast<int>(EvaluationTask::kNextWord)},
                                {"perplexity", static_cast<int>(EvaluationTask::kPerplexity)}};
  return names;
}

const NamesOf& CompressionNames() {
  static const NamesOf names = {{"none", v1::COMPRESSION_CHOICE_NONE},
                                {"int8", v1::COMPRESSION_CHOICE_INT8},
                                {"int4", v1::COMPRESSION_CHOICE_INT4},
                                {"auto", v1::COMPRESSION_CHOICE_AUTO}};
  return names;
}

const NamesOf& TooLongNames() {
  static const NamesOf names = {{"error", v1::TOO_LONG_ERROR},
                                {"truncate", v1::TOO_LONG_TRUNCATE},
                                {"split", v1::TOO_LONG_SPLIT}};
  return names;
}

// Of which only the names count.
const NamesOf& ShellNames() {
  static const NamesOf names = {{"bash", 1}, {"zsh", 2}, {"fish", 3}};
  return names;
}

const NamesOf& OrderNames() {
  static const NamesOf names = {{"commit", v1::RESULT_ORDER_COMMIT},
                                {"input", v1::RESULT_ORDER_INPUT}};
  return names;
}

void AddTimeout(CLI::App& command, Values& values, const std::string& help) {
  command.add_option("--timeout", values.timeout, help)->type_name("DURATION")->check(IsDuration());
}

CLI::Option& AddJob(CLI::App& command, Values& values) {
  return *command.add_option("job", values.line.job, "The job's name, as submit printed it")
              ->required()
              ->type_name("JOB")
              ->check(IsNamed());
}

// For some of all jobs.
void AddLabelFilter(CLI::App& command, Values& values) {
  command.add_option("--label", values.line.label, "Only jobs with this label")
      ->type_name("KEY[=VALUE]");
}

void AddInput(CLI::App& command, Values& values) {
  command
      .add_option("input,--input", values.line.documents.inputs,
                  "JSONL file, one request a line; - for stdin. With --template: documents, files "
                  "or patterns such as 'inbox/*.txt'; of *.csv each record, of *.jsonl each line")
      ->required()
      ->type_name("INPUT")
      ->check(IsNamed());
}

void AddDocumentOptions(CLI::App& command, Values& values) {
  const char* group = "Documents";
  DocumentOptions& documents = values.line.documents;
  command
      .add_option("--template", documents.template_path,
                  "Makes a request of each document: a text with {{text}}, {{file}} or the names "
                  "of columns; lines [system] and [user] begin its parts")
      ->type_name("FILE")
      ->check(IsNamed())
      ->group(group);
  command
      .add_option("--id-field", documents.id_field,
                  "Column or field with the ids of records (id where there is one, else FILE:LINE)")
      ->type_name("NAME")
      ->check(IsNamed())
      ->group(group);
  command
      .add_option("--too-long", values.too_long,
                  "Of a document that does not fit, in tokens of the model: an error result "
                  "(default), its beginning, or a request for each part, NAME#1/3")
      ->type_name("error|truncate|split")
      ->check(IsOneOf(TooLongNames()))
      ->group(group);
  command
      .add_option("--max-prompt-tokens", documents.max_prompt_tokens,
                  "Longer prompts are too long (what the model's context leaves beside the output)")
      ->type_name("N")
      ->check(IsBetween(1, 1 << 30))
      ->group(group);
  command
      .add_option("--overlap", documents.overlap_tokens,
                  "About so many tokens of a part begin the next one too (0)")
      ->type_name("N")
      ->check(IsBetween(0, 1 << 30))
      ->group(group);
}

constexpr char kDefaultsGroup[] = "Defaults for rows that do not say";

void AddNumber(CLI::App& command, const std::string& name, std::optional<double>& value, double low,
               double high, const std::string& help) {
  command.add_option(name, value, help)
      ->type_name("X")
      ->check(IsBetween(low, high))
      ->group(kDefaultsGroup);
}

void AddTexts(CLI::App& command, const std::string& name, std::vector<std::string>& values,
              const std::string& type, const std::string& help) {
  command.add_option(name, values, help)
      ->allow_extra_args(false)
      ->type_name(type)
      ->group(kDefaultsGroup);
}

// What makes tokens more or less likely, or impossible.
void AddPenalties(CLI::App& command, Values& values) {
  AddNumber(command, "--min-p", values.min_p, 0, 1,
            "Drop tokens less likely than X times the best; 0 is off (0)");
  AddNumber(command, "--repetition-penalty", values.repetition_penalty, 0.01, 100,
            "Above 1 makes tokens of prompt and text less likely (1)");
  AddNumber(command, "--presence-penalty", values.presence_penalty, -2, 2,
            "Above 0 makes tokens of the text less likely (0)");
  AddNumber(command, "--frequency-penalty", values.frequency_penalty, -2, 2,
            "The same for each time that they occur (0)");
  AddTexts(command, "--logit-bias", values.logit_bias, "TOKEN=BIAS",
           "Add -100 to 100 to a token's logit; may be repeated");
  command.get_option("--logit-bias")->check(IsLogitBias());
  AddTexts(command, "--bad-word", values.bad_words, "TEXT",
           "Must not occur in a text; may be repeated");
}

// Defaults for the rows of the job; a row's own fields win.
void AddSampling(CLI::App& command, Values& values) {
  const char* group = kDefaultsGroup;
  command.add_option("--max-tokens", values.max_tokens, "Most tokens to generate (256)")
      ->type_name("N")
      ->check(IsBetween(1, 1 << 20))
      ->group(group);
  command.add_option("--temperature", values.temperature, "0 to 2; 0 takes the best token (0)")
      ->type_name("X")
      ->check(IsBetween(0, 2))
      ->group(group);
  command.add_option("--top-p", values.top_p, "Above 0, at most 1 (1)")
      ->type_name("X")
      ->check(IsShare())
      ->group(group);
  command.add_option("--top-k", values.top_k, "Draw among the N best tokens; 0 is off (0)")
      ->type_name("N")
      ->check(IsBetween(0, INT32_MAX))
      ->group(group);
  AddPenalties(command, values);
  command.add_option("--min-tokens", values.min_tokens, "No end before so many tokens (0)")
      ->type_name("N")
      ->check(IsBetween(0, 1 << 20))
      ->group(group);
  command.add_flag("--ignore-eos", values.ignore_eos, "The model's own end does not end a text")
      ->group(group);
  command.add_option("--n", values.num_choices, "Texts for each row (1)")
      ->type_name("N")
      ->check(IsBetween(1, 1024))
      ->group(group);
  command.add_option("--seed", values.seed, "For draws (random, kept with the job)")
      ->type_name("N")
      ->group(group);
  command.add_option("--stop", values.stop, "Ends a text; may be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT")
      ->group(group);
  command.add_flag("--logprobs", values.logprobs, "Log-probability of each token")->group(group);
  command.add_option("--top-logprobs", values.top_logprobs, "And of the N best tokens beside it")
      ->type_name("N")
      ->check(IsBetween(0, 20))
      ->group(group);
  command
      .add_option("--chat-template-kwargs", values.chat_template_kwargs,
                  "Variables for the chat template, such as {\"enable_thinking\": false}; a row's "
                  "own are laid over them")
      ->type_name("JSON")
      ->group(group);
}

CLI::Option* AddSparseAttention(CLI::App& command, const std::string& name,
                                std::optional<double>& value, const std::string& help) {
  return command.add_option(name, value, help)->type_name("SHARE")->check(IsShare());
}

void AddJobOptions(CLI::App& command, Values& values) {
  const char* group = "Job";
  command
      .add_option(
          "--model", values.line.model,
          "Model of the daemon (not needed when it has one); run also takes the path of a pack")
      ->type_name("MODEL|PACK")
      ->group(group);
  command
      .add_option("--on-invalid-line", values.on_invalid_line,
                  "record: a bad row gets an error result (default); reject: refuse the file")
      ->type_name("record|reject")
      ->check(IsOneOf(OnInvalidLineNames()))
      ->group(group);
  command.add_option("--priority", values.priority, "Order among jobs (normal)")
      ->type_name("low|normal|high")
      ->check(IsOneOf(PriorityNames()))
      ->group(group);
  command.add_option("--compute-type", values.compute_type, "Of the computation (the daemon's)")
      ->type_name("f32|bf16|int8")
      ->check(IsOneOf(ComputeTypeNames()))
      ->group(group);
  command
      .add_option("--kv-type", values.kv_type,
                  "Keys and values in memory: int4 and int8 take less and change numbers (the "
                  "daemon's)")
      ->type_name("none|int8|int4|auto")
      ->check(IsOneOf(CompressionNames()))
      ->group(group);
  AddSparseAttention(command, "--sparse-attention", values.sparse_attention,
                     "Of the values in a context, those that generated tokens add up: less work, other "
                     "numbers (the daemon's; 1: all)")
      ->group(group);
  command
      .add_option("--weight-type", values.weight_type,
                  "Refuse a model whose weights are not stored so (auto: as they are)")
      ->type_name("none|int8|int4|auto")
      ->check(IsOneOf(CompressionNames()))
      ->group(group);
  command
      .add_option("--completion-window", values.completion_window,
                  "From acceptance; at its end what has finished stays, the rest expires")
      ->type_name("DURATION")
      ->check(IsDuration())
      ->group(group);
  command
      .add_option("--not-before", values.not_before,
                  "No request runs before, as 2025-06-01T22:00:00+02:00")
      ->type_name("TIME")
      ->check(IsStartTime())
      ->group(group);
  command
      .add_option("--after", values.after,
                  "No request runs before this job has ended, however it ends")
      ->type_name("JOB")
      ->check(IsNamed())
      ->group(group);
  command
      .add_option("--run-window", *values.line.spec.mutable_run_window(),
                  "Hours of the day in which it runs: 22:00-06:00, or with a time zone behind a "
                  "space (the daemon's)")
      ->type_name("HH:MM-HH:MM[ ZONE]")
      ->check(IsNamed())
      ->group(group);
  command.add_option("--label", values.labels, "KEY=VALUE kept with the job; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE")
      ->check(IsLabel())
      ->group(group);
  command
      .add_option("--job-id", values.line.job_id, "Name for the job, [a-z0-9-]{1,63} (generated)")
      ->type_name("ID")
      ->group(group);
  command
      .add_option(
          "--run-key", values.line.run_key,
          "The same input and options attach to the job they made before; another key makes "
          "another job")
      ->group(group);
}

void DeclareRun(CLI::App& app, Values& values) {
  CLI::App& run = *app.add_subcommand("run", "Submit a file, follow it, write the results");
  AddInput(run, values);
  run.add_option("-o,--output", values.line.output,
                 "Result file, complete when it appears (OUTPUT.part grows meanwhile; the same "
                 "command again resumes); - for stdout")
      ->required()
      ->type_name("OUTPUT")
      ->check(IsNamed());
  AddDocumentOptions(run, values);
  run.add_option("--merge", values.line.documents.merge_path,
                 "Template with {{output}}, to which the outputs of a split document's parts go: "
                 "one result a document")
      ->type_name("FILE")
      ->check(IsNamed())
      ->group("Documents");
  AddJobOptions(run, values);
  AddSampling(run, values);
  AddTimeout(run, values, "Detach after this long, exit code 8; the job goes on");
  run.add_flag("--private", values.line.private_daemon,
               "Start a daemon for this run even if one is listening; needs --model PACK");
  run.add_flag("--cancel-on-interrupt", values.line.cancel_on_interrupt,
               "Ctrl-C cancels the job instead of detaching from it");
  run.add_flag("--token-ids", values.line.token_ids, "Token ids in plain result lines");
}

void DeclareEvaluate(CLI::App& app, Values& values) {
  CLI::App& evaluate = *app.add_subcommand(
      "evaluate", "Measure how well a model predicts a text, and how far it is from another one");
  evaluate.add_option("model", values.line.model, "A model of the daemon, or the path of a pack")
      ->required()
      ->type_name("MODEL|PACK");
  evaluate
      .add_option("--task", values.task,
                  "next-word: is the last word of each document what the model says? perplexity: "
                  "how likely is each token behind those before it?")
      ->required()
      ->type_name("next-word|perplexity")
      ->check(IsOneOf(TaskNames()));
  evaluate
      .add_option("--data", values.line.input,
                  "Text, or FILE.jsonl with a {\"text\": ...} a line; in a text each line is a "
                  "document for next-word, all of it one for perplexity")
      ->required()
      ->type_name("FILE");
  evaluate
      .add_option("--against", values.line.against,
                  "Another model on the same data, and how far MODEL is from it")
      ->type_name("MODEL|PACK");
  evaluate.add_option("--compute-type", values.compute_type, "Of MODEL (the daemon's)")
      ->type_name("f32|bf16|int8")
      ->check(IsOneOf(ComputeTypeNames()));
  evaluate
      .add_option("--against-compute-type", values.against_compute_type,
                  "Of the other one (the daemon's)")
      ->type_name("f32|bf16|int8")
      ->check(IsOneOf(ComputeTypeNames()));
  evaluate.add_option("--kv-type", values.kv_type, "Keys and values of MODEL (the daemon's)")
      ->type_name("none|int8|int4|auto")
      ->check(IsOneOf(CompressionNames()));
  evaluate
      .add_option("--against-kv-type", values.against_kv_type,
                  "Keys and values of the other one (the daemon's)")
      ->type_name("none|int8|int4|auto")
      ->check(IsOneOf(CompressionNames()));
  AddSparseAttention(evaluate, "--sparse-attention", values.sparse_attention,
                     "Of the values, those that MODEL adds up for scored words (the daemon's)");
  AddSparseAttention(evaluate, "--against-sparse-attention", values.against_sparse_attention,
                     "The same of the other one (the daemon's)");
  evaluate.add_option("--window", values.line.windows.window_words, "perplexity: words of a row")
      ->capture_default_str()
      ->type_name("N")
      ->check(IsBetween(2, 1 << 20));
  evaluate
      .add_option("--stride", values.line.windows.stride_words,
                  "perplexity: of those, scored; the others come before them")
      ->capture_default_str()
      ->type_name("N")
      ->check(IsBetween(1, 1 << 20));
  evaluate.add_option("--priority", values.priority, "Order among jobs (normal)")
      ->type_name("low|normal|high")
      ->check(IsOneOf(PriorityNames()));
  evaluate.add_option("--run-key", values.line.run_key,
                      "The same evaluation attaches to the jobs that it made before; another key "
                      "makes others");
  evaluate.add_flag("--private", values.line.private_daemon,
                    "Start a daemon for this even if one is listening; needs paths of packs");
  AddTimeout(evaluate, values, "Detach after this long, exit code 8; the job goes on");
}

void DeclareJobCommands(CLI::App& app, Values& values) {
  CLI::App& submit = *app.add_subcommand("submit", "Submit a file, print the job's name");
  AddInput(submit, values);
  AddDocumentOptions(submit, values);
  AddJobOptions(submit, values);
  AddSampling(submit, values);
  submit.add_flag("--wait", values.line.wait, "Wait until the job has ended");
  submit.add_flag("--validate-only", values.line.validate_only,
                  "Check the file and name its bad lines, make no job");
  AddTimeout(submit, values, "With --wait: wait at most this long");

  AddJob(*app.add_subcommand("status", "Show a job"), values);

  CLI::App& list = *app.add_subcommand("list", "List jobs, newest first");
  list.add_option("--state", values.state, "Only jobs in this state, such as running or failed")
      ->type_name("STATE")
      ->check(IsJobState());
  AddLabelFilter(list, values);
  values.line.limit = kDefaultListed;
  list.add_option("--limit", values.line.limit, "At most so many")
      ->capture_default_str()
      ->type_name("N")
      ->check(IsBetween(1, kMaxListed));

  CLI::App& wait = *app.add_subcommand("wait", "Wait until a job has ended");
  AddJob(wait, values);
  AddTimeout(wait, values, "Wait at most this long, exit code 8");

  CLI::App& results = *app.add_subcommand(
      "results", "Write the results of a job; exit code 8 when it has not ended");
  AddJob(results, values);
  results
      .add_option("-o,--output", values.line.output,
                  "Result file, complete when it appears; - for stdout (default)")
      ->type_name("OUTPUT")
      ->check(IsNamed());
  results.add_flag("--follow", values.line.follow, "Stay until the job has ended");
  results.add_flag("--partial", values.line.partial,
                   "Of a job that has not ended: make OUTPUT of what there is, exit code 8");
  results.add_option("--after", values.line.after_seq, "Skip the first N results")
      ->type_name("N")
      ->check(IsBetween(0, 1e15));
  results
      .add_option("--order", values.order,
                  "commit: as they finish (default); input: as the rows, each when all before it "
                  "are there")
      ->type_name("commit|input")
      ->check(IsOneOf(OrderNames()));
  results.add_flag("--token-ids", values.line.token_ids, "Token ids in plain result lines");
  AddTimeout(results, values, "With --follow: detach after this long, exit code 8");

  CLI::App& cancel = *app.add_subcommand("cancel", "End a job, or all; what has finished stays");
  AddJob(cancel, values).required(false);
  cancel.add_flag("--all", values.line.all, "Every job that has not ended; asks first");
  AddLabelFilter(cancel, values);
  cancel.add_flag("--yes", values.line.yes, "Do not ask");

  AddJob(*app.add_subcommand("pause", "Stop a job; it keeps what it has, resume lets it go on"),
         values);
  AddJob(*app.add_subcommand("resume", "Let a paused job go on"), values);

  CLI::App& retry = *app.add_subcommand(
      "retry", "Submit the requests of an ended job that failed again, as a new job");
  AddJob(retry, values);
  retry.add_option("--run-key", values.line.run_key,
                   "Retrying the same job gives the same new job; another key gives another");

  CLI::App& remove = *app.add_subcommand("delete", "Remove a job with its input and results");
  AddJob(remove, values);
  remove.add_flag("--force", values.line.force, "Also a job that has not ended");
  remove.add_flag("--allow-missing", values.line.allow_missing, "No error if there is no such job");
}

void DeclarePolicyCommands(CLI::App& app, Values& values) {
  CLI::App& policy = *app.add_subcommand("policy", "How the daemon runs a model");
  policy.require_subcommand(1);
  CLI::App& show = *policy.add_subcommand(
      "show", "The plan that runs now: sizes, places, what it is predicted to take, what binds it");
  CLI::App& explain = *policy.add_subcommand(
      "explain", "Why that plan: what would be faster with more, what was rejected and why");
  for (CLI::App* command : {&show, &explain}) {
    command->add_option("subject", values.line.subject, "A model or a job (what is loaded)")
        ->type_name("MODEL|JOB");
  }
  const double most = 2147483648.0;
  explain
      .add_option("--requests", values.line.requests,
                  "Plan for so many requests instead of what is queued, and run nothing")
      ->type_name("N")
      ->check(IsBetween(1, most));
  explain.add_option("--prompt-tokens", values.line.prompt_tokens, "Of each of them")
      ->type_name("N")
      ->check(IsBetween(1, most));
  explain.add_option("--output-tokens", values.line.output_tokens, "Of each of them")
      ->type_name("N")
      ->check(IsBetween(0, most));
}

void DeclareServerCommands(CLI::App& app, Values& values) {
  app.add_subcommand("models", "List the models of the daemon");
  CLI::App& health = *app.add_subcommand("health", "Say whether the daemon accepts jobs");
  health.add_flag("--wait", values.line.wait, "Wait until it does");
  AddTimeout(health, values, "With --wait: wait at most this long (60s)");
  CLI::App& server = *app.add_subcommand("server", "About the daemon");
  server.require_subcommand(1);
  server.add_subcommand("info", "Version, device, limits");
  CLI::App& timeline = *server.add_subcommand(
      "timeline", "Write when the steps of the last sweeps ran, as a trace for chrome://tracing");
  timeline.add_option("file", values.line.output, "File to make; - for stdout")
      ->required()
      ->type_name("FILE")
      ->check(IsNamed());
  CLI::App& drain = *server.add_subcommand(
      "drain", "Accept and run nothing until --undo; what runs keeps what it has generated");
  drain.add_flag("--undo", values.line.undo, "Accept and run jobs again");
  CLI::App& backup =
      *server.add_subcommand("backup", "Copy jobs and results to a new folder, while jobs run");
  backup.add_option("folder", values.line.output, "Folder to make, on the daemon's machine")
      ->required()
      ->type_name("FOLDER")
      ->check(IsNamed());
  for (const auto& [name, help] : std::map<std::string, std::string>{
           {"bench", "Measure the engine alone on a pack: bench PACK --requests N"},
           {"calibrate", "Measure what this machine can do, for planning"},
           {"import", "Convert a model to a pack: import SOURCE --output PACK"},
           {"make-token", "Make a token for the daemon: make-token --tenant T --role ROLE"},
           {"plan", "Find the fastest way to run a job on a machine: plan MODEL --requests N"},
           {"model", "Look into a pack: model show PACK, model verify PACK"}}) {
    CLI::App& tool = *app.add_subcommand(name, help);
    tool.set_help_flag();
    tool.prefix_command();
    tool.fallthrough(false);
  }
}

// About the command line itself.
void DeclareShellCommands(CLI::App& app, Values& values) {
  app.add_subcommand("completion", "Print the script that lets a shell complete this command line")
      ->add_option("shell", values.shell,
                   "Each reads it in its own way: source <(nightshift completion bash), the same "
                   "with zsh, nightshift completion fish | source")
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(IsOneOf(ShellNames()));
  app.add_subcommand("man", "Print the manual page: nightshift man | man -l -");
  app.add_subcommand("complete", "What may stand next, for shells")->group("");
}

void Declare(CLI::App& app, Values& values) {
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(absl::StrCat("\n", ExitCodesText(), "\n", EnvironmentText()));
  app.set_version_flag("--version", std::string("nightshift ") + NIGHTSHIFT_VERSION);
  app.add_option("--address", values.line.address,
                 "Where the daemon listens: unix:PATH or HOST:PORT")
      ->type_name("ADDRESS")
      ->envname("NIGHTSHIFT_ADDRESS");
  for (const auto& [name, variable, target, help] :
       {std::tuple("--token-file", "NIGHTSHIFT_TOKEN_FILE", &values.line.credentials.token,
                   "File with the token that this client shows the daemon"),
        std::tuple(
            "--ca", "NIGHTSHIFT_CA", &values.line.credentials.ca,
            "PEM file with who signs the daemon's certificate; with it, and to every address "
            "of another machine, TLS is used (the system's)"),
        std::tuple("--client-cert", "NIGHTSHIFT_CLIENT_CERT",
                   &values.line.credentials.client_certificate,
                   "PEM file with this client's certificate"),
        std::tuple("--client-key", "NIGHTSHIFT_CLIENT_KEY", &values.line.credentials.client_key,
                   "PEM file with its private key")}) {
    app.add_option(name, *target, help)->envname(variable)->type_name("FILE")->group("Security");
  }
  app.add_flag("--json", values.line.json, "Data and errors as JSON lines");
  app.add_flag("--quiet", values.line.quiet, "Say nothing but errors");
  app.add_flag("--no-color", values.line.no_color, "No colour, as with NO_COLOR");
  DeclareRun(app, values);
  DeclareEvaluate(app, values);
  DeclareJobCommands(app, values);
  DeclarePolicyCommands(app, values);
  DeclareServerCommands(app, values);
  DeclareShellCommands(app, values);
}

Command CommandOf(const std::string& name) {
  static const std::map<std::string, Command> kCommands = {
      {"run", Command::kRun},           {"evaluate", Command::kEvaluate},
      {"submit", Command::kSubmit},     {"status", Command::kStatus},
      {"list", Command::kList},         {"wait", Command::kWait},
      {"results", Command::kResults},   {"cancel", Command::kCancel},
      {"models", Command::kModels},     {"pause", Command::kPause},
      {"resume", Command::kResume},     {"retry", Command::kRetry},
      {"delete", Command::kDelete},     {"health", Command::kHealth},
      {"server", Command::kServerInfo}, {"policy", Command::kPolicyShow},
      {"bench", Command::kDaemonTool},  {"calibrate", Command::kDaemonTool},
      {"import", Command::kDaemonTool}, {"model", Command::kDaemonTool},
      {"plan", Command::kDaemonTool},   {"make-token", Command::kDaemonTool},
      {"complete", Command::kComplete}};
  return kCommands.at(name);
}

void FillPenalties(const Values& values, v1::SamplingOptions& sampling) {
  if (values.min_p) {
    sampling.set_min_p(*values.min_p);
  }
  if (values.repetition_penalty) {
    sampling.set_repetition_penalty(*values.repetition_penalty);
  }
  if (values.presence_penalty) {
    sampling.set_presence_penalty(*values.presence_penalty);
  }
  if (values.frequency_penalty) {
    sampling.set_frequency_penalty(*values.frequency_penalty);
  }
  for (const std::string& text : values.logit_bias) {
    const auto [token, bias] = ParseLogitBias(text).value_or(std::pair(0, 0.0));
    (*sampling.mutable_logit_bias())[token] = bias;
  }
  for (const std::string& word : values.bad_words) {
    sampling.add_bad_words()->set_text(word);
  }
}

void FillSpec(const Values& values, v1::JobSpec& spec) {
  v1::SamplingOptions& sampling = *spec.mutable_sampling();
  if (values.max_tokens) {
    sampling.set_max_output_tokens(*values.max_tokens);
  }
  if (values.temperature) {
    sampling.set_temperature(*values.temperature);
  }
  if (values.top_p) {
    sampling.set_top_p(*values.top_p);
  }
  if (values.top_k) {
    sampling.set_top_k(*values.top_k);
  }
  FillPenalties(values, sampling);
  if (values.min_tokens) {
    sampling.set_min_output_tokens(*values.min_tokens);
  }
  if (values.ignore_eos) {
    sampling.set_ignore_eos(true);
  }
  if (values.num_choices) {
    sampling.set_num_choices(*values.num_choices);
  }
  if (values.seed) {
    sampling.set_seed(*values.seed);
  }
  for (const std::string& stop : values.stop) {
    sampling.add_stop(stop);
  }
  if (values.logprobs || values.top_logprobs) {
    sampling.set_logprobs(true);
  }
  if (values.top_logprobs) {
    sampling.set_top_logprobs(*values.top_logprobs);
  }
  if (!values.chat_template_kwargs.empty()) {
    spec.mutable_prompt_options()->set_chat_template_kwargs(values.chat_template_kwargs);
  }
  spec.set_priority(static_cast<v1::Priority>(EnumeratorOf(PriorityNames(), values.priority)));
  spec.set_on_invalid_line(
      static_cast<v1::OnInvalidLine>(EnumeratorOf(OnInvalidLineNames(), values.on_invalid_line)));
  spec.set_compute_type(
      static_cast<v1::ComputeTypeChoice>(EnumeratorOf(ComputeTypeNames(), values.compute_type)));
  const auto compression = [](const std::string& name) {
    return static_cast<v1::CompressionChoice>(EnumeratorOf(CompressionNames(), name));
  };
  if (!values.kv_type.empty() || !values.weight_type.empty()) {
    spec.mutable_compression()->set_kv(compression(values.kv_type));
    spec.mutable_compression()->set_weights(compression(values.weight_type));
  }
  if (values.sparse_attention) {
    spec.set_sparse_attention(*values.sparse_attention);
  }
  if (!values.completion_window.empty()) {
    const absl::Duration window = *ParseDurationText(values.completion_window);
    spec.mutable_completion_window()->set_seconds(absl::ToInt64Seconds(window));
    spec.mutable_completion_window()->set_nanos(static_cast<int32_t>(
        absl::ToInt64Nanoseconds(window - absl::Seconds(absl::ToInt64Seconds(window)))));
  }
  if (!values.not_before.empty()) {
    spec.mutable_not_before()->set_seconds(absl::ToUnixSeconds(*ParseStartTime(values.not_before)));
  }
  if (!values.after.empty()) {
    spec.set_after_job(JobName(values.after));
  }
  for (const std::string& label : values.labels) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(label, absl::MaxSplits('=', 1));
    (*spec.mutable_labels())[parts.first] = parts.second;
  }
}

CommandLine Complete(const CLI::App& app, Values values) {
  CommandLine line = std::move(values.line);
  const CLI::App& command = *app.get_subcommands().front();
  line.command = CommandOf(command.get_name());
  if (line.command == Command::kServerInfo) {
    for (const auto& [name, of_server] :
         std::map<std::string, Command>{{"timeline", Command::kServerTimeline},
                                        {"drain", Command::kServerDrain},
                                        {"backup", Command::kServerBackup}}) {
      line.command = command.got_subcommand(name) ? of_server : line.command;
    }
  }
  if (line.command == Command::kPolicyShow && command.got_subcommand("explain")) {
    line.command = Command::kPolicyExplain;
  }
  if (!values.order.empty()) {
    line.order = static_cast<v1::ResultOrder>(EnumeratorOf(OrderNames(), values.order));
  }
  if (line.address.empty()) {
    line.address = DefaultAddress();
  }
  if (!line.job.empty()) {
    line.job = JobName(line.job);
  }
  if (line.output.empty()) {
    line.output = "-";
  }
  if (line.documents.template_path.empty() && !line.documents.inputs.empty()) {
    line.input = line.documents.inputs.front();
  }
  if (!values.too_long.empty()) {
    line.documents.too_long =
        static_cast<v1::TooLong>(EnumeratorOf(TooLongNames(), values.too_long));
  }
  if (!values.timeout.empty()) {
    line.timeout = *ParseDurationText(values.timeout);
  }
  line.state = ParseState(values.state);
  if (!values.task.empty()) {
    line.task = static_cast<EvaluationTask>(EnumeratorOf(TaskNames(), values.task));
  }
  line.against_compute_type = static_cast<v1::ComputeTypeChoice>(
      EnumeratorOf(ComputeTypeNames(), values.against_compute_type));
  line.against_kv_type = static_cast<v1::CompressionChoice>(
      EnumeratorOf(CompressionNames(), values.against_kv_type));
  line.against_sparse_attention = values.against_sparse_attention;
  FillSpec(values, line.spec);
  if (line.command == Command::kDaemonTool) {
    line.tool_arguments = command.remaining();
    line.tool_arguments.insert(line.tool_arguments.begin(), command.get_name());
    if (line.json) {  // given before the command
      line.tool_arguments.push_back("--json");
    }
  }
  return line;
}

ParsedCommandLine UsageError(const std::string& what, const std::string& command, bool json) {
  ParsedCommandLine parsed;
  parsed.exit_code = static_cast<int>(ExitCode::kUsage);
  const std::string text = OneLine(what);
  const std::string next_step =
      absl::StrCat("see: nightshift ", command.empty() ? "" : command + " ", "--help");
  parsed.error = json ? ErrorJson(absl::InvalidArgumentError(text), next_step)
                      : absl::StrCat("nightshift: error: ", text, " [usage]; ", next_step);
  return parsed;
}

std::string EvaluateContradiction(const CommandLine& line) {
  if (line.windows.stride_words >= line.windows.window_words) {
    return absl::StrCat("--stride ", line.windows.stride_words, " must be below --window ",
                        line.windows.window_words, ": something comes before what is scored");
  }
  if (line.against.empty() && line.against_compute_type != v1::COMPUTE_TYPE_CHOICE_UNSPECIFIED) {
    return "--against-compute-type needs --against";
  }
  if (line.against.empty() && line.against_kv_type != v1::COMPRESSION_CHOICE_UNSPECIFIED) {
    return "--against-kv-type needs --against";
  }
  if (line.against.empty() && line.against_sparse_attention) {
    return "--against-sparse-attention needs --against";
  }
  return "";
}

std::string DocumentContradiction(const CommandLine& line) {
  const DocumentOptions& documents = line.documents;
  const bool splits = documents.too_long == v1::TOO_LONG_SPLIT;
  if (documents.template_path.empty()) {
    if (documents.inputs.size() > 1) {
      return absl::StrCat("one file of requests, not ", documents.inputs.size(),
                          "; documents need --template");
    }
    const bool has_wishes = !documents.id_field.empty() || documents.max_prompt_tokens > 0 ||
                            documents.too_long != v1::TOO_LONG_ERROR ||
                            documents.overlap_tokens > 0 || !documents.merge_path.empty();
    return has_wishes ? "--id-field, --too-long, --max-prompt-tokens, --overlap and --merge are "
                        "for documents: give --template"
                      : "";
  }
  if (std::find(documents.inputs.begin(), documents.inputs.end(), "-") != documents.inputs.end()) {
    return "--template takes files, not standard input, whose kind and name nobody knows";
  }
  if (!splits && (documents.overlap_tokens > 0 || !documents.merge_path.empty())) {
    return "--overlap and --merge need --too-long split";
  }
  if (!documents.merge_path.empty() && line.cancel_on_interrupt) {
    return "--merge runs several jobs, so --cancel-on-interrupt does not say which to cancel";
  }
  if (!documents.merge_path.empty() && line.spec.sampling().num_choices() > 1) {
    return "--merge needs one text a part, not --n";
  }
  return "";
}

std::string CancelContradiction(const CommandLine& line) {
  if (line.all == !line.job.empty()) {
    return line.all ? absl::StrCat("--all or ", line.job, ": one of them") : "name a job, or --all";
  }
  return !line.all && (line.yes || !line.label.empty()) ? "--label and --yes belong to --all" : "";
}

// Rules that one option alone does not show.
std::string Contradiction(const CommandLine& line) {
  if (line.command == Command::kRun && line.private_daemon && line.model.empty()) {
    return "--private needs --model PACK";
  }
  if (line.command == Command::kEvaluate) {
    return EvaluateContradiction(line);
  }
  if (const std::string wrong = DocumentContradiction(line); !wrong.empty()) {
    return wrong;
  }
  const bool has_lengths = line.prompt_tokens > 0 || line.output_tokens > 0;
  if (line.command == Command::kPolicyExplain && (line.requests > 0) != has_lengths) {
    return "a workload is --requests with --prompt-tokens, and --output-tokens";
  }
  if (line.command == Command::kResults && line.follow && line.partial) {
    return "--partial takes what there is, --follow waits for the rest: one of them";
  }
  if (line.command == Command::kCancel) {
    return CancelContradiction(line);
  }
  if (line.command == Command::kServerBackup && line.output == "-") {
    return "a backup is a folder and cannot go to standard output: name one";
  }
  if (line.command == Command::kSubmit && line.wait && line.validate_only) {
    return "--validate-only makes no job, there is nothing to --wait for";
  }
  return "";
}

// The words of `complete` are no command line of ours, apart from where the daemon is.
ParsedCommandLine ParseComplete(const std::vector<std::string>& arguments) {
  auto first = arguments.begin() + 1;
  first += first != arguments.end() && *first == "--" ? 1 : 0;
  const std::vector<std::string> words(first, arguments.end());
  std::vector<std::string> known = GlobalOptionsIn(CommandLineHelp(), words);
  known.push_back(arguments.front());
  ParsedCommandLine parsed = ParseCommandLine(known);
  if (parsed.command_line) {
    parsed.command_line->words = words;
  }
  return parsed;
}

ParsedCommandLine PrintText(std::string text) {
  ParsedCommandLine parsed;
  parsed.output = std::move(text);
  return parsed;
}

}  // namespace

CommandHelp CommandLineHelp() {
  CLI::App app(kDescription, "nightshift");
  Values values;
  Declare(app, values);
  return HelpOf(app);
}

ParsedCommandLine ParseCommandLine(const std::vector<std::string>& arguments) {
  if (arguments.size() > 1 && arguments.front() == "complete") {
    return ParseComplete(arguments);
  }
  CLI::App app(kDescription, "nightshift");
  Values values;
  Declare(app, values);
  const auto usage_error = [&](const std::string& what) {
    const bool has_command = !app.get_subcommands().empty();
    const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
    return UsageError(what, has_command ? app.get_subcommands().front()->get_name() : "", json);
  };
  try {
    // CLI11 takes the arguments last first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& success) {  // --help, --version
    ParsedCommandLine parsed;
    std::ostringstream out;
    std::ostringstream unused;
    parsed.exit_code = app.exit(success, out, unused);
    parsed.output = out.str();
    return parsed;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> unknown = app.remaining();
    if (app.get_subcommands().empty() && !unknown.empty()) {
      return usage_error(absl::StrCat("unknown command or option '", unknown.front(), "'"));
    }
    return usage_error(error.what());
  }
  if (app.got_subcommand("man")) {
    return PrintText(ManualPage(HelpOf(app)));
  }
  if (app.got_subcommand("completion")) {
    return PrintText(CompletionScript(values.shell));
  }
  if (const absl::Status status = ReadConfigFile(ConfigFilePath(), values.line.address,
                                                 values.line.credentials);
      !status.ok()) {
    return usage_error(std::string(status.message()));
  }
  ParsedCommandLine parsed;
  parsed.command_line = Complete(app, values);
  if (const std::string wrong = Contradiction(*parsed.command_line); !wrong.empty()) {
    return usage_error(wrong);
  }
  return parsed;
}

}  // namespace nightshift
