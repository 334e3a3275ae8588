#include "server/manual.h"

#include "kernels/base/man_page.h"

namespace nightshift {
namespace {

Definitions Environment() {
  return {
      {"NIGHTSHIFT_...",
       "Each option of the daemon by its name in capitals: NIGHTSHIFT_MEMORY_BUDGET is "
       "--memory-budget. A flag wins over a variable, that over the configuration file."},
      {"XDG_STATE_HOME, HOME", "Where the state folder lies by default."},
      {"XDG_CACHE_HOME", "Where the hardware profile of calibrate lies by default."},
      {"NOTIFY_SOCKET", "Of systemd, which is told when jobs are accepted."},
  };
}

Definitions Files() {
  return {
      {"$XDG_STATE_HOME/nightshift, ~/.local/state/nightshift, /var/lib/nightshift",
       "The state folder, the first of these that can be named: jobs, inputs, results."},
      {"STATE_DIR/nightshift.sock", "The socket that clients look for."},
      {"STATE_DIR/drained",
       "There while the daemon is drained (nightshift server drain): it accepts and runs nothing, "
       "also after a restart, until nightshift server drain --undo."},
      {"$XDG_CACHE_HOME/nightshift/hardware.json", "The profile that calibrate has measured."},
  };
}

}  // namespace

std::string DaemonManualPage(const CommandHelp& help) {
  ManPageText text;
  text.section = 8;
  text.summary = "daemon that runs batch jobs of large language models";
  text.description = {
      "nightshiftd takes jobs over gRPC, keeps them durably, and runs them through language models "
      "that may be larger than the memory of the machine. Accepted means durable: what a submit has "
      "answered survives a crash, and each request of a job ends in exactly one result.",
      "Without a command it serves until SIGTERM or SIGINT. Then it accepts nothing more, keeps what "
      "requests in flight have generated, and ends; a second signal cancels open calls. The commands "
      "are tools that need no daemon.",
      "Options come from the command line, from the environment and from a TOML file (--config), "
      "whose keys are the options without --. An unknown key is an error."};
  text.parts = {{"ENVIRONMENT", Environment()}, {"FILES", Files()}};
  text.examples = {
      {"nightshiftd --models /srv/models", "Serve the packs of a folder on a socket of this user"},
      {"nightshiftd --config /etc/nightshift/nightshiftd.toml --check-config",
       "Check a configuration without starting"},
      {"nightshiftd import ./Llama-3-8B --output /srv/models/llama-3-8b --weights int4",
       "Make a pack of a Hugging Face folder"},
      {"nightshiftd calibrate", "Measure this machine, for planning"}};
  text.see_also = {"nightshift(1)"};
  return ManPage(help, text);
}

}  // namespace nightshift
