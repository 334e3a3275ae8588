// The command line of `nightshift`: subcommands, options and NIGHTSHIFT_ADDRESS, declared together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "client/credentials.h"
#include "client/evaluation_data.h"
#include "kernels/base/command_help.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

enum class Command {
  kRun,
  kEvaluate,
  kSubmit,
  kStatus,
  kList,
  kWait,
  kResults,
  kCancel,
  kPause,
  kResume,
  kRetry,
  kDelete,
  kModels,
  kHealth,
  kPolicyShow,
  kPolicyExplain,
  kServerInfo,
  kServerTimeline,
  kServerDrain,
  kServerBackup,
  kDaemonTool,  // bench, import, make-token, model, plan: executed by nightshiftd
  kComplete,    // for shells
};

// Documents in place of requests.
struct DocumentOptions {
  std::string template_path;  // empty: the input holds requests
  std::vector<std::string> inputs;
  std::string id_field;
  v1::TooLong too_long = v1::TOO_LONG_ERROR;
  int64_t max_prompt_tokens = 0;
  int64_t overlap_tokens = 0;
  std::string merge_path;  // run; empty: parts stay apart
};

struct CommandLine {
  Command command = Command::kHealth;
  // Of every command.
  std::string address;
  CredentialFiles credentials;
  bool json = false;
  bool quiet = false;
  bool no_color = false;

  std::string input;          // run, submit, evaluate: path or "-"
  std::string output;         // run, results, server timeline: path or "-"; server backup: folder
  std::string job;            // "jobs/{id}"
  std::string subject;        // policy: a model or a job; empty: what is loaded
  int64_t requests = 0;       // policy explain: of a workload; 0: what is queued
  int64_t prompt_tokens = 0;  // of each
  int64_t output_tokens = 0;
  DocumentOptions documents;  // run, submit
  // run, submit. spec.model stays empty: `model` may be a path.
  v1::JobSpec spec;
  std::string model;
  std::string job_id;
  std::string run_key;
  // evaluate
  EvaluationTask task = EvaluationTask::kPerplexity;
  EvaluationWindows windows;
  std::string against;  // a second model; empty: none
  v1::ComputeTypeChoice against_compute_type = v1::COMPUTE_TYPE_CHOICE_UNSPECIFIED;
  v1::CompressionChoice against_kv_type = v1::COMPRESSION_CHOICE_UNSPECIFIED;
  std::optional<double> against_sparse_attention;  // nothing: the daemon's

  bool token_ids = false;                           // run, results
  bool private_daemon = false;                      // run, evaluate
  bool cancel_on_interrupt = false;                 // run
  bool wait = false;                                // submit, health
  bool validate_only = false;                       // submit
  bool follow = false;                              // results
  bool partial = false;                             // results
  int64_t after_seq = 0;                            // results
  v1::ResultOrder order = v1::RESULT_ORDER_COMMIT;  // results
  bool force = false;                               // delete
  bool allow_missing = false;                       // delete
  bool all = false;                                 // cancel: in place of a job
  bool yes = false;                                 // cancel: do not ask
  bool undo = false;                                // server drain
  std::string label;                                // list, cancel
  v1::JobState state = v1::JOB_STATE_UNSPECIFIED;   // list
  int64_t limit = 0;                                // list
  absl::Duration timeout = absl::InfiniteDuration();
  std::vector<std::string> tool_arguments;  // kDaemonTool: all of them, the tool's name first
  std::vector<std::string> words;           // kComplete: the last one is to be completed
};

// Either a command line, or what to print and how to exit (--help, --version, man, completion, a
// usage error).
struct ParsedCommandLine {
  std::optional<CommandLine> command_line;
  int exit_code = 0;
  std::string output;  // for standard output
  std::string error;   // for standard error, one line
};

// `arguments` without the name of the program. Reads NIGHTSHIFT_ADDRESS.
ParsedCommandLine ParseCommandLine(const std::vector<std::string>& arguments);

// What the command line says of itself.
CommandHelp CommandLineHelp();

}  // namespace nightshift
