#include <gmock/gmock.h>

#include <fstream>

#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;

/// `steptape` in a folder of its own, with what stands in for the second executable.
class TorchToolTest : public ToolTest {
 protected:
  TorchToolTest() {
    std::filesystem::create_directories(folder_ / "bin");
    std::filesystem::copy_file(STEPTAPE_TOOL, folder_ / "bin" / "steptape");
  }
  void install(const std::filesystem::path& path) const {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << "#!/bin/sh\necho \"$0\" \"$@\"\nexit 7\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  Outcome replay(const Environment& environment = {}) const {
    return run_program(folder_ / "bin" / "steptape", {"replay", "a b.tape", "--help"}, folder_,
                       environment);
  }
};

TEST_F(TorchToolTest, RunsTheOneBesideItWithAllArguments) {
  install(folder_ / "bin" / "steptape-torch");
  const Outcome outcome = replay();
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.out,
            (folder_ / "bin" / "steptape-torch").string() + " replay a b.tape --help\n");
}

TEST_F(TorchToolTest, RunsTheOneOfTheInstallation) {
  install(folder_ / "libexec" / "steptape" / "steptape-torch");
  EXPECT_EQ(replay().exit_code, 7);
}

TEST_F(TorchToolTest, RunsTheOneThatTheEnvironmentNames) {
  install(folder_ / "bin" / "steptape-torch");
  install(folder_ / "elsewhere");
  const Outcome outcome = replay({{"STEPTAPE_TORCH_TOOL", folder_ / "elsewhere"}});
  EXPECT_THAT(outcome.out, HasSubstr("elsewhere replay"));
}

TEST_F(TorchToolTest, AMissingOneIsTroubleThatNamesThePlaces) {
  const Outcome outcome = replay();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, testing::IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("bin/steptape-torch or "));
  EXPECT_THAT(outcome.err, HasSubstr("libexec/steptape/steptape-torch"));
  EXPECT_THAT(outcome.err, HasSubstr("STEPTAPE_TORCH_TOOL"));
}

TEST_F(TorchToolTest, OneThatCannotRunIsTrouble) {
  std::ofstream(folder_ / "bin" / "steptape-torch") << "no program";
  EXPECT_EQ(replay().exit_code, 2);
  EXPECT_THAT(replay().err, HasSubstr("cannot run"));
}

}  // namespace
}  // namespace steptape::tools
