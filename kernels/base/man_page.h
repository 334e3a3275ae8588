// Manual pages in the man(7) macros, from what a command line says of itself and a few paragraphs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/command_help.h"

namespace nightshift {

// A term and what it means; in an example a command and what it does.
using Definitions = std::vector<std::pair<std::string, std::string>>;

// What a page says beside commands, options and exit codes, in plain text.
struct ManPageText {
  int section = 1;
  std::string summary;  // of the line with the name: no full stop
  std::vector<std::string> description;  // paragraphs
  // Further headings with terms, in their order, before the exit status: {"FILES", ...}.
  std::vector<std::pair<std::string, Definitions>> parts;
  Definitions examples;
  std::vector<std::string> see_also;  // "nightshiftd(8)"
};

// The page of a program whose options are `help`, in roff. A group of options that several commands
// have in common is written once. Pure.
std::string ManPage(const CommandHelp& help, const ManPageText& text);

}  // namespace nightshift
