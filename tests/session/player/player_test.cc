#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// A training that was taped, saved with its state, and goes on both ways.
class PlayerTest : public ::testing::Test {
 protected:
  PlayerTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("steptape_player_" + std::to_string(getpid()) + "_" +
                 ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        taped_({true, 0.25}, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01)),
        session_(quiet()) {
    std::filesystem::create_directories(folder_);
    session_.track("model", taped_.model).track("optimizer", taped_.optimizer);
    torch::manual_seed(3);
    for (const Batch& batch : make_batches(6)) train_(batch.images, batch.labels);
    EXPECT_GE(train_.stats().replayed, 1U) << train_.explain();
  }
  ~PlayerTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "run.tape") const { return folder_ / name; }
  std::string saved(Session::State state = Session::State::kWith) {
    session_.save(path(), state);
    return path();
  }
  /// Rewrites the saved trace after `change`.
  template <typename Change>
  std::string changed(Change change) {
    trace::Trace trace = storage::read(saved());
    change(trace);
    storage::write(trace, path("changed.tape"));
    return path("changed.tape");
  }
  static trace::Recording& trusted(trace::Trace& trace) {
    return trace.steps.at(0).recordings.back();
  }

  void expect_error(const std::string& file, ErrorCode code, const std::string& says) {
    try {
      load(file);
      FAIL() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }

  std::filesystem::path folder_;
  SgdTraining taped_;
  Session session_;
  Step<at::Tensor(at::Tensor, at::Tensor)> train_ = session_.wrap(
      "train",
      [this](at::Tensor images, at::Tensor labels) { return taped_.step(images, labels); });
};

TEST_F(PlayerTest, GoesOnBitForBit) {
  Player player = load(saved());
  PlayerStep step = player.step("train");
  // the process's own generator must not matter to the player, nor the player's to the process
  for (const Batch& batch : make_batches(10, 16, 99)) {
    const at::Tensor expected = train_(batch.images, batch.labels);
    EXPECT_TRUE(same_bits(expected, step(batch.images, batch.labels)));
  }
  for (const auto& item : taped_.model->named_parameters()) {
    EXPECT_TRUE(same_bits(item.value(), player.tensor("model." + item.key()))) << item.key();
  }
  for (const auto& item : taped_.model->named_buffers()) {
    EXPECT_TRUE(same_bits(item.value(), player.tensor("model." + item.key()))) << item.key();
  }
}

TEST_F(PlayerTest, SavedStateOfAPlayerGoesOnBitForBit) {
  const std::vector<Batch> batches = make_batches(6, 16, 98);
  Player player = load(saved());
  for (int i = 0; i < 3; ++i) player.step("train")(batches[i].images, batches[i].labels);
  player.save(path("later.tape"));
  Player later = load(path("later.tape"));
  for (int i = 3; i < 6; ++i) {
    EXPECT_TRUE(same_bits(player.step("train")(batches[i].images, batches[i].labels),
                          later.step("train")(batches[i].images, batches[i].labels)));
  }
}

TEST_F(PlayerTest, SaysWhatItTakesAndGives) {
  Player player = load(saved());
  EXPECT_EQ(player.steps(), std::vector<std::string>{"train"});
  const std::vector<TensorSpec> inputs = player.step("train").inputs();
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].dtype, "float32");
  EXPECT_EQ(inputs[0].sizes, (std::vector<std::int64_t>{16, 64}));
  EXPECT_EQ(inputs[1].dtype, "int64");
  EXPECT_GE(inputs[1].low, 0);
  EXPECT_LE(inputs[1].high, 9);
  EXPECT_EQ(player.step("train").results().size(), 1U);
  EXPECT_THROW(player.step("eval"), Error);
  EXPECT_THROW(player.tensor("model.fc9.weight"), Error);
}

TEST_F(PlayerTest, WrongInputsThrowTheVerdictAndChangeNothing) {
  Player player = load(saved());
  PlayerStep step = player.step("train");
  const at::Tensor before = player.tensor("model.fc1.weight").clone();
  const at::Tensor x = at::rand({16, 64}), y = at::zeros({16}, at::kLong);
  const auto expect_verdict = [&](const std::vector<at::Tensor>& inputs, const std::string& path) {
    EXPECT_EQ(step.check(inputs).path, path) << step.check(inputs).text();
    try {
      step.run(inputs);
      ADD_FAILURE() << "ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
  };
  expect_verdict({x}, "inputs.size");
  expect_verdict({x, y, y}, "inputs.size");
  EXPECT_EQ(step.check(std::vector{x}).text(),
            "inputs.size: 2 (float32[16, 64], int64[16]) → 1 (float32[16, 64])");
  expect_verdict({x.to(at::kDouble), y}, "inputs[0].dtype");
  expect_verdict({at::rand({17, 64}), y}, "inputs[0].size(0)");
  expect_verdict({x.flatten(), y}, "inputs[0].dim");
  expect_verdict({x, at::Tensor()}, "inputs[1]");
  expect_verdict({x.to(at::kMeta), y}, "inputs[0]");
  EXPECT_TRUE(same_bits(before, player.tensor("model.fc1.weight")));
  EXPECT_TRUE(step.check({x, y}));
}

TEST_F(PlayerTest, AnOpThatThrowsChangesNothing) {
  Player player = load(saved());
  PlayerStep step = player.step("train");
  const at::Tensor mean = player.tensor("model.norm.running_mean").clone();
  EXPECT_ANY_THROW(step.run({at::ones({16, 64}), at::full({16}, 1000, at::kLong)}));
  EXPECT_TRUE(same_bits(mean, player.tensor("model.norm.running_mean")));
  const Batch batch = make_batches(1)[0];
  EXPECT_TRUE(same_bits(train_(batch.images, batch.labels), step(batch.images, batch.labels)));
}

TEST_F(PlayerTest, ATraceWithoutStateSaysSo) {
  expect_error(saved(Session::State::kWithout), ErrorCode::kUnsupported, "save it with");
}

TEST_F(PlayerTest, WhatAProgramHasChangedSinceItsPlansWereMadeIsNotPlayed) {
  const at::Tensor weight = taped_.model->parameters()[0];
  const std::string says = "with the program as it was when it was saved";
  weight.requires_grad_(false);
  expect_error(saved(), ErrorCode::kUnsupported, says);
  weight.requires_grad_();
  weight.set_data(weight.t().contiguous().t());
  expect_error(saved(), ErrorCode::kUnsupported, says);
  weight.set_data(weight.clone(at::MemoryFormat::Contiguous));
  load(saved());  // other memory is not another model
  weight.register_hook([](const at::Tensor& gradient) { return gradient; });
  expect_error(saved(), ErrorCode::kUnsupported, says);
}

/// Trains, then gives the parameters memory that `give` makes of them.
template <typename Give>
auto giving(SgdTraining& training, Give give) {
  return [&training, give](at::Tensor images, at::Tensor labels) {
    const at::Tensor loss = training.step(images, labels);
    const at::NoGradGuard no_grad;
    give(training.model->parameters());
    return loss.detach();
  };
}

TEST_F(PlayerTest, AStepThatGivesItsParametersOtherMemoryIsPlayed) {
  SgdTraining taped({true, 0}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("give", giving(taped, [](const std::vector<at::Tensor>& parameters) {
                              for (const at::Tensor& p : parameters) p.set_data(p.detach() * 0.9);
                            }));
  for (const Batch& batch : make_batches(16)) train(batch.images, batch.labels);
  EXPECT_GE(train.stats().replayed, 2U) << train.explain();
  session.save(path(), Session::State::kWith);
  Player player = load(path());
  PlayerStep step = player.step("give");
  for (const Batch& batch : make_batches(8)) {
    EXPECT_TRUE(same_bits(train(batch.images, batch.labels), step(batch.images, batch.labels)));
    EXPECT_TRUE(same_bits(taped.model->fc1->weight, player.tensor("model.fc1.weight")));
    EXPECT_TRUE(same_bits(taped.model->fc2->bias, player.tensor("model.fc2.bias")));
  }
}

TEST_F(PlayerTest, MemoryThatParametersAreGivenTogetherIsNotPlayed) {
  SgdTraining taped({true, 0}, torch::optim::SGDOptions(0.1));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap(
      "give", giving(taped, [](const std::vector<at::Tensor>& parameters) {
        const at::Tensor all = at::cat({parameters[0].flatten(), parameters[1].flatten()});
        const std::int64_t first = parameters[0].numel();
        const at::Tensor& second = parameters[1];
        parameters[0].set_data(all.narrow(0, 0, first).view(parameters[0].sizes()));
        second.set_data(all.narrow(0, first, second.numel()).view(second.sizes()));
      }));
  for (const Batch& batch : make_batches(16)) train(batch.images, batch.labels);
  EXPECT_GE(train.stats().replayed, 2U) << train.explain();
  session.save(path(), Session::State::kWith);
  expect_error(path(), ErrorCode::kUnsupported, "memory of another layout, or which it shares");
}

TEST_F(PlayerTest, AnOpThatDoesNotExistIsNamed) {
  expect_error(
      changed([](trace::Trace& trace) { trusted(trace).operators[0].name = "aten::no_such_op"; }),
      ErrorCode::kUnsupported, "aten::no_such_op");
}

TEST_F(PlayerTest, AnotherSchemaIsNamed) {
  expect_error(
      changed([](trace::Trace& trace) { trusted(trace).operators[0].schema += " -> Tensor"; }),
      ErrorCode::kUnsupported, "was recorded as");
}

TEST_F(PlayerTest, AnotherEnvironmentIsNamedAndMayBeAccepted) {
  const std::string file =
      changed([](trace::Trace& trace) { trace.environment.at(0).value = "other"; });
  expect_error(file, ErrorCode::kUnsupported, "recorded other");
  EXPECT_NO_THROW(load(file, {.environment = Environment::kAny}));
}

TEST_F(PlayerTest, MissingEmptyForeignAndCutFilesAreErrors) {
  expect_error(path("none.tape"), ErrorCode::kIo, "none.tape");
  std::ofstream empty(path("empty.tape"));
  empty.close();
  expect_error(path("empty.tape"), ErrorCode::kDataLoss, "empty.tape");
  std::ofstream(path("foreign.tape"))
      << "this is not a trace, but it is long enough to look like a file";
  expect_error(path("foreign.tape"), ErrorCode::kDataLoss, "foreign.tape");
  std::filesystem::copy_file(saved(), path("cut.tape"));
  std::filesystem::resize_file(path("cut.tape"), std::filesystem::file_size(path("cut.tape")) / 2);
  expect_error(path("cut.tape"), ErrorCode::kDataLoss, "cut.tape");
}

TEST_F(PlayerTest, TheTraceOptionKeepsAReadableTrace) {
  Options options = quiet();
  options.trace = path("kept.tape");
  Session session(options);
  auto step = session.wrap("double", [](at::Tensor x) { return x * 2; });
  for (int i = 0; i < 4; ++i) step(at::rand({8}));
  EXPECT_EQ(step.stats().trace_problem, "");
  Player player = load(path("kept.tape"));
  const at::Tensor x = at::rand({8});
  EXPECT_TRUE(same_bits(player.step("double")(x), x * 2));
}

TEST(PlayerNumbersTest, AScheduleFactsAndCountersGoOnWhereTheyWere) {
  const std::string path = ::testing::TempDir() + "/numbers.tape";
  AdamTraining training({false, 0}, torch::optim::AdamOptions(1e-2));
  double tau = 1;
  bool doubled = false;
  Session session(quiet());
  session.track("model", training.model).track("optimizer", training.optimizer);
  session.host("tau", [&] { return tau; }).guard("doubled", [&] { return doubled; });
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y, int scale) {
    training.optimizer.zero_grad();
    auto loss = torch::nn::functional::cross_entropy(training.model->forward(x) * tau, y) * scale;
    if (doubled) loss = loss * 2;
    loss.backward();
    training.optimizer.step();
    return std::make_pair(loss, loss.item<double>());
  });
  const auto rate = [](int i) { return 1e-2 / (i + 1); };
  const std::vector<Batch> batches = make_batches(60);
  const auto set = [&](int i) {
    training.optimizer.param_groups()[0].options().set_lr(rate(i));
    tau = 1 + 0.01 * i;
    doubled = i >= 20;
  };
  for (int i = 0; i < 40; ++i) {
    set(i);
    train(batches[i].images, batches[i].labels, 1);
  }
  ASSERT_EQ(train.stats().variants.size(), 2U) << train.explain();
  session.save(path);
  Player player = load(path);
  PlayerStep step = player.step("train");
  EXPECT_EQ(player.scalar("tau"), tau);
  EXPECT_EQ(player.scalar("doubled"), 1);
  EXPECT_EQ(player.scalar("optimizer.state[model.fc1.weight].step"), 40);
  for (int i = 40; i < 60; ++i) {
    set(i);
    player.set("optimizer.param_groups[0].lr", rate(i));
    player.set("tau", tau);
    const auto [expected, value] = train(batches[i].images, batches[i].labels, 1);
    ASSERT_TRUE(same_bits(expected, step(batches[i].images, batches[i].labels))) << i;
    ASSERT_EQ(step.numbers(), std::vector<double>{value});
  }
  EXPECT_TRUE(same_bits(training.model->fc1->weight, player.tensor("model.fc1.weight")));
  EXPECT_EQ(player.scalar("optimizer.state[model.fc1.weight].step"), 60);
  player.set("doubled", 0);
  EXPECT_TRUE(step.check({batches[0].images, batches[0].labels}));
  player.set("train.inputs[2]", 7);
  EXPECT_FALSE(step.check({batches[0].images, batches[0].labels}));
  EXPECT_THROW(player.set("no.such", 1), Error);
}

TEST(PlayerNumbersTest, NumbersThatWereEqualMustStayEqual) {
  const std::string path = ::testing::TempDir() + "/equal_numbers.tape";
  double b = 0;
  Session session(quiet());
  session.host("b", [&] { return b; });
  auto step = session.wrap("step", [&](at::Tensor x, double a) { return x * a; });
  for (int i = 0; i < 8; ++i) {
    b = 1.0 / (i + 1);
    step(at::rand({4}), b);
  }
  ASSERT_GT(step.stats().replayed, 0U) << step.explain();
  session.save(path);
  Player player = load(path);
  const at::Tensor x = at::rand({4});
  player.set("step.inputs[1]", 0.3);
  EXPECT_FALSE(player.step("step").check({x}));
  EXPECT_THROW(player.step("step")(x), Error);
  player.set("b", 0.3);
  EXPECT_TRUE(same_bits(player.step("step")(x), x * 0.3));
  // the first above 1 is one at which ops may turn
  player.set("b", 3);
  player.set("step.inputs[1]", 3);
  EXPECT_THROW(player.step("step")(x), Error);
}

}  // namespace
}  // namespace steptape::tests
