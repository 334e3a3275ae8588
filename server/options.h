// Options of nightshiftd, and where they come from: command line, NIGHTSHIFT_* environment, TOML
// file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/model/weight_types.h"
#include "engine/policy/run_plan.h"
#include "engine/tier_options.h"
#include "kernels/base/log_format.h"
#include "kernels/dtype.h"
#include "server/compression.h"
#include "server/security/tls_pair.h"
#include "server/tools/bench.h"
#include "server/tools/calibrate.h"
#include "server/tools/make_token.h"
#include "server/tools/plan_model.h"
#include "server/tools/random_import.h"

namespace nightshift {

struct Options {
  std::vector<std::string> models;  // pack folders
  std::string models_directory;     // a folder of packs; may be empty
  std::string state_directory;      // default: proto/nightshift/default_address.h
  std::vector<std::string> listen;  // default: unix:STATE_DIRECTORY/nightshift.sock
  // Weights, KV cache and scratch of the engine together. Default: half of the memory available at
  // start, which leaves the other half to the page cache and to whoever else uses the machine.
  int64_t memory_budget_bytes = 0;
  // Of that, for weights; the rest of the model is read from disk in every sweep. -1: the engine
  // plans it (engine/memory_plan.h).
  int64_t weight_budget_bytes = -1;
  DeviceChoice device;  // fixes tiers.gpu at start
  TierOptions tiers;    // spill_folder empty: state_directory
  int64_t threads = 0;  // compute threads; 0: one a core
  ComputeType compute_type = ComputeType::kBF16;
  v1::CompressionChoice kv_type = v1::COMPRESSION_CHOICE_NONE;  // of jobs that do not say
  double sparse_attention = 1.0;  // of jobs that do not say, as EngineOptions
  bool allow_lossy = false;  // whether "auto" may choose what changes numbers
  int64_t max_block_requests = 256;   // requests that the engine holds at one time
  int64_t max_sweep_tokens = 2048;    // of all spans of a sweep
  int64_t max_batch_tokens = 512;     // of those that a layer computes at one time
  int64_t prompt_chunk_tokens = 512;  // of one request in a sweep; 0: unlimited
  FixedOptions fixed;                 // which of those above were given: no plan changes them
  // Whether block, batches and placement follow from a plan for what is queued, made of a hardware
  // profile: a file's, a known machine's, or (empty) the one that `nightshift calibrate` keeps.
  bool plans = true;
  std::string hardware;
  int64_t drain_timeout_s = 120;  // from SIGTERM to the end
  int64_t max_requests_per_job = 10'000'000;
  int64_t max_input_bytes = int64_t{20} << 30;
  int64_t max_line_bytes = 16 << 20;
  int64_t max_prompt_bytes = 8 << 20;  // its text, or that of all messages; a line is the bound, too
  int64_t max_custom_id_bytes = 512;
  int64_t max_labels = 16;     // of a job
  int64_t max_json_depth = 64;  // of a line
  int64_t max_choices = 16;  // n of one row; at most 1024
  int64_t max_uploads = 16;  // of a tenant at one time
  // Free disk below which no job is accepted; -1: the larger of 5 % and 2 GiB.
  int64_t disk_reserve_bytes = -1;
  // Disk for token ids of prompts that were checked and wait; what does not fit is tokenized again.
  int64_t kept_prompt_bytes = int64_t{4} << 30;
  // Rows among which the longest are taken first, of all jobs together.
  int64_t claim_window_rows = 1 << 16;
  // Of a file whose space is given up when the disk is full, so that what has happened can still be
  // written; 0: none.
  int64_t disk_ballast_bytes = 64 << 20;
  int64_t keep_results_days = 30;   // input and results of a job that has ended
  int64_t keep_records_days = 365;  // its record, after that
  TlsFiles tls;                     // certificate empty: no TLS
  bool allow_token_only = false;    // other machines' clients need no certificate
  // Of gRPC.
  int64_t max_connections = 10'000;
  int64_t max_streams_per_connection = 128;
  int64_t max_metadata_bytes = 8 << 10;         // of one call
  int64_t max_message_bytes = 4 << 20;          // that a call brings
  int64_t max_chunk_bytes = 1 << 20;            // of an upload
  int64_t max_wait_s = 60;                      // of a call that waits for a job
  int64_t idle_connection_s = 900;              // a connection without a call ends after that
  int64_t rpc_memory_bytes = int64_t{1} << 30;  // of all connections and calls; a last fuse
  std::string access_file;          // who may call (server/security/README.md); empty: everybody
  // HOST:PORT of loopback for /metrics, /readyz, /livez and /statusz; empty: none is served. Any user of
  // the machine can read it.
  std::string http_listen;
  LogFormat log_format = LogFormat::kText;
  std::string ready_file;           // gets the addresses, one a line, when they accept calls

  // INVALID_ARGUMENT naming option and value.
  absl::Status Validate() const;
};

enum class Command {
  kServe,
  kCheckConfig,
  kPrintConfig,
  kPrintText,  // help or version: CommandLine::text
  kImport,
  kImportRandom,
  kBench,
  kCalibrate,
  kPlan,
  kModelShow,
  kModelVerify,
  kMakeToken,
};

struct CommandLine {
  Command command = Command::kServe;
  Options options;
  // "key=value (source)" of every option, in the order of the file; no option is a secret.
  std::vector<std::string> effective;
  std::string text;
  // import
  std::string source;
  std::string output;
  std::string name;
  bool without_tokenizer = false;
  bool without_template = false;
  std::string chat_template_file;
  WeightTypes types;           // of import; matrices of import --random, too
  RandomImportOptions random;  // of import --random
  BenchOptions bench;
  std::string timeline_path;  // of bench: the file for a trace; empty for none
  CalibrateOptions calibrate;
  PlanModelOptions plan;
  MakeTokenOptions make_token;
  // model show, model verify
  std::string pack;
  bool json = false;  // of all tools
};

// Reads the command line, then the environment, then the file of --config; the first that names an
// option wins. Errors: INVALID_ARGUMENT (unknown option or key, wrong value), naming it.
absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv);

}  // namespace nightshift
