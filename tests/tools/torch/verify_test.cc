#include <gmock/gmock.h>
#include <steptape/steptape.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include <nlohmann/json.hpp>

#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/tools/process.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

/// A training with dropout, some of whose calls are recorded with all that they found.
class VerifyToolTest : public testing::Test {
 protected:
  VerifyToolTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("steptape_verify_" + std::to_string(getpid()) + "_" +
                 testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~VerifyToolTest() override { std::filesystem::remove_all(folder_); }

  std::string tape(const std::string& name = "run.tape") const { return folder_ / name; }

  void train(const Record& record, bool digests = true) const {
    torch::manual_seed(3);
    torch::nn::Linear first(16, 32);
    torch::nn::Dropout dropout(0.25);
    torch::nn::Linear second(32, 4);
    std::vector<at::Tensor> parameters = first->parameters();
    for (const at::Tensor& parameter : second->parameters()) parameters.push_back(parameter);
    torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(1e-2));
    Options options;
    options.trace = tape();
    options.verify.rate = 0;
    options.digests = digests;
    options.record = record;
    Session session(options);
    session.track("first", first).track("dropout", dropout).track("second", second);
    session.track("optimizer", optimizer);
    auto step = session.wrap("train", [&](at::Tensor x, at::Tensor y) {
      optimizer.zero_grad();
      at::Tensor loss = torch::nn::functional::cross_entropy(
          second->forward(dropout->forward(torch::relu(first->forward(x)))), y);
      loss.backward();
      optimizer.step();
      return loss;
    });
    for (int call = 0; call < 12; ++call) {
      step(at::randn({8, 16}), at::randint(0, 4, {8}, at::kLong));
    }
    EXPECT_EQ(step.stats().trace_problem, "");
  }

  Outcome verify(std::vector<std::string> arguments = {}) const {
    arguments.insert(arguments.begin(), {"verify", tape()});
    return run_program(STEPTAPE_TOOL, arguments, folder_);
  }
  nlohmann::json verify_json(std::vector<std::string> arguments = {}) const {
    arguments.emplace_back("--json");
    return nlohmann::json::parse(verify(std::move(arguments)).out);
  }

  std::filesystem::path folder_;
};

TEST_F(VerifyToolTest, CallsThatHoldWhatTheyFoundLeaveTheSameAgain) {
  train({.at = {6, 9}, .state = true});
  const Outcome outcome = verify();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, StartsWith("equal: 2 calls done again\n"));
  const auto json = verify_json({"--call", "9"});
  ASSERT_EQ(json["calls"].size(), 1u);
  EXPECT_EQ(json["calls"][0]["equal"], true);
  EXPECT_GT(json["calls"][0]["compared"], 20);
  EXPECT_TRUE(json["calls"][0]["first"].is_null());
}

TEST_F(VerifyToolTest, TheFirstOpThatLeavesSomethingElseIsNamed) {
  train({.at = {6}, .state = true});
  trace::Trace trace = storage::read(tape());
  std::string name;
  for (trace::Recording& recording : trace.steps[0].recordings) {
    for (std::size_t i = 0; i < recording.ops.size() && recording.call == 6; ++i) {
      if (!recording.operator_of(recording.ops[i]).name.ends_with("relu")) continue;
      recording.op_digests[i].low ^= 1;
      name = "op " + std::to_string(i) + " aten::relu";
      break;
    }
  }
  ASSERT_NE(name, "");
  storage::write(trace, tape());
  const Outcome outcome = verify({"--call", "6"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, StartsWith("differ: 1 of 1 call done again\n"));
  EXPECT_THAT(outcome.out, HasSubstr("train call 6: differs first at " + name));
  EXPECT_THAT(verify_json({"--call", "6"})["calls"][0]["first"]["place"], HasSubstr("relu"));
}

TEST_F(VerifyToolTest, AByteOfWhatACallFoundIsSeenInAnOpThatReadsIt) {
  train({.at = {6}, .state = true});
  trace::Trace trace = storage::read(tape());
  for (trace::Recording& recording : trace.steps[0].recordings) {
    for (trace::Buffer& buffer : recording.buffers) {
      if (recording.call != 6 || buffer.path != "second.weight") continue;
      std::vector<std::byte> bytes = *buffer.content;
      bytes[2] ^= std::byte{1};
      buffer.content = trace::make_blob(bytes.data(), bytes.size());
      buffer.digest = trace::digest_of(bytes);
    }
  }
  storage::write(trace, tape());
  const Outcome outcome = verify({"--call", "6"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(" in second"));
}

TEST_F(VerifyToolTest, WhatIsMissingIsTold) {
  train({.at = {6}});
  const Outcome outcome = verify({"--call", "6"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, StartsWith("no call could be done again\n"));
  EXPECT_THAT(outcome.out, HasSubstr("it has no bytes of "));
  train({.first = 1, .state = true});
  EXPECT_THAT(verify({"--call", "1"}).out,
              HasSubstr("it created optimizer state, and no plan is made of such a call"));
  EXPECT_THAT(verify({"--call", "99"}).err, HasSubstr("holds no such recording"));
  EXPECT_THAT(verify({"--step", "eval"}).err, HasSubstr("holds no such recording"));
}

TEST_F(VerifyToolTest, WithoutTheStateOfItsGeneratorACallThatDrawsIsNotDoneAgain) {
  train({.at = {6}, .state = true});
  trace::Trace trace = storage::read(tape());
  for (trace::Recording& recording : trace.steps[0].recordings) {
    for (trace::GeneratorState& state : recording.generators) state.content = nullptr;
  }
  storage::write(trace, tape());
  const Outcome outcome = verify({"--call", "6"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("it has no state of generator `default`"));
}

TEST_F(VerifyToolTest, StateImpliesDigestsOfTheseRecordings) {
  train({.at = {6}, .state = true}, /*digests=*/false);
  EXPECT_EQ(verify({"--call", "6"}).exit_code, 0);
}

}  // namespace
}  // namespace steptape::tools
