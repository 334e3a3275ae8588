#include "kernels/base/command_help.h"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "absl/strings/ascii.h"

namespace nightshift {
namespace {

// CLI11's own group for what has none.
constexpr char kPlainGroup[] = "Options";

std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  return names;
}

// Without what checks say of themselves. An argument whose type is any text goes by its name.
std::string ValueOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string value = type.substr(0, type.find(':'));
  return option.get_positional() && value == "TEXT" ? absl::AsciiStrToUpper(option.get_name(true))
                                                    : value;
}

OptionHelp HelpOf(const CLI::Option& option) {
  OptionHelp help;
  help.names = NamesOf(option);
  const bool is_flag = option.get_items_expected_max() == 0;
  help.value = is_flag ? "" : ValueOf(option);
  help.text = option.get_description();
  help.default_text = is_flag ? "" : option.get_default_str();
  help.group = option.get_group() == kPlainGroup ? "" : option.get_group();
  help.required = option.get_required();
  help.repeats = option.get_items_expected_max() > 1;
  return help;
}

}  // namespace

const CommandHelp* CommandHelp::Find(const std::string& command) const {
  const auto found = std::find_if(commands.begin(), commands.end(), [&](const CommandHelp& each) {
    return each.name == command;
  });
  return found == commands.end() ? nullptr : &*found;
}

CommandHelp HelpOf(const CLI::App& app) {
  CommandHelp help;
  help.name = app.get_name();
  help.text = app.get_description();
  help.takes_rest = app.get_prefix_command();
  for (const CLI::Option* option : app.get_options()) {
    OptionHelp described = HelpOf(*option);
    if (option->get_positional()) {
      help.arguments.push_back(described);
      help.arguments.back().names.clear();
      described.required = false;  // where it is an option too, either will do
    }
    if (!described.names.empty()) {
      help.options.push_back(described);
    }
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) {
      help.commands.push_back(HelpOf(*command));
    }
  }
  return help;
}

}  // namespace nightshift
