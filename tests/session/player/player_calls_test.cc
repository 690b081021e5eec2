#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/embedding.h>

#include <cmath>

#include "steptape/player.h"
#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/session/taught.h"

namespace steptape::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using PlayerCallsTest = TaughtTest;

TEST_F(PlayerCallsTest, AShapeThatNoVariantHoldsGetsTheListOfThoseThereAre) {
  Player player = load(saved());
  const Verdict verdict = player.step("predict").check({at::zeros({5, 64})});
  EXPECT_EQ(verdict.path, "inputs");
  EXPECT_EQ(verdict.expected, "float32[16, 64] or float32[4, 64]");
  EXPECT_EQ(verdict.found, "float32[5, 64]");
  EXPECT_EQ(verdict.kind, GuardKind::kShape);
  EXPECT_EQ(player.step("learn").check({at::zeros({5, 64}), at::zeros({5}, at::kLong)}).path,
            "inputs[0].size(0)");
  EXPECT_EQ(player.step("predict").inputs_of_variants().size(), 2U);
}

TEST_F(PlayerCallsTest, ResultsIntoMemoryOfTheCallers) {
  Player player = load(saved());
  PlayerStep predict = player.step("predict");
  const at::Tensor images = make_batches(1, 16, 5)[0].images;
  const at::Tensor expected = predict(images);
  const std::vector<at::Tensor> results = {at::empty({16, 10})};
  for (int i = 0; i < 3; ++i) {
    results[0].fill_(i);
    predict.run_into(std::vector{images}, results);
    EXPECT_TRUE(same_bits(results[0], expected));
  }
  PlayerStep learn = player.step("learn");
  Player other = load(saved());
  const std::vector<at::Tensor> loss = {at::empty({})};
  for (const Batch& batch : make_batches(3, 16, 6)) {
    learn.run_into(std::vector{batch.images, batch.labels}, loss);
    EXPECT_TRUE(same_bits(loss[0], other.step("learn")(batch.images, batch.labels)));
  }
}

TEST_F(PlayerCallsTest, ResultsThatDoNotFitAreRefusedBeforeAnythingRuns) {
  Player player = load(saved());
  PlayerStep learn = player.step("learn");
  const at::Tensor before = player.tensor("model.fc1.weight").clone();
  const Batch batch = make_batches(1)[0];
  const std::vector<at::Tensor> inputs = {batch.images, batch.labels};
  const auto refuse = [&](const std::vector<at::Tensor>& results, const std::string& says) {
    try {
      learn.run_into(inputs, results);
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  };
  refuse({}, "0 tensors for 1 results");
  refuse({at::empty({1})}, "results[0] is not float32[]");
  refuse({at::empty({}, at::kDouble)}, "results[0] is not float32[]");
  refuse({at::Tensor()}, "results[0] is not float32[]");
  refuse({at::empty({}).requires_grad_()}, "results[0] is not float32[]");
  EXPECT_TRUE(same_bits(player.tensor("model.fc1.weight"), before));
}

TEST_F(PlayerCallsTest, LabelsOutsideTheClassesAreRefusedBeforeTheStep) {
  Player player = load(saved());
  PlayerStep learn = player.step("learn");
  const at::Tensor images = make_batches(1)[0].images;
  const auto verdict = [&](std::int64_t label) {
    at::Tensor labels = at::zeros({16}, at::kLong);
    labels[3] = label;
    return learn.check({images, labels});
  };
  EXPECT_TRUE(verdict(9));
  EXPECT_TRUE(verdict(-100)) << "the index that the loss passes over";
  EXPECT_EQ(verdict(10).text(), "inputs[1]: indices from 0 to 9 → 10");
  EXPECT_EQ(verdict(-1).path, "inputs[1]");
  EXPECT_FALSE(verdict(std::int64_t{1} << 60));
}

TEST_F(PlayerCallsTest, IndicesOutsideAnEmbeddingAreRefusedBeforeTheStep) {
  torch::nn::Embedding table(7, 4);
  Session session(quiet());
  session.track("table", *table);
  auto look = session.wrap("look", [&](at::Tensor indices) {
    const at::NoGradGuard no_grad;
    return table->forward(indices).sum(1);
  });
  for (int i = 0; i < 5; ++i) look(at::tensor({1, 2, i}, at::kLong));
  session.save(path("look.tape"), Session::State::kWith);
  Player player = load(path("look.tape"));
  PlayerStep step = player.step("look");
  EXPECT_TRUE(step.check({at::tensor({0, 6, 5}, at::kLong)}));
  EXPECT_EQ(step.check({at::tensor({0, 7, 5}, at::kLong)}).text(),
            "inputs[0]: indices from 0 to 6 → 7");
  EXPECT_FALSE(step.check({at::tensor({0, -1, 5}, at::kLong)}));
}

TEST_F(PlayerCallsTest, InputsOfAnyBitsGiveTheEagerOnes) {
  Player player = load(saved());
  for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(), 1e-42F, -0.0F, 3e38F}) {
    at::Tensor images = make_batches(1, 16, 5)[0].images;
    images[2][5] = value;
    EXPECT_TRUE(same_bits(player.step("predict")(images), predict(images))) << value;
    const Batch batch{images, make_batches(1)[0].labels};
    EXPECT_TRUE(same_bits(player.step("learn")(batch.images, batch.labels),
                          learn_(batch.images, batch.labels)))
        << value;
  }
}

TEST_F(PlayerCallsTest, InputsOverItsOwnMemoryAreRefused) {
  Player player = load(saved());
  const at::Tensor weight = player.tensor("model.fc1.weight");
  const at::Tensor images = weight.slice(0, 0, 16);
  const Verdict verdict = player.step("learn").check({images, at::zeros({16}, at::kLong)});
  EXPECT_FALSE(verdict) << "the step writes what it reads";
  // a transposed input has other strides than were recorded
  EXPECT_FALSE(player.step("predict").check({at::zeros({64, 16}).t()}));
}

TEST_F(PlayerCallsTest, InputsThatShareMemoryThoughRecordedOnesDidNotAreRefused) {
  Session session(quiet());
  auto mix = session.wrap("mix", [](at::Tensor a, at::Tensor b) { return a.add_(1).mul(b); });
  for (int i = 0; i < 5; ++i) mix(at::ones({8}), at::full({8}, 2.0));
  session.save(path("mix.tape"), Session::State::kWith);
  Player player = load(path("mix.tape"));
  const at::Tensor both = at::ones({8});
  const Verdict verdict = player.step("mix").check({both, both});
  EXPECT_FALSE(verdict) << "the first is written before the second is read";
  EXPECT_TRUE(same_bits(both, at::ones({8})));
  EXPECT_TRUE(same_bits(player.step("mix")(at::ones({8}), at::ones({8})), at::full({8}, 2.0)));
}

TEST_F(PlayerCallsTest, StepsOfInferenceMode) {
  Session session(quiet());
  session.track("model", taught_.model);
  taught_.model->eval();
  auto infer = session.wrap("infer", [this](at::Tensor images) {
    const c10::InferenceMode inference;
    return taught_.model->forward(images);
  });
  const at::Tensor images = make_batches(1, 16, 5)[0].images;
  for (int i = 0; i < 5; ++i) infer(images);
  session.save(path("infer.tape"), Session::State::kWith);
  Player player = load(path("infer.tape"));
  const at::Tensor expected = taught_.model->forward(images).detach();
  EXPECT_TRUE(same_bits(player.step("infer")(images), expected));
  EXPECT_TRUE(same_bits(player.clone().step("infer")(images), expected));
  taught_.model->train();
}

/// What a step does may depend on whether gradients are there, though no op shows it.
TEST_F(PlayerCallsTest, GradientsThatAreThereOrNotDecideAsEagerly) {
  Session session(quiet());
  const at::Tensor weight = at::ones({4}).requires_grad_();
  session.track("weight", weight);
  auto ask = session.wrap("ask", [&](at::Tensor x) {
    const at::NoGradGuard no_grad;
    return weight.grad().defined() ? x * weight * 2 : x * weight;
  });
  auto learn = session.wrap("learn", [&](at::Tensor x) {
    at::Tensor loss = (x * weight).sum();
    loss.backward();
    return loss.detach();
  });
  const at::Tensor x = at::ones({4});
  for (int i = 0; i < 4; ++i) ask(x);
  session.save(path("none.tape"), Session::State::kWith);
  for (int i = 0; i < 5; ++i) learn(x);
  for (int i = 0; i < 4; ++i) ask(x);
  session.save(path("both.tape"), Session::State::kWith);

  Player none = load(path("none.tape"));
  EXPECT_TRUE(same_bits(none.step("ask")(x), x));
  EXPECT_TRUE(same_bits(none.clone().step("ask")(x), x));
  Player both = load(path("both.tape"));
  Player clone = both.clone();
  EXPECT_TRUE(same_bits(both.step("ask")(x), 2 * x));
  EXPECT_TRUE(same_bits(clone.step("ask")(x), 2 * x));
}

TEST_F(PlayerCallsTest, ResultsOverMemoryOfTheStepAreRefusedBeforeAnythingRuns) {
  Player player = load(saved());
  PlayerStep predict = player.step("predict");
  const std::vector<at::Tensor> inputs = {make_batches(1, 16, 5)[0].images};
  const at::Tensor before = player.tensor("model.fc1.weight").clone();
  const auto refused = [&](const at::Tensor& result) {
    try {
      predict.run_into(inputs, std::vector{result});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(
      refused(player.tensor("model.fc1.weight").view({-1}).narrow(0, 5, 160).view({16, 10})),
      HasSubstr("results[0] lies over model.fc1.weight"));
  EXPECT_THAT(refused(inputs[0].view({-1}).narrow(0, 64, 160).view({16, 10})),
              HasSubstr("results[0] lies over inputs[0]"));
  EXPECT_TRUE(same_bits(player.tensor("model.fc1.weight"), before));
  EXPECT_EQ(player.metrics().steps.at(1).failed, 0U) << "it is the caller's mistake";
}

TEST_F(PlayerCallsTest, NumbersMustBeWhatTheyStandFor) {
  Player player = load(saved());
  constexpr const char* kCount = "optimizer.state[model.fc1.weight].step";
  const double before = player.scalar(kCount);
  EXPECT_THROW(player.set(kCount, 2.5), Error);
  EXPECT_THROW(player.set(kCount, std::nan("")), Error);
  EXPECT_THROW(player.set(kCount, 1e300), Error);
  EXPECT_EQ(player.scalar(kCount), before);
  player.set(kCount, 7);
  EXPECT_EQ(player.scalar(kCount), 7);
}

TEST_F(PlayerCallsTest, WhatIsRefusedInMidRunIsAVerdictToo) {
  Player player = load(saved());
  PlayerStep learn = player.step("learn");
  const Batch batch = make_batches(1)[0];
  const at::Tensor before = player.tensor("model.fc1.weight").clone();
  for (const TensorSpec& spec : player.parameters()) {
    player.set("optimizer.state[" + spec.path + "].step", -3);
  }
  try {
    learn(batch.images, batch.labels);
    ADD_FAILURE() << "ran";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition) << error.what();
    EXPECT_FALSE(learn.last_verdict());
  }
  EXPECT_TRUE(same_bits(player.tensor("model.fc1.weight"), before));
  EXPECT_EQ(player.metrics().steps.at(0).refused, 1U);
}

TEST_F(PlayerCallsTest, SavedGradientsThatAreTooSmallAreRefused) {
  trace::Trace trace = storage::read(saved());
  std::size_t cut = 0;
  for (trace::Saved& entry : trace.state) {
    if (entry.path != "model.fc1.weight.grad") continue;
    entry.content = trace::make_blob(entry.content->data(), 4);
    ++cut;
  }
  ASSERT_EQ(cut, 1U);
  storage::write(trace, path("cut.tape"));
  Player player = load(path("cut.tape"));
  const Batch batch = make_batches(1)[0];
  EXPECT_EQ(player.step("learn").check({batch.images, batch.labels}).kind, GuardKind::kMemory);
}

TEST_F(PlayerCallsTest, AModuleMayBeCalledGenerator) {
  Session session(quiet());
  torch::nn::Linear generator(8, 8);
  session.track("generator", *generator);
  auto make = session.wrap("make", [&](at::Tensor x) {
    const at::NoGradGuard no_grad;
    return generator->forward(x);
  });
  const at::Tensor x = at::ones({2, 8});
  for (int i = 0; i < 4; ++i) make(x);
  session.save(path("generator.tape"), Session::State::kWith);
  Player player = load(path("generator.tape"));
  EXPECT_TRUE(same_bits(player.step("make")(x), generator->forward(x).detach()));
}

TEST_F(PlayerCallsTest, ExplainsItself) {
  Player player = load(saved());
  const Batch batch = make_batches(1)[0];
  player.step("learn")(batch.images, batch.labels);
  EXPECT_THAT(player.explain(),
              AllOf(HasSubstr("player of " + path("run.tape")),
                    HasSubstr("step \"learn\": 1 calls ran, 0 refused, 0 failed; writes state"),
                    HasSubstr("step \"predict\": 0 calls ran"), HasSubstr("reads state"),
                    HasSubstr("takes float32[4, 64]"), Not(HasSubstr("accepted"))));
  EXPECT_EQ(player.parameters().size(), 6U);
  EXPECT_GT(player.state().size(), player.parameters().size());
}

TEST_F(PlayerCallsTest, SaysWhatMemoryItTakesBeforeTheFirstStep) {
  Player player = load(saved());
  const PlayerMemory memory = player.memory();
  EXPECT_GE(memory.state, 3U * 4 * (64 * 32 + 32 * 10)) << "weights, and two moments of each";
  EXPECT_GT(memory.arenas, 0U);
  EXPECT_EQ(memory.published, 0U);
  const Player clone = player.clone();
  EXPECT_EQ(clone.memory().state, 0U);
  EXPECT_EQ(clone.memory().published, player.memory().published);
}

TEST_F(PlayerCallsTest, AnotherEnvironmentIsRefusedOrAcceptedAndSaid) {
  trace::Trace trace = storage::read(saved());
  for (trace::Fact& fact : trace.environment) {
    if (fact.name == "cpu_capability") fact.value = "VSX";
  }
  storage::write(trace, path("elsewhere.tape"));
  try {
    load(path("elsewhere.tape"));
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("cpu_capability: recorded VSX, here "));
  }
  LoadOptions options;
  options.environment = Environment::kAny;
  EXPECT_THAT(load(path("elsewhere.tape"), options).explain(),
              HasSubstr("accepted, though results may differ in their last bits: "
                        "cpu_capability: recorded VSX"));
}

TEST_F(PlayerCallsTest, OptionsThatAreNotKnownAreRefused) {
  LoadOptions options;
  options.device = "cuda";
  EXPECT_THROW(load(saved(), options), Error);
  options = {};
  options.threads = -1;
  EXPECT_THROW(load(saved(), options), Error);
}

}  // namespace
}  // namespace steptape::tests
