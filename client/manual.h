// What the manual page of `nightshift` and the end of its --help say beside the options.
#pragma once

#include <string>

#include "kernels/base/command_help.h"

namespace nightshift {

// nightshift(1), in roff.
std::string ManualPage(const CommandHelp& help);

// The environment variables in two lines, for --help.
std::string EnvironmentText();

}  // namespace nightshift
