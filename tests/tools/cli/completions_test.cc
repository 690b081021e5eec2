#include <gmock/gmock.h>

#include <fstream>

#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class CompletionsTest : public ToolTest {
 protected:
  /// Lays the script for `shell` down and gives its path.
  std::string script(const std::string& shell) const {
    const Outcome outcome = steptape({"completions", shell});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string path = folder_ / ("steptape." + shell);
    std::ofstream(path) << outcome.out;
    return path;
  }
  std::string said_by(const std::string& shell, const std::vector<std::string>& arguments) const {
    const Outcome outcome = run_program(shell, arguments, folder_);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, IsEmpty());
    return outcome.out;
  }
  /// What bash offers in the place of the last of `words`.
  std::string bash_offers(const std::string& words) const {
    return said_by("/bin/bash", {"-c", "source " + script("bash") + "; COMP_WORDS=(" + words +
                                           "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _steptape; "
                                           "echo \"${COMPREPLY[*]}\""});
  }
  std::string fish_offers(const std::string& line) const {
    return said_by("/usr/bin/fish", {"--no-config", "-c",
                                     "cd " + folder_.string() + "; source " + script("fish") +
                                         "; complete -C '" + line + "'"});
  }
};

#define SKIP_WITHOUT(program) \
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "there is no " << (program)

TEST_F(CompletionsTest, BashKnowsWhatToCallForTheCommand) {
  EXPECT_EQ(said_by("/bin/bash", {"-c", "source " + script("bash") + "; complete -p steptape"}),
            "complete -o default -F _steptape steptape\n");
}

TEST_F(CompletionsTest, BashOffersCommands) {
  EXPECT_EQ(bash_offers("steptape ext"), "extract\n");
  EXPECT_EQ(bash_offers("steptape dump"), "dump\n");
  EXPECT_EQ(bash_offers("steptape --v"), "--version\n");
}

TEST_F(CompletionsTest, BashOffersTheOptionsOfACommand) {
  EXPECT_EQ(bash_offers("steptape export --p"), "--perfetto\n");
  EXPECT_EQ(bash_offers("steptape export run.tape --re"), "--recording\n");
  EXPECT_EQ(bash_offers("steptape info --p"), "--partial\n");
}

TEST_F(CompletionsTest, BashOffersTheValuesOfAnOption) {
  EXPECT_EQ(bash_offers("steptape diff --color a"), "auto always\n");
  EXPECT_EQ(bash_offers("steptape completions z"), "zsh\n");
}

TEST_F(CompletionsTest, BashLeavesNamesOfFilesToItself) {
  EXPECT_EQ(bash_offers("steptape info run"), "\n");
  EXPECT_EQ(bash_offers("steptape export -o out"), "\n");
}

TEST_F(CompletionsTest, ZshTakesTheScriptSourcedAndFromItsPath) {
  SKIP_WITHOUT("/usr/bin/zsh");
  const std::string begin = "autoload -U compinit; compinit -D; ";
  const std::string end = "; print $_comps[steptape]; ";
  EXPECT_EQ(said_by("/usr/bin/zsh", {"-f", "-c", begin + "source " + script("zsh") + end}),
            "_steptape\n");
  std::filesystem::create_directory(folder_ / "functions");
  std::filesystem::rename(script("zsh"), folder_ / "functions/_steptape");
  EXPECT_EQ(said_by("/usr/bin/zsh",
                    {"-f", "-c",
                     "fpath=(" + (folder_ / "functions").string() + " $fpath); " + begin + end}),
            "_steptape\n");
}

TEST_F(CompletionsTest, ZshDescribesCommandsAndOptions) {
  const std::string text = steptape({"completions", "zsh"}).out;
  EXPECT_THAT(text, HasSubstr("'check:Say whether a trace is whole, or what is wrong'\n"));
  EXPECT_THAT(text, HasSubstr("'--color[auto, always or never]:value:(auto always never)'"));
  EXPECT_THAT(text, HasSubstr("':SHELL:(bash zsh fish)' ;;\n"));
  EXPECT_THAT(text, HasSubstr("'--output[A file; without it, the standard output]:value:_files'"));
}

TEST_F(CompletionsTest, FishOffersCommandsOptionsAndValues) {
  SKIP_WITHOUT("/usr/bin/fish");
  EXPECT_EQ(fish_offers("steptape ext"),
            "extract\tWrite a Python program that runs one recorded op alone\n");
  EXPECT_EQ(fish_offers("steptape export --perf"), "--perfetto\tA timeline for ui.perfetto.dev\n");
  EXPECT_THAT(fish_offers("steptape diff --color al"), HasSubstr("always\t"));
  EXPECT_THAT(fish_offers("steptape completions z"), HasSubstr("zsh\t"));
  EXPECT_THAT(fish_offers("steptape info run"), HasSubstr("run.tape"));
}

TEST_F(CompletionsTest, EveryShellKnowsEveryCommand) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = steptape({"completions", shell}).out;
    for (const char* word : {"info", "dump", "report", "perfetto", "ledger", "replay"}) {
      EXPECT_THAT(text, HasSubstr(word)) << shell;
    }
  }
}

TEST_F(CompletionsTest, AnotherShellIsTrouble) {
  const Outcome outcome = steptape({"completions", "csh"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("csh not in {bash,zsh,fish}"));
}

TEST_F(CompletionsTest, TheManualHasEveryCommandWithItsOptionsAndExamples) {
  const std::string page = steptape({"manual"}).out;
  EXPECT_THAT(page, testing::StartsWith(".TH STEPTAPE 1 "));
  EXPECT_THAT(page, HasSubstr(".SS export\n"));
  EXPECT_THAT(page, HasSubstr(".B \\-\\-perfetto\n"));
  EXPECT_THAT(page, HasSubstr(".B \\-\\-color VALUE\n"));
  EXPECT_THAT(page, HasSubstr("steptape report run.tape \\-o report.html"));
}

TEST_F(CompletionsTest, NoOptionOfACommandIsToldTwice) {
  const std::string text = steptape({"completions", "bash"}).out;
  EXPECT_THAT(text, HasSubstr("    export) options='-h --help --step --recording -o --output "
                              "--csv --dot --json --perfetto' ;;\n"));
}

TEST_F(CompletionsTest, TheManualIsReadWithoutAWarning) {
  SKIP_WITHOUT("/usr/bin/groff");
  std::ofstream(folder_ / "steptape.1") << steptape({"manual"}).out;
  const std::string page =
      said_by("/usr/bin/groff", {"-man", "-ww", "-Tutf8", "-P-cbou", folder_ / "steptape.1"});
  EXPECT_THAT(page, HasSubstr("steptape diff [A] [B] [OPTIONS]"));
  EXPECT_THAT(page, HasSubstr("Exit status: 0 good, 1 differs or damaged, 2 trouble."));
}

}  // namespace
}  // namespace steptape::tools
