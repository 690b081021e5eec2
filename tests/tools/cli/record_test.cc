#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;

class RecordTest : public ToolTest {
 protected:
  /// Of `record` with these options and a program that a shell runs.
  Outcome record(std::vector<std::string> options, const std::string& program) const {
    options.insert(options.begin(), "record");
    options.insert(options.end(), {"--", "/bin/sh", "-c", program});
    return steptape(options);
  }
};

TEST_F(RecordTest, TheProgramIsAsked) {
  const Outcome outcome =
      record({"--first", "3", "--at", "5,7", "--at", "9", "--every", "100", "--on-nonfinite",
              "--on-signal", "10", "--state", "--digests", "--timings", "-o", "my run.tape"},
             "echo \"$STEPTAPE_RECORD\"; echo aside >&2; exit 3");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out,
            "first=3,every=100,at=5,at=7,at=9,signal=10,nonfinite,state,digests,timings"
            ":my run.tape\n");
  EXPECT_EQ(outcome.err, "aside\n");
}

TEST_F(RecordTest, WordsOfTheProgramAreItsOwn) {
  const Outcome outcome =
      steptape({"record", "--digests", "--", "echo", "--at", "x", "--", "-n", "--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "--at x -- -n --help\n");
  EXPECT_EQ(steptape({"record", "--digests", "echo", "a"}).out, "a\n");
  const Outcome unclear = steptape({"record", "--digests", "echo", "--at", "3"});
  EXPECT_EQ(unclear.exit_code, 2);
  EXPECT_THAT(unclear.err, HasSubstr("put -- before the program"));
}

TEST_F(RecordTest, TwiceIsAnotherRunOfTheSame) {
  const Outcome outcome = record({"--twice", "--at", "4"}, "echo $STEPTAPE_RECORD");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "at=4,digests\nat=4,digests,again\n");
}

TEST_F(RecordTest, AFailureEndsIt) {
  const Outcome outcome = record({"--twice"}, "echo once; exit 7");
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.out, "once\n");
  const Outcome killed = record({"--twice"}, "kill -9 $$");
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL);
}

TEST_F(RecordTest, WhoEndsItEndsTheProgramAndStartsNoSecondOne) {
  // the program sends to the process that runs it, and ends in good order
  const Outcome interrupted = record({"--twice"}, "echo once; kill -INT $PPID; exit 0");
  EXPECT_EQ(interrupted.exit_code, 128 + SIGINT);
  EXPECT_EQ(interrupted.out, "once\n");
  const Outcome ended =
      record({"--twice"}, "trap 'echo ended; exit 0' TERM; kill -TERM $PPID; sleep 20 & wait");
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM);
  EXPECT_EQ(ended.out, "ended\n");
}

TEST_F(RecordTest, APlaceWhereNoTraceCanBeIsTrouble) {
  for (const std::string& place :
       {folder_.string(), folder_.string() + "/", (folder_ / "missing" / "a.tape").string()}) {
    const Outcome outcome = steptape({"record", "--digests", "-o", place, "--", "echo", "run"});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("--output " + place));
  }
}

TEST_F(RecordTest, WhatIsWrongIsTrouble) {
  const Outcome missing = steptape({"record", "--digests", "--", "/no/such/program"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/program: No such file or directory"));
  const Outcome missing_twice = steptape({"record", "--twice", "--", "/no/such/program"});
  EXPECT_EQ(missing_twice.exit_code, 2);
  EXPECT_THAT(missing_twice.err, HasSubstr("/no/such/program: No such file or directory"));
  const Outcome nothing = steptape({"record", "--", "true"});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("nothing is asked for"));
  const Outcome alone = steptape({"record", "-o", "a.tape", "--", "true"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_EQ(steptape({"record", "--digests"}).exit_code, 2);
  for (const char* option : {"--at", "--first", "--every", "--on-signal"}) {
    EXPECT_EQ(steptape({"record", option, "0", "--", "true"}).exit_code, 2) << option;
    EXPECT_EQ(steptape({"record", option, "-1", "--", "true"}).exit_code, 2) << option;
  }
  EXPECT_EQ(steptape({"record", "--on-signal", "65", "--", "true"}).exit_code, 2);
  EXPECT_EQ(steptape({"record", "--att", "3", "--", "true"}).exit_code, 2);
}

class TryTest : public ToolTest {
 protected:
  /// Of `try`, where Python is a program that writes down what it is given.
  Outcome tried(std::vector<std::string> words) const {
    const std::string python = (folder_ / "python3").string();
    std::error_code exists;
    std::filesystem::create_symlink("/bin/echo", python, exists);
    std::ranges::replace(words, std::string("python"), python);
    words.insert(words.begin(), "try");
    return steptape(words);
  }
};

TEST_F(TryTest, TheProgramsOwnPythonTriesIt) {
  const Outcome outcome = tried({"--json", "--keep-going", "--calls", "40", "--", "python", "-u",
                                 "-W", "ignore", "train.py", "--json", "-m", "3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "-u -W ignore -m steptape try --json --keep-going --calls 40 train.py --json -m 3\n");
  EXPECT_EQ(tried({"--", "python", "train.py"}).out, "-m steptape try train.py\n");
  EXPECT_EQ(tried({"--", "python", "-u", "-m", "train", "-m"}).out,
            "-u -m steptape try -m train -m\n");
}

TEST_F(TryTest, WhatIsNoScriptIsNotTried) {
  const auto says = [&](const std::vector<std::string>& words, const char* what) {
    const Outcome outcome = tried(words);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(what));
  };
  says({"--", "./train", "a"}, "./train: not a Python");
  says({"--", "python", "-c", "train()"}, "put the program into a file");
  says({"--", "python", "-u"}, "no script is named");
  says({}, "COMMAND");
}

}  // namespace
}  // namespace steptape::tools
