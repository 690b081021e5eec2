#include <gmock/gmock.h>

#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

using CommandLineTest = ToolTest;

TEST_F(CommandLineTest, HelpListsEveryCommandOnTheStandardOutput) {
  const Outcome outcome = steptape({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* command :
       {"info", "dump", "check", "doctor", "diff", "bisect", "report", "ledger", "export",
        "extract", "completions", "manual", "bench", "replay", "verify"}) {
    EXPECT_THAT(outcome.out, HasSubstr(command));
  }
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(CommandLineTest, HelpOfACommandHasExamples) {
  for (const char* command :
       {"info", "dump", "check", "doctor", "diff", "bisect", "ledger", "export"}) {
    const Outcome outcome = steptape({command, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("Examples:\n  steptape " + std::string(command)));
    EXPECT_THAT(outcome.out, HasSubstr("--json"));
  }
}

TEST_F(CommandLineTest, VersionIsPrinted) {
  EXPECT_THAT(steptape({"--version"}).out, testing::StartsWith("steptape "));
}

TEST_F(CommandLineTest, WrongArgumentsAreTroubleOnTheStandardError) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"inform"}, {"info"}, {"info", "a", "--yaml"}}) {
    const Outcome outcome = steptape(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, testing::Not(IsEmpty()));
  }
}

TEST_F(CommandLineTest, AMissingFileIsTrouble) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"info"},
                                                  {"dump"},
                                                  {"check"},
                                                  {"export", "--csv"},
                                                  {"extract", "--op", "0"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back(folder_ / "missing.tape");
    const Outcome outcome = steptape(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << command[0];
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, testing::StartsWith("steptape: io: cannot read "));
    EXPECT_THAT(outcome.err, HasSubstr("No such file or directory"));
  }
}

TEST_F(CommandLineTest, AFullStandardOutputIsTrouble) {
  const std::string command =
      std::string(STEPTAPE_TOOL) + " info " + path_.string() + " > /dev/full";
  const Outcome outcome = run_program("/bin/sh", {"-c", command}, folder_);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write the standard output"));
}

TEST_F(CommandLineTest, NothingIsColouredWithoutATerminal) {
  for (const char* command : {"info", "dump", "check", "doctor"}) {
    EXPECT_THAT(steptape({command, path_}).out, testing::Not(HasSubstr("\x1b"))) << command;
  }
}

TEST_F(CommandLineTest, NamesInATraceCannotMoveTheCursor) {
  trace::Trace trace;
  trace.steps.push_back({"evil\x1b[2J", "\x1b]0;owned\a", {}});
  rewrite(trace);
  for (const char* command : {"info", "dump"}) {
    EXPECT_THAT(steptape({command, path_}).out, testing::Not(HasSubstr("\x1b"))) << command;
  }
}

TEST_F(CommandLineTest, NoLibTorchIsLoaded) {
  const Outcome outcome = run_program("/usr/bin/ldd", {STEPTAPE_TOOL}, folder_);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("torch")));
  EXPECT_THAT(outcome.out, testing::Not(HasSubstr("libc10")));
}

}  // namespace
}  // namespace steptape::tools
