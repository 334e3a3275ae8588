#include "kernels/base/man_page.h"

#include <string>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

OptionHelp Number() {
  OptionHelp option;
  option.names = {"-n", "--number"};
  option.value = "N";
  option.text = "How many";
  option.default_text = "3";
  option.group = "Both";
  return option;
}

CommandHelp Command(const std::string& name, const std::string& text) {
  CommandHelp command;
  command.name = name;
  command.text = text;
  command.options = {Number()};
  return command;
}

CommandHelp ProgramWithTwoCommands() {
  OptionHelp file;
  file.value = "FILE";
  file.text = ".hidden";
  file.required = true;
  CommandHelp first = Command("first", "Do it");
  first.arguments = {file};
  CommandHelp both;
  both.name = "both";
  both.commands = {first, Command("second", "Undo it")};
  CommandHelp program;
  program.name = "program";
  program.commands = {both};
  return program;
}

ManPageText Text() {
  ManPageText text;
  text.summary = "a test";
  text.description = {"It's \\ a-test."};
  text.parts = {{"FILES", {{"a.b", "a file"}}}};
  text.examples = {{"program first x", "Try it"}};
  text.see_also = {"other(8)"};
  return text;
}

TEST(ManPageTest, NamesEachCommandWithItsArguments) {
  const std::string page = ManPage(ProgramWithTwoCommands(), Text());
  EXPECT_NE(page.find(".SS \\fBboth first\\fR \\fIFILE\\fR\nDo it.\n"), std::string::npos) << page;
  EXPECT_NE(page.find(".TP\n\\fB\\-n\\fR, \\fB\\-\\-number\\fR \\fIN\\fR\nHow many [3]\n"),
            std::string::npos)
      << page;
}

TEST(ManPageTest, WritesOptionsOfSeveralCommandsOnce) {
  const std::string page = ManPage(ProgramWithTwoCommands(), Text());
  EXPECT_EQ(page.find("How many"), page.rfind("How many"));
  EXPECT_NE(page.find("Both: the options of \\fBprogram both first\\fR."), std::string::npos)
      << page;
}

TEST(ManPageTest, NoTextIsARequestOfRoff) {
  const std::string page = ManPage(ProgramWithTwoCommands(), Text());
  EXPECT_NE(page.find("It\\(aqs \\e a\\-test.\n"), std::string::npos) << page;
  EXPECT_NE(page.find("\n\\&.hidden\n"), std::string::npos) << page;
}

TEST(ManPageTest, HasEachExitCode) {
  const std::string page = ManPage(ProgramWithTwoCommands(), Text());
  EXPECT_NE(page.find(".TP\n\\fB130\\fR\ninterrupted\n"), std::string::npos) << page;
  EXPECT_NE(page.find(".SH SEE ALSO\n\\fBother\\fR(8)\n"), std::string::npos) << page;
}

}  // namespace
}  // namespace nightshift
