// nightshiftd(8): what the manual page says beside the options.
#pragma once

#include <string>

#include "kernels/base/command_help.h"

namespace nightshift {

// The page, in roff.
std::string DaemonManualPage(const CommandHelp& help);

}  // namespace nightshift
