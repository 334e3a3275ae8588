// CommandHelp: what a command line says of itself, as plain data. Manual pages and completions are
// made of it, so that a flag is described once, where it is declared.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace nightshift {

struct OptionHelp {
  std::vector<std::string> names;  // "-o", "--output"; of a positional argument none
  // What it takes: "FILE", "low|normal|high" (words to choose from), "MODEL|PACK" (of either kind).
  // Of a positional argument its name on the command line. Empty for a flag.
  std::string value;
  std::string text;
  std::string default_text;  // empty: none, or `text` says it
  std::string group;         // under which heading; empty for the plain ones
  bool required = false;
  bool repeats = false;  // a positional argument that takes all that follow
};

struct CommandHelp {
  std::string name;
  std::string text;
  std::vector<OptionHelp> options;
  std::vector<OptionHelp> arguments;  // positional, in their order
  std::vector<CommandHelp> commands;  // subcommands; without those that are hidden
  bool takes_rest = false;            // whatever follows belongs to another program

  // The subcommand of this name; nullptr for none.
  const CommandHelp* Find(const std::string& command) const;
};

// Of `app` and all that is below it.
CommandHelp HelpOf(const CLI::App& app);

}  // namespace nightshift
