#include "client/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/command_line.h"

namespace nightshift {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

Completion At(const std::vector<std::string>& words) {
  return CompletionOf(CommandLineHelp(), words);
}

std::vector<std::string> WordsAt(const std::vector<std::string>& words) {
  std::vector<std::string> candidates;
  for (const auto& [word, meaning] : At(words).words) {
    candidates.push_back(word);
  }
  return candidates;
}

TEST(CompletionTest, CommandsComeFirstAndHiddenOnesNever) {
  EXPECT_THAT(WordsAt({""}), Contains("run"));
  EXPECT_THAT(WordsAt({""}), Contains("server"));
  EXPECT_THAT(WordsAt({""}), Not(Contains("complete")));
  EXPECT_THAT(WordsAt({"--quiet", "policy", ""}), ElementsAre("show", "explain"));
}

TEST(CompletionTest, OptionsAreTheCommandsAndTheProgramsOwn) {
  const std::vector<std::string> options = WordsAt({"results", "JOB", "--"});
  EXPECT_THAT(options, Contains("--partial"));
  EXPECT_THAT(options, Contains("--address"));
  EXPECT_THAT(options, Not(Contains("--max-tokens")));
  EXPECT_THAT(WordsAt({"run", "--", "--"}), IsEmpty());  // an argument, whatever it looks like
}

TEST(CompletionTest, ValuesAreWordsFilesJobsOrModels) {
  EXPECT_THAT(WordsAt({"run", "x", "--priority", ""}), ElementsAre("low", "normal", "high"));
  EXPECT_THAT(WordsAt({"run", "x", "--priority", "=", ""}), ElementsAre("low", "normal", "high"));
  EXPECT_THAT(WordsAt({"list", "--state", ""}), Contains("running"));
  const Completion model = At({"run", "x", "--model", ""});
  EXPECT_TRUE(model.models);
  EXPECT_TRUE(model.files);
  EXPECT_TRUE(At({"run", ""}).files);
  EXPECT_TRUE(At({"run", "x", "-o", ""}).files);
  EXPECT_TRUE(At({"submit", "x", "--after", ""}).jobs);
  EXPECT_TRUE(At({"import", "--output", ""}).files);  // another program's
  EXPECT_TRUE(At({"run", "x", ""}).files);            // there may be several inputs
  EXPECT_FALSE(At({"status", "x", ""}).jobs);         // there is no second job
}

TEST(CompletionTest, AValueBehindItsOptionKeepsTheOption) {
  const Completion completion = At({"run", "x", "--priority=lo"});
  EXPECT_EQ(completion.prefix, "--priority=");
  EXPECT_EQ(CompletionText(completion), "words\n--priority=low\t\n");
}

TEST(CompletionTest, OnlyTheProgramsOptionsSayWhichDaemonIsAsked) {
  const CommandHelp help = CommandLineHelp();
  EXPECT_THAT(GlobalOptionsIn(help, {"--address", "unix:/x", "status", "--label", "y", ""}),
              ElementsAre("--address=unix:/x"));
  EXPECT_THAT(GlobalOptionsIn(help, {"--address", "unix", ":", "/x", "status", ""}),
              ElementsAre("--address=unix:/x"));
  EXPECT_THAT(GlobalOptionsIn(help, {"--address=unix:/x", "status", ""}),
              ElementsAre("--address=unix:/x"));
  EXPECT_THAT(GlobalOptionsIn(help, {"--address", ""}), IsEmpty());
}

TEST(CompletionTest, WordsOfTheDaemonDoNotSteerTheTerminal) {
  Completion completion;
  completion.words = {{"a\x1b[2J", "b\nc"}};
  EXPECT_EQ(CompletionText(completion), "words\na [2J\tb c\n");
}

TEST(CompletionTest, EachShellHasItsScript) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ParsedCommandLine parsed = ParseCommandLine({"completion", shell});
    EXPECT_EQ(parsed.exit_code, 0);
    EXPECT_NE(parsed.output.find(" complete -- "), std::string::npos) << shell;
  }
  EXPECT_NE(ParseCommandLine({"completion", "tcsh"}).error.find("bash, zsh, fish"),
            std::string::npos);
}

TEST(CompletionTest, WordsThatAreNoCommandLineAreCompletedAllTheSame) {
  const ParsedCommandLine parsed =
      ParseCommandLine({"complete", "--", "--address", "unix:/x", "run", "--nonsense", ""});
  ASSERT_TRUE(parsed.command_line.has_value()) << parsed.error;
  EXPECT_EQ(parsed.command_line->command, Command::kComplete);
  EXPECT_EQ(parsed.command_line->address, "unix:/x");
  EXPECT_THAT(parsed.command_line->words,
              ElementsAre("--address", "unix:/x", "run", "--nonsense", ""));
}

}  // namespace
}  // namespace nightshift
