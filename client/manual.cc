#include "client/manual.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "kernels/base/man_page.h"

namespace nightshift {
namespace {

Definitions Environment() {
  return {
      {"NIGHTSHIFT_ADDRESS", "Where the daemon listens; --address wins."},
      {"NIGHTSHIFT_TOKEN_FILE, NIGHTSHIFT_CA, NIGHTSHIFT_CLIENT_CERT, NIGHTSHIFT_CLIENT_KEY",
       "As --token-file, --ca, --client-cert and --client-key, which win."},
      {"NIGHTSHIFT_STATE_DIR, XDG_STATE_HOME, HOME",
       "Without an address: the daemon is looked for in the state folder that it has by default, at "
       "STATE_DIR/nightshift.sock."},
      {"XDG_CONFIG_HOME", "Where nightshift/client.toml lies, in place of ~/.config."},
      {"NO_COLOR", "No colour when it is not empty."},
      {"TMPDIR", "Where input that comes through a pipe is copied to."},
      {"PATH", "Where nightshiftd is looked for when it is not beside nightshift."},
  };
}

Definitions Files() {
  return {
      {"~/.config/nightshift/client.toml",
       "What no command needs to say: address, token-file, ca, client-cert and client-key, as "
       "address = \"batch.example:7443\"; paths are absolute. Options and variables win."},
      {"OUTPUT.part", "Result lines of a run that has not ended. OUTPUT appears, whole, at the end."},
      {"OUTPUT.part.state",
       "How much of OUTPUT.part is certain, and of which job it is: the same command again goes on "
       "there."},
      {"OUTPUT.nightshift",
       "The folder of a private daemon (run --private), until OUTPUT is there."},
  };
}

// The fields of each command's objects in their order, behind the colon; tests/e2e/command_line_test.py
// holds them to what is printed.
Definitions JsonOutput() {
  return {
      {"run -o FILE, submit, status, list, wait, results -o FILE, cancel, pause, resume, retry",
       "A job: name, uid, state, model, counts, tokens, progress, report, last_seq, create_time, "
       "start_time, end_time, expire_time, next_run_time, waits_for, waits_for_model, held, retry_of, "
       "results_expired, attached, error, labels"},
      {"run -o -, results -o -", "Result lines, as without --json"},
      {"delete", "The job that is gone: name, deleted"},
      {"models",
       "A model: name, architecture, digest, weights, parameters, bytes, context_tokens, "
       "has_tokenizer, has_chat_template, loaded, error"},
      {"evaluate", "What was measured: task, data, rows, failed_rows, words, bytes, model"},
      {"health", "Printed when jobs are accepted: serving"},
      {"policy show", "The plan, null without one: model, planned, reason, hardware, plan"},
      {"policy explain",
       "The same and why: model, planned, reason, hardware, plan, reliefs, alternatives"},
      {"server info, server drain",
       "The daemon: address, version, api_versions, instance_id, draining, start_time, tls, storage, "
       "device, memory_budget_bytes, loaded_model, kv_type, allow_lossy, sparse_attention, bottleneck, planning, "
       "features, limits"},
      {"server backup", "The copy: folder, jobs, bytes"},
      {"server timeline FILE", "The trace that was written: file, bytes"},
      {"import, model show", "What the pack holds"},
      {"model verify", "What was read: pack, good, shards, bytes, num_problems, problems"},
      {"make-token", "The token, and its line for the daemon's access file: token, access_line"},
      {"bench, calibrate, plan", "What was measured or planned"},
      {"errors",
       "On standard error, in an object named error: code, reason, message, fields, next_step"},
  };
}

}  // namespace

std::string ManualPage(const CommandHelp& help) {
  ManPageText text;
  text.section = 1;
  text.summary = "batch jobs for large language models";
  text.description = {
      "nightshift submits files with one request a line to a daemon, nightshiftd, which runs them "
      "through a language model that may be larger than the machine's memory, and writes files with "
      "one result a line. A job outlives the command that submitted it: every command can be "
      "interrupted and given again.",
      "A request is a line of JSON: {\"id\": \"a\", \"prompt\": \"...\", \"max_tokens\": 64}, with "
      "\"messages\" in place of the prompt for a chat, or a line of an OpenAI batch file. A result has "
      "the form of its request and the same id. A request that cannot run gets a result with its "
      "error; it stops no other one.",
      "Data goes to standard output, everything else to standard error. With --json both are lines of "
      "JSON, an object each."};
  text.parts = {
      {"JSON OUTPUT", JsonOutput()}, {"ENVIRONMENT", Environment()}, {"FILES", Files()}};
  text.examples = {
      {"nightshift run documents.jsonl --output results.jsonl",
       "Submit a file, follow the job, write the results. The same command again goes on where a "
       "killed one has ended"},
      {"job=$(nightshift submit documents.jsonl)\nnightshift wait $job\n"
       "nightshift results $job --output results.jsonl",
       "The same in steps, hours apart"},
      {"nightshift results JOB --partial --output so-far.jsonl",
       "What is finished so far of a job that runs; exit status 8 says that more is to come"},
      {"nightshift list --state running --json", "The jobs that run, for a program"},
      {"nightshift run documents.jsonl --output results.jsonl --model ./pack",
       "Without a daemon: one is started for this run"}};
  text.see_also = {"nightshiftd(8)"};
  return ManPage(help, text);
}

std::string EnvironmentText() {
  return absl::StrCat("Environment: ",
                      absl::StrJoin(Environment(), "; ", [](std::string* out, const auto& variable) {
                        absl::StrAppend(out, variable.first);
                      }));
}

}  // namespace nightshift
