// `nightshift run --too-long split --merge TEMPLATE`: one result a document, however many parts it
// was split in.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

// Runs the documents as a job. Of each that was split the outputs of its parts, in order and with a
// blank line between them, go through the merge template in a second job; where they do not fit they
// are split in turn, and a further job merges those outputs, until one is left. A document that was
// not split passes through: its result is that of the first job. The output file has one line a
// document, in their order, and appears whole. The same command again finds the same jobs.
ExitCode MergedRunCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
