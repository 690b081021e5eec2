#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <ostream>
#include <stdexcept>
#include <string>

#include "outcome.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Two programs: one trains and leaves a trace, the other goes on from it without the model's code.
struct Pair {
  const char* name;
  const char* train;
  const char* go_on;
};
std::ostream& operator<<(std::ostream& out, const Pair& pair) { return out << pair.name; }

struct Ended {
  int status = -1;
  std::string output;  ///< stdout and stderr
};

class RealStepsTest : public ::testing::TestWithParam<Pair> {
 protected:
  RealStepsTest()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("real_steps_" + std::string(GetParam().name) + "_" + std::to_string(getpid()))),
        trace_(folder_ / "step.tape") {
    std::filesystem::create_directories(folder_);
  }
  ~RealStepsTest() override { std::filesystem::remove_all(folder_); }

  static Ended run(const char* program, const std::string& argument) {
    const auto command = "'" + std::string(program) + "' '" + argument + "' 2>&1";
    std::FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
    Ended ended;
    std::array<char, 4096> piece{};
    while (const auto size = std::fread(piece.data(), 1, piece.size(), pipe)) {
      ended.output.append(piece.data(), size);
    }
    const int status = pclose(pipe);
    if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
    return ended;
  }
  Ended train() const { return run(GetParam().train, trace_.string()); }
  Ended go_on() const { return run(GetParam().go_on, trace_.string()); }

  /// Changes the lowest bit of a loss that the second program expects.
  void flip_expected_loss(std::size_t index) const {
    auto expected = digits::read_outcome(digits::beside(trace_));
    expected.losses.at(index) ^= 1U;
    digits::write(expected, digits::beside(trace_));
  }

  std::filesystem::path folder_;
  std::filesystem::path trace_;
};

TEST_P(RealStepsTest, ReplaysAsEagerAndGoesOnInASecondProcess) {
  const auto first = train();
  ASSERT_EQ(first.status, 0) << first.output;
  EXPECT_THAT(first.output, HasSubstr("\nbit-identical to eager: yes (1000 losses"));
  const auto second = go_on();
  EXPECT_EQ(second.status, 0) << second.output;
  EXPECT_THAT(second.output, HasSubstr("\nbit-identical to the first process: yes (500 losses"));

  flip_expected_loss(400);
  const auto third = go_on();
  EXPECT_EQ(third.status, 1) << third.output;
  EXPECT_THAT(third.output,
              AllOf(HasSubstr("\nbit-identical to the first process: no"), HasSubstr("loss 400:")));
}

TEST_P(RealStepsTest, WithoutATraceThereIsNothingToGoOnFrom) {
  const auto ended = go_on();
  EXPECT_EQ(ended.status, 2) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("cannot be opened"));
}

TEST_P(RealStepsTest, AnOptionIsAnsweredWithTheUsage) {
  for (const char* program : {GetParam().train, GetParam().go_on}) {
    const auto ended = run(program, "--help");
    EXPECT_EQ(ended.status, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("usage: "));
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, RealStepsTest,
                         ::testing::Values(Pair{"digits_cnn", DIGITS_CNN_TRAIN,
                                                DIGITS_CNN_CONTINUE},
                                           Pair{"char_gru", CHAR_GRU_TRAIN, CHAR_GRU_CONTINUE}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace examples
