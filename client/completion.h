// Completion: what may stand next on a command line. Shells ask `nightshift complete WORDS...` at
// each Tab, so that they know the options of the executable that they complete, and the daemon's
// jobs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/command_help.h"

namespace nightshift {

// Candidates for one word.
struct Completion {
  std::string word;      // so much of it is there
  std::string prefix;    // "--model=" of a value behind its option: candidates begin with it
  std::vector<std::pair<std::string, std::string>> words;  // with what they mean
  bool files = false;    // also names of files
  bool jobs = false;     // also names of the daemon's jobs
  bool models = false;   // also names of its models
};

// `words` is the command line behind the program's name, up to and with the one that is completed,
// which may be empty. Pure.
Completion CompletionOf(const CommandHelp& help, const std::vector<std::string>& words);

// The options of the program itself among the words, with their values, as they say which daemon is
// to be asked. Pure.
std::vector<std::string> GlobalOptionsIn(const CommandHelp& help,
                                         const std::vector<std::string>& words);

// The script that makes a shell ask: bash, zsh or fish. Empty for another shell.
std::string CompletionScript(const std::string& shell);

// What shells read: "files" or "words", then a candidate a line, a tab and its meaning behind it.
// Only those that begin with the word.
std::string CompletionText(const Completion& completion);

}  // namespace nightshift
