#include "kernels/base/man_page.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "kernels/base/exit_code.h"

namespace nightshift {
namespace {

// Plain text as roff shows it: no character of it is a request, and a hyphen stays one when copied.
std::string Escape(absl::string_view text) {
  std::string escaped;
  for (const char character : text) {
    switch (character) {
      case '\\':
        escaped += "\\e";
        break;
      case '-':
        escaped += "\\-";
        break;
      case '\'':
        escaped += "\\(aq";
        break;
      default:
        escaped += character;
    }
  }
  return escaped.starts_with('.') ? "\\&" + escaped : escaped;
}

std::string Bold(absl::string_view text) {
  return absl::StrCat("\\fB", Escape(text), "\\fR");
}
std::string Italic(absl::string_view text) {
  return absl::StrCat("\\fI", Escape(text), "\\fR");
}

std::string Heading(absl::string_view title) {
  return absl::StrCat(".SH ", Escape(title), "\n");
}

std::string Tagged(absl::string_view tag, absl::string_view text) {
  return absl::StrCat(".TP\n", tag, "\n", text.empty() ? "\\&" : Escape(text), "\n");
}

// As people write an argument: INPUT, [MODEL|JOB], FILE...
std::string ArgumentText(const OptionHelp& argument) {
  const std::string name = Italic(argument.value) + (argument.repeats ? "..." : "");
  return argument.required ? name : absl::StrCat("[", name, "]");
}

std::string OptionText(const OptionHelp& option) {
  const std::string names = absl::StrJoin(option.names, ", ", [](std::string* out, const auto& name) {
    absl::StrAppend(out, Bold(name));
  });
  return option.value.empty() ? names : absl::StrCat(names, " ", Italic(option.value));
}

std::string OptionsText(const std::vector<OptionHelp>& options) {
  std::string text;
  for (const OptionHelp& option : options) {
    const std::string added = option.required                ? " (required)"
                              : option.default_text.empty() ? ""
                                                             : " [" + option.default_text + "]";
    absl::StrAppend(&text, Tagged(OptionText(option), option.text + added));
  }
  return text;
}

// Groups of options in their order, the plain ones first.
std::vector<std::pair<std::string, std::vector<OptionHelp>>> GroupsOf(const CommandHelp& command) {
  std::vector<std::pair<std::string, std::vector<OptionHelp>>> groups = {{"", {}}};
  for (const OptionHelp& option : command.options) {
    auto group = groups.begin();
    while (group != groups.end() && group->first != option.group) {
      ++group;
    }
    if (group == groups.end()) {
      group = groups.insert(groups.end(), {option.group, {}});
    }
    if (option.names != std::vector<std::string>{"-h", "--help"}) {
      group->second.push_back(option);
    }
  }
  return groups;
}

class CommandPages {
 public:
  explicit CommandPages(const std::string& program) : program_(program) {}

  // The commands that do something, each with its options.
  std::string Text(const CommandHelp& command, const std::string& name) {
    if (!command.commands.empty()) {
      std::string text;
      for (const CommandHelp& below : command.commands) {
        absl::StrAppend(&text, Text(below, absl::StrCat(name, name.empty() ? "" : " ", below.name)));
      }
      return text;
    }
    std::string synopsis = Bold(name);
    for (const OptionHelp& argument : command.arguments) {
      absl::StrAppend(&synopsis, " ", ArgumentText(argument));
    }
    for (const OptionHelp& option : command.options) {
      absl::StrAppend(&synopsis, option.required ? " " + OptionText(option) : "");
    }
    return absl::StrCat(".SS ", synopsis, command.takes_rest ? " ..." : "", "\n",
                        Escape(command.text), ".\n", Groups(command, name));
  }

 private:
  std::string Groups(const CommandHelp& command, const std::string& name) {
    std::string text;
    for (const OptionHelp& argument : command.arguments) {
      absl::StrAppend(&text, Tagged(ArgumentText(argument), argument.text));
    }
    for (const auto& [group, options] : GroupsOf(command)) {
      const std::string listed = OptionsText(options);
      if (group.empty()) {
        absl::StrAppend(&text, listed);
      } else if (const auto known = first_.find(listed); known != first_.end()) {
        absl::StrAppend(&text, ".PP\n", Escape(group), ": the options of ", Bold(program_ + " " + known->second),
                        ".\n");
      } else {
        first_[listed] = name;
        absl::StrAppend(&text, ".PP\n", Escape(group), ":\n", listed);
      }
    }
    return text;
  }

  const std::string program_;
  std::map<std::string, std::string> first_;  // the options of a group, by the command that has them
};

std::string DefinitionsText(const Definitions& definitions) {
  std::string text;
  for (const auto& [term, meaning] : definitions) {
    absl::StrAppend(&text, Tagged(Bold(term), meaning));
  }
  return text;
}

std::string ExamplesText(const Definitions& examples) {
  std::string text;
  for (const auto& [command, purpose] : examples) {
    absl::StrAppend(&text, text.empty() ? "" : ".PP\n", Escape(purpose), ":\n.PP\n.nf\n");
    for (const absl::string_view line : absl::StrSplit(command, '\n')) {
      absl::StrAppend(&text, "    ", Escape(line), "\n");
    }
    absl::StrAppend(&text, ".fi\n");
  }
  return text;
}

std::string ExitStatusText() {
  Definitions codes;
  for (const ExitCodeMeaning& each : kExitCodes) {
    codes.emplace_back(absl::StrCat(static_cast<int>(each.code)), each.meaning);
  }
  return DefinitionsText(codes);
}

}  // namespace

std::string ManPage(const CommandHelp& help, const ManPageText& text) {
  const std::string title = absl::AsciiStrToUpper(help.name);
  std::string page = absl::StrCat(
      ".TH ", title, " ", text.section, " ", NIGHTSHIFT_DATE, " \"", help.name, " ",
      NIGHTSHIFT_VERSION, "\"\n", Heading("NAME"), help.name, " \\- ", Escape(text.summary), "\n",
      Heading("SYNOPSIS"), Bold(help.name), " [", Italic("OPTION"), "...]",
      help.commands.empty() ? "" : absl::StrCat(" ", Italic("COMMAND"), " [", Italic("ARGUMENT"), "...]"),
      "\n", Heading("DESCRIPTION"));
  page += absl::StrJoin(text.description, ".PP\n", [](std::string* out, const std::string& paragraph) {
    absl::StrAppend(out, Escape(paragraph), "\n");
  });
  page += Heading("OPTIONS");
  for (const auto& [group, options] : GroupsOf(help)) {
    absl::StrAppend(&page, group.empty() ? "" : absl::StrCat(".PP\n", Escape(group), ":\n"),
                    OptionsText(options));
  }
  if (!help.commands.empty()) {
    absl::StrAppend(&page, Heading("COMMANDS"), CommandPages(help.name).Text(help, ""));
  }
  for (const auto& [heading, definitions] : text.parts) {
    absl::StrAppend(&page, Heading(heading), DefinitionsText(definitions));
  }
  absl::StrAppend(&page, Heading("EXIT STATUS"), ExitStatusText(), Heading("EXAMPLES"),
                  ExamplesText(text.examples), Heading("SEE ALSO"));
  page += absl::StrJoin(text.see_also, ",\n", [](std::string* out, const std::string& other) {
    const size_t section = other.find('(');
    absl::StrAppend(out, Bold(other.substr(0, section)), other.substr(section));
  });
  return page + "\n";
}

}  // namespace nightshift
