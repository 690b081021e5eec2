#include "replayer/runtime/cuda/plan/static_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "steptape/error.h"

namespace steptape::tests {
namespace {

using replayer::cuda::copies_out;
using replayer::cuda::Decision;
using replayer::cuda::Gradients;
using replayer::cuda::Hold;
using replayer::cuda::StaticMemory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using trace::Role;

constexpr trace::Device kGpu = {trace::DeviceKind::kCuda, 0};
constexpr trace::Device kCpu = {};

/// Bound buffers by position, each named by an op, where each lies now, and calls of the step.
class StaticMemoryTest : public ::testing::Test {
 protected:
  std::size_t add(const std::string& path, Role role, std::uint64_t bytes = 512,
                  trace::Device device = kGpu) {
    trace::Buffer buffer;
    buffer.path = path;
    buffer.role = role;
    buffer.bytes = bytes;
    buffer.device = device;
    recording_.buffers.push_back(buffer);
    trace::Tensor tensor;
    tensor.buffer = static_cast<trace::BufferId>(recording_.buffers.size() - 1);
    recording_.tensors.push_back(tensor);
    const auto id = static_cast<trace::TensorId>(recording_.tensors.size() - 1);
    recording_.ops.emplace_back().inputs = {trace::Value{trace::TensorRef{id}}};
    addresses_.push_back(nullptr);
    move(addresses_.size() - 1);
    return addresses_.size() - 1;
  }
  std::size_t add_input(const std::string& path = "inputs[0]") { return add(path, Role::kInput); }

  void move(std::size_t position) {
    lately_ += 64;
    addresses_[position] = reinterpret_cast<void*>(lately_);  // NOLINT(performance-no-int-to-ptr)
  }

  StaticMemory& memory() {
    if (memory_ == nullptr) {
      std::vector<trace::BufferId> bound;
      for (trace::BufferId id = 0; id < recording_.buffers.size(); ++id) bound.push_back(id);
      memory_ = std::make_unique<StaticMemory>(recording_, bound, written_);
    }
    return *memory_;
  }

  /// One call; a capture that is asked for is made.
  Decision call() {
    Decision decision = memory().decide(addresses_);
    if (decision.capture) memory().captured(addresses_);
    return decision;
  }
  /// The same, by what the call was.
  bool captures() { return call().capture; }
  void calls(int count) {
    for (int i = 0; i < count; ++i) call();
  }

  /// Lies still for three calls before the first capture.
  void look_for_long() {
    for (int i = 0; i < 2; ++i) memory().decide(addresses_);
  }

  trace::Recording recording_;
  std::vector<std::size_t> written_;
  std::vector<void*> addresses_;

 private:
  std::uintptr_t lately_ = 0x7f0000000000;
  std::unique_ptr<StaticMemory> memory_;
};

TEST_F(StaticMemoryTest, TheFirstCallCapturesWithoutAReason) {
  add("model.fc1.weight", Role::kParameter);
  const Decision decision = call();
  EXPECT_TRUE(decision.capture);
  EXPECT_EQ(decision.why, "");
  EXPECT_FALSE(captures());
}

TEST_F(StaticMemoryTest, ACaptureIsAskedForUntilThereIsOne) {
  const std::size_t weight = add("model.fc1.weight", Role::kParameter);
  EXPECT_TRUE(memory().decide(addresses_).capture);
  EXPECT_TRUE(memory().decide(addresses_).capture);
  EXPECT_TRUE(captures());
  EXPECT_FALSE(captures());
  void* const before = addresses_[weight];
  move(weight);
  EXPECT_TRUE(memory().decide(addresses_).capture);
  addresses_[weight] = before;
  const Decision decision = memory().decide(addresses_);
  EXPECT_TRUE(decision.capture);
  EXPECT_EQ(decision.why, "model.fc1.weight moved");
}

TEST_F(StaticMemoryTest, WhatTheUsersObjectsOwnIsHeldByAddress) {
  for (const Role role : {Role::kParameter, Role::kModuleBuffer, Role::kGradient,
                          Role::kOptimizerState, Role::kCarried, Role::kConstant}) {
    add("a tensor", role);
  }
  const Decision decision = call();
  for (std::size_t i = 0; i < addresses_.size(); ++i) {
    EXPECT_EQ(memory().hold(i), Hold::kByAddress) << i;
  }
  EXPECT_THAT(decision.copy_in, IsEmpty());
  EXPECT_THAT(memory().copies(), IsEmpty());
}

TEST_F(StaticMemoryTest, AMovedParameterIsCapturedAgainOnce) {
  add("model.fc1.bias", Role::kParameter);
  const std::size_t weight = add("model.fc1.weight", Role::kParameter);
  calls(3);
  move(weight);
  const Decision decision = call();
  EXPECT_TRUE(decision.capture);
  EXPECT_EQ(decision.why, "model.fc1.weight moved");
  EXPECT_FALSE(captures());
}

TEST_F(StaticMemoryTest, OfSeveralMovedTheFirstIsNamed) {
  add("model.fc1.bias", Role::kParameter);
  const std::size_t weight = add("model.fc1.weight", Role::kParameter);
  const std::size_t momentum =
      add("optimizer.state[model.fc1.weight].momentum_buffer", Role::kOptimizerState);
  const std::size_t gradient = add("model.fc1.weight.grad", Role::kGradient);
  call();
  move(weight);
  move(momentum);
  EXPECT_EQ(call().why, "model.fc1.weight and 1 more moved");
  move(weight);
  move(momentum);
  move(gradient);
  EXPECT_EQ(call().why, "model.fc1.weight and 2 more moved");
}

TEST_F(StaticMemoryTest, InputsAreCopiedIn) {
  add("model.fc1.weight", Role::kParameter);
  const std::size_t input = add_input();
  EXPECT_THAT(call().copy_in, ElementsAre(input));
  EXPECT_EQ(memory().hold(input), Hold::kCopiedIn);
  for (int i = 0; i < 5; ++i) {
    move(input);
    const Decision decision = call();
    EXPECT_FALSE(decision.capture);
    EXPECT_THAT(decision.copy_in, ElementsAre(input));
  }
  EXPECT_EQ(memory().static_bytes(), 512U);
}

TEST_F(StaticMemoryTest, AnInputThatLayStillForThreeCallsIsHeldByAddress) {
  const std::size_t input = add_input();
  look_for_long();
  EXPECT_THAT(call().copy_in, IsEmpty());
  EXPECT_EQ(memory().hold(input), Hold::kByAddress);
  EXPECT_EQ(memory().static_bytes(), 0U);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(captures());
}

TEST_F(StaticMemoryTest, TwoCallsAreNotEnough) {
  const std::size_t input = add_input();
  move(input);
  memory().decide(addresses_);
  EXPECT_THAT(call().copy_in, ElementsAre(input));
}

TEST_F(StaticMemoryTest, LyingStillBeforeTheLastMoveDoesNotCount) {
  const std::size_t input = add_input();
  look_for_long();
  move(input);
  EXPECT_THAT(call().copy_in, ElementsAre(input));
}

TEST_F(StaticMemoryTest, AnInputThatLiesStillIsTakenByAddressWithTheNextCapture) {
  const std::size_t weight = add("model.fc1.weight", Role::kParameter);
  const std::size_t input = add_input();
  calls(10);
  EXPECT_EQ(memory().hold(input), Hold::kCopiedIn);
  move(weight);
  const Decision decision = call();
  EXPECT_EQ(decision.why, "model.fc1.weight moved");
  EXPECT_THAT(decision.copy_in, IsEmpty());
  EXPECT_EQ(memory().hold(input), Hold::kByAddress);
}

TEST_F(StaticMemoryTest, AnInputThatMovesAfterAllIsCopiedInForGood) {
  const std::size_t weight = add("model.fc1.weight", Role::kParameter);
  const std::size_t input = add_input();
  look_for_long();
  calls(2);
  move(input);
  const Decision decision = call();
  EXPECT_TRUE(decision.capture);
  EXPECT_EQ(decision.why, "inputs[0] moved");
  EXPECT_THAT(decision.copy_in, ElementsAre(input));
  calls(10);
  move(weight);
  EXPECT_THAT(call().copy_in, ElementsAre(input)) << "though it lay still since";
  move(input);
  EXPECT_FALSE(captures());
}

TEST_F(StaticMemoryTest, AnInputThatLiesStillForLongIsWorthACapture) {
  const std::size_t input = add_input();
  calls(15);
  EXPECT_EQ(memory().hold(input), Hold::kCopiedIn);
  const Decision decision = call();
  EXPECT_TRUE(decision.capture);
  EXPECT_EQ(decision.why, "inputs[0] lies still");
  EXPECT_THAT(decision.copy_in, IsEmpty());
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(captures());
}

TEST_F(StaticMemoryTest, AnInputThatEverMovedIsWorthNone) {
  const std::size_t input = add_input();
  call();
  move(input);
  for (int i = 0; i < 40; ++i) EXPECT_FALSE(captures());
}

TEST_F(StaticMemoryTest, AnInputCostsTwoCapturesMoreAtMost) {
  const std::size_t input = add_input();
  int captures_made = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i % 30 == 29) move(input);
    captures_made += captures() ? 1 : 0;
  }
  EXPECT_EQ(captures_made, 1 + 2);
}

TEST_F(StaticMemoryTest, AGraphHoldsForTheAddressesItHas) {
  const std::size_t weight = add("model.fc1.weight", Role::kParameter);
  const std::size_t input = add_input();
  EXPECT_TRUE(captures());
  EXPECT_FALSE(captures());
  move(input);
  EXPECT_FALSE(captures()) << "it is copied in";
  move(weight);
  EXPECT_TRUE(captures());
}

TEST_F(StaticMemoryTest, OneInputsMovesDoNotChangeAnother) {
  const std::size_t images = add_input("inputs[0]"), mask = add_input("inputs[1]");
  look_for_long();
  call();
  move(images);
  EXPECT_THAT(call().copy_in, ElementsAre(images));
  EXPECT_EQ(memory().hold(mask), Hold::kByAddress);
}

TEST_F(StaticMemoryTest, AWrittenInputIsCopiedBack) {
  add("model.fc1.weight", Role::kParameter);
  const std::size_t plain = add_input("inputs[0]"), written = add_input("inputs[1]");
  written_ = {0, written};
  const Decision decision = call();
  EXPECT_THAT(decision.copy_in, ElementsAre(plain, written));
  EXPECT_THAT(decision.copy_back, ElementsAre(written));
}

TEST_F(StaticMemoryTest, AWrittenInputThatIsHeldByAddressIsNotCopied) {
  written_ = {add_input()};
  look_for_long();
  const Decision decision = call();
  EXPECT_THAT(decision.copy_in, IsEmpty());
  EXPECT_THAT(decision.copy_back, IsEmpty());
}

TEST_F(StaticMemoryTest, NothingIsHeldOfWhatLiesOnTheCpuOrIsEmpty) {
  const std::size_t input = add("inputs[0]", Role::kInput, 512, kCpu);
  const std::size_t step = add("optimizer.state[w].step", Role::kOptimizerState, 4, kCpu);
  const std::size_t empty = add("inputs[1]", Role::kInput, 0);
  const std::size_t none = add("model.none", Role::kParameter, 0);
  written_ = {input, step};
  for (const int i : {0, 1}) {
    const Decision decision = call();
    EXPECT_EQ(decision.capture, i == 0);
    EXPECT_THAT(decision.copy_in, IsEmpty());
    EXPECT_THAT(decision.copy_back, IsEmpty());
    for (const std::size_t position : {input, step, empty, none}) {
      EXPECT_EQ(memory().hold(position), Hold::kNone);
      move(position);
    }
  }
}

TEST_F(StaticMemoryTest, NothingIsHeldOfWhatNoOpNames) {
  const std::size_t gradient = add("model.fc1.weight.grad", Role::kGradient);
  const std::size_t input = add_input();
  recording_.ops.clear();
  EXPECT_THAT(call().copy_in, IsEmpty());
  for (const std::size_t position : {gradient, input}) {
    EXPECT_EQ(memory().hold(position), Hold::kNone);
    move(position);
  }
  EXPECT_FALSE(captures());
}

TEST_F(StaticMemoryTest, CopiesSayWhyAndHowToBeRidOfThem) {
  const std::size_t input = add_input();
  call();
  ASSERT_THAT(memory().copies(), SizeIs(1));
  EXPECT_EQ(memory().copies()[0].path, "inputs[0]");
  EXPECT_EQ(memory().copies()[0].bytes, 512U);
  EXPECT_THAT(memory().copies()[0].why, HasSubstr("too few calls"));
  EXPECT_EQ(memory().copies()[0].remedy, "pass the same tensor, filled by copy_, in each call");
  move(input);
  call();
  EXPECT_EQ(memory().copies()[0].why, "it does not lie at one address in each call");
}

TEST_F(StaticMemoryTest, CopiesNameTheMoveThatMadeThem) {
  const std::size_t input = add_input();
  look_for_long();
  call();
  EXPECT_THAT(memory().copies(), IsEmpty());
  move(input);
  call();
  ASSERT_THAT(memory().copies(), SizeIs(1));
  EXPECT_EQ(memory().copies()[0].why, "it lay at another address than in the captured call");
}

TEST_F(StaticMemoryTest, AWrittenInputIsTwoCopies) {
  written_ = {add_input()};
  call();
  ASSERT_THAT(memory().copies(), SizeIs(2));
  EXPECT_THAT(memory().copies()[1].why, HasSubstr("copied back"));
  EXPECT_EQ(memory().static_bytes(), 512U);
}

TEST_F(StaticMemoryTest, OtherCountsOfAddressesAreABug) {
  add_input();
  EXPECT_THROW(memory().decide({}), Error);
  EXPECT_THROW(memory().captured({}), Error);
}

TEST_F(StaticMemoryTest, AGraphIsNeverLaunchedWithAnotherAddressThanItHas) {
  std::mt19937_64 random(7);
  std::vector<std::size_t> inputs;
  for (int i = 0; i < 4; ++i) add("model." + std::to_string(i), Role::kParameter);
  for (int i = 0; i < 4; ++i) inputs.push_back(add_input("inputs[" + std::to_string(i) + "]"));
  std::vector<void*> captured(addresses_.size());
  int for_inputs = 0;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 50 == 0) move(random() % 4);
    if (random() % 4 == 0) move(inputs[random() % 4]);
    const Decision decision = memory().decide(addresses_);
    if (decision.capture && random() % 8 != 0) {
      memory().captured(addresses_);
      captured = addresses_;
    } else if (decision.capture) {
      continue;  // it failed, and the step ran without a graph
    }
    for_inputs += decision.why.starts_with("inputs") ? 1 : 0;
    for (std::size_t at = 0; at < addresses_.size(); ++at) {
      if (memory().hold(at) == Hold::kByAddress) {
        ASSERT_EQ(captured[at], addresses_[at]) << "in call " << i;
      } else {
        ASSERT_THAT(decision.copy_in, ::testing::Contains(at)) << "in call " << i;
      }
    }
  }
  EXPECT_LE(for_inputs, 2 * 4);
}

/// A step with an op that makes its results' and gradients' buffers.
class CopiesOutTest : public ::testing::Test {
 protected:
  trace::TensorId add(std::uint64_t bytes, bool made_inside = true, trace::Device device = kGpu) {
    trace::Buffer buffer;
    buffer.bytes = bytes;
    buffer.device = device;
    recording_.buffers.push_back(buffer);
    return add_view(static_cast<trace::BufferId>(recording_.buffers.size() - 1), made_inside);
  }
  trace::TensorId add_view(trace::BufferId buffer, bool made_inside = true) {
    trace::Tensor tensor;
    tensor.buffer = buffer;
    recording_.tensors.push_back(tensor);
    const auto id = static_cast<trace::TensorId>(recording_.tensors.size() - 1);
    const trace::Value value{trace::TensorRef{id}};
    if (made_inside) {
      recording_.ops.emplace_back().outputs = {value};
    } else {
      recording_.inputs.push_back({"inputs[0]", value, false, std::nullopt});
    }
    return id;
  }
  static std::string paths(const std::vector<TensorCopy>& copies) {
    std::string text;
    for (const TensorCopy& copy : copies)
      text += copy.path + " " + std::to_string(copy.bytes) + "\n";
    return text;
  }

  trace::Recording recording_;
};

TEST_F(CopiesOutTest, AreTheResultsAndGradientsThatTheStepMakes) {
  recording_.results = {add(4), add(800)};
  recording_.exit_gradients = {{"model.weight", add(4000)}, {"model.bias", trace::kNoTensor}};
  const std::vector<TensorCopy> copies = copies_out(recording_, Gradients::kNew);
  EXPECT_EQ(paths(copies), "results[0] 4\nresults[1] 800\nmodel.weight.grad 4000\n");
  EXPECT_EQ(copies[2].why, "a gradient is the user's own: it is copied out of the graph's memory");
  EXPECT_EQ(copies[2].remedy, "Options::static_gradients");
  EXPECT_THAT(copies[0].remedy, HasSubstr("return fewer or smaller tensors"));
}

TEST_F(CopiesOutTest, LeaveStaticGradientsWhereTheyAre) {
  recording_.results = {add(4)};
  recording_.exit_gradients = {{"model.weight", add(4000)}};
  EXPECT_EQ(paths(copies_out(recording_, Gradients::kStatic)), "results[0] 4\n");
}

TEST_F(CopiesOutTest, LeaveOutWhatTheStepWasGiven) {
  recording_.results = {add(4, false), trace::kNoTensor};
  recording_.exit_gradients = {{"model.weight", add(4000, false)}};
  EXPECT_THAT(copies_out(recording_, Gradients::kNew), IsEmpty());
}

TEST_F(CopiesOutTest, LeaveOutWhatIsEmptyOrOnTheCpu) {
  recording_.results = {add(0), add(4, true, kCpu)};
  EXPECT_THAT(copies_out(recording_, Gradients::kNew), IsEmpty());
}

TEST_F(CopiesOutTest, CopyABufferOnce) {
  const trace::TensorId whole = add(800);
  recording_.results = {whole, add_view(recording_.tensors[whole].buffer)};
  recording_.exit_gradients = {{"model.weight", whole}};
  EXPECT_EQ(paths(copies_out(recording_, Gradients::kNew)), "results[0] 800\n");
}

TEST_F(CopiesOutTest, TellObservedTensorsFromReturnedOnes) {
  recording_.results = {add(4), add(8)};
  recording_.observed = 1;
  const std::vector<TensorCopy> copies = copies_out(recording_, Gradients::kNew);
  EXPECT_THAT(copies[0].remedy, HasSubstr("return fewer"));
  EXPECT_THAT(copies[1].remedy, HasSubstr("observe fewer"));
}

}  // namespace
}  // namespace steptape::tests
