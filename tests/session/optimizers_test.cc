#include <gtest/gtest.h>
#include <torch/serialize/archive.h>

#include <cmath>
#include <numbers>
#include <sstream>

#include "live/optimizer_layout.h"
#include "tests/session/training.h"

namespace steptape::tests {
namespace {

using namespace torch::optim;

/// A tiny model, so that thousands of steps cost nothing, trained eagerly and through Steptape side
/// by side with a rate that moves in every step.
template <typename Optimizer>
class Twins {
 public:
  template <typename Options>
  Twins(const Options& options, steptape::Options session_options)
      : eager_(options), taped_(options), session_(session_options) {
    session_.track("model", taped_.model).track("optimizer", taped_.optimizer);
  }

  struct One {
    template <typename Options>
    explicit One(const Options& options)
        : model((torch::manual_seed(1), torch::nn::Linear(4, 3))),
          head(torch::nn::Linear(3, 2)),
          optimizer(make(options)) {
      modules->push_back(model);
      modules->push_back(head);
    }
    template <typename Options>
    Optimizer make(const Options& options) {
      auto other = options;
      other.lr(options.lr() / 2);
      std::vector<OptimizerParamGroup> groups;
      groups.emplace_back(model->parameters());
      groups.emplace_back(head->parameters(), std::make_unique<Options>(other));
      return Optimizer(groups, options);
    }
    at::Tensor step(const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor loss = head->forward(torch::tanh(model->forward(x))).square().mean();
      loss.backward();
      optimizer.step();
      return loss;
    }
    torch::nn::Linear model, head;
    torch::nn::Sequential modules;
    Optimizer optimizer;
  };

  void set_rate(double rate) {
    for (One* one : {&eager_, &taped_}) {
      one->optimizer.param_groups()[0].options().set_lr(rate);
      one->optimizer.param_groups()[1].options().set_lr(rate / 3);
    }
  }

  void step(const at::Tensor& x) {
    const at::Tensor expected = eager_.step(x);
    const at::Tensor found = train_(x);
    ASSERT_TRUE(same_bits(expected, found));
  }

  void expect_same() {
    for (std::size_t i = 0; i < 2; ++i) {
      const auto& a = i == 0 ? eager_.model : eager_.head;
      const auto& b = i == 0 ? taped_.model : taped_.head;
      ASSERT_TRUE(all_same_bits(visible_state(*a), visible_state(*b)));
    }
    const auto expected = state(eager_), found = state(taped_);
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(expected[i].key, found[i].key);
      const auto* tensor = std::get_if<at::Tensor>(&expected[i].value);
      if (tensor != nullptr) {
        ASSERT_TRUE(same_bits(*tensor, std::get<at::Tensor>(found[i].value))) << expected[i].key;
      } else {
        ASSERT_EQ(std::get<std::int64_t>(expected[i].value),
                  std::get<std::int64_t>(found[i].value));
      }
    }
  }

  /// Moments and step counters, parameter by parameter.
  static std::vector<live::StateItem> state(One& one) {
    std::vector<live::StateItem> items;
    for (const auto& group : one.optimizer.param_groups()) {
      for (const at::Tensor& parameter : group.params()) {
        const auto found = one.optimizer.state().find(parameter.unsafeGetTensorImpl());
        if (found == one.optimizer.state().end()) continue;
        for (live::StateItem& item : live::state_items(*found->second)) items.push_back(item);
      }
    }
    return items;
  }

  static std::string saved(One& one) {
    std::stringstream stream;
    torch::serialize::OutputArchive archive;
    one.optimizer.save(archive);
    archive.save_to(stream);
    return stream.str();
  }
  void save_and_load() {
    for (One* one : {&eager_, &taped_}) {
      std::stringstream stream(saved(*one));
      torch::serialize::InputArchive archive;
      archive.load_from(stream);
      one->optimizer.load(archive);
    }
  }

  Stats stats() const { return train_.stats(); }
  std::string explain() const { return train_.explain(); }

 private:
  One eager_, taped_;
  Session session_;
  Step<at::Tensor(at::Tensor)> train_ =
      session_.wrap("train", [this](at::Tensor x) { return taped_.step(x); });
};

double scheduled(int step, int steps) {
  const double warm_up = std::min(1.0, (step + 1) / 100.0);
  return 0.01 * warm_up * 0.5 * (1 + std::cos(std::numbers::pi * step / steps));
}

/// As many steps as needed for formulas that agree at first to part: sqrt and pow(x, 0.5) do at
/// 1,270.
template <typename Optimizer, typename OptimizerOptions>
void train(const OptimizerOptions& options, int steps, int load_at = -1) {
  Twins<Optimizer> twins(options, quiet());
  torch::manual_seed(2);
  for (int i = 0; i < steps; ++i) {
    twins.set_rate(scheduled(i, steps));
    twins.step(at::randn({5, 4}));
    if (::testing::Test::HasFatalFailure()) FAIL() << "at step " << i;
    if (i == load_at) twins.save_and_load();
  }
  twins.expect_same();
  EXPECT_GE(twins.stats().replayed, static_cast<std::uint64_t>(steps) * 9 / 10) << twins.explain();
}

constexpr int kLong = 10'000;

TEST(OptimizersTest, Sgd) { train<SGD>(SGDOptions(0.01), kLong); }
TEST(OptimizersTest, SgdWithEverything) {
  train<SGD>(SGDOptions(0.01).momentum(0.9).dampening(0.1).weight_decay(0.01), kLong);
  train<SGD>(SGDOptions(0.01).momentum(0.9).nesterov(true), 1000);
}
TEST(OptimizersTest, Adam) { train<Adam>(AdamOptions(0.01), kLong); }
TEST(OptimizersTest, AdamWithEverything) {
  train<Adam>(AdamOptions(0.01).weight_decay(0.01).amsgrad(true).betas({0.8, 0.95}), kLong);
}
TEST(OptimizersTest, AdamW) { train<AdamW>(AdamWOptions(0.01), kLong); }
TEST(OptimizersTest, AdamWWithAmsgrad) {
  train<AdamW>(AdamWOptions(0.01).weight_decay(0.05).amsgrad(true), kLong);
}
TEST(OptimizersTest, Rmsprop) { train<RMSprop>(RMSpropOptions(0.01), kLong); }
TEST(OptimizersTest, RmspropWithEverything) {
  train<RMSprop>(RMSpropOptions(0.01).centered(true).momentum(0.9).weight_decay(0.01), kLong);
}
TEST(OptimizersTest, Adagrad) { train<Adagrad>(AdagradOptions(0.01).lr_decay(0.001), kLong); }
TEST(OptimizersTest, AdagradWithWeightDecay) {
  train<Adagrad>(AdagradOptions(0.01).weight_decay(0.01), kLong);
}

TEST(OptimizersTest, StateThatIsSavedAndLoadedInTheMiddleReplaysOn) {
  train<Adam>(AdamOptions(0.01), 1000, 500);
  train<AdamW>(AdamWOptions(0.01), 1000, 500);
  train<RMSprop>(RMSpropOptions(0.01).momentum(0.9), 1000, 500);
  train<Adagrad>(AdagradOptions(0.01), 1000, 500);
  train<SGD>(SGDOptions(0.01).momentum(0.9), 1000, 500);
}

TEST(OptimizersTest, ABranchThatAHyperparameterTakesMakesAVariant) {
  AdamTraining eager({}, AdamOptions(1e-3)), taped({}, AdamOptions(1e-3));
  Session session(quiet());
  session.track("model", taped.model).track("optimizer", taped.optimizer);
  auto train = session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped.step(x, y); });
  int step = 0;
  for (const Batch& batch : make_batches(40)) {
    if (++step == 20) {
      for (AdamTraining* one : {&eager, &taped}) {
        static_cast<AdamOptions&>(one->optimizer.param_groups()[0].options()).weight_decay(0.1);
      }
    }
    ASSERT_TRUE(
        same_bits(eager.step(batch.images, batch.labels), train(batch.images, batch.labels)));
  }
  EXPECT_EQ(train.stats().variants.size(), 2U) << train.explain();
  EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model)));
}

TEST(OptimizersTest, ARateThatTheStepReadsForItselfIsNeverFrozen) {
  torch::manual_seed(1);
  auto a = torch::nn::Linear(3, 2);
  torch::manual_seed(1);
  auto b = torch::nn::Linear(3, 2);
  SGD mine(a->parameters(), SGDOptions(0.1)), other(b->parameters(), SGDOptions(0.1));
  const auto step = [](torch::nn::Linear& model, SGD& optimizer, const at::Tensor& x) {
    optimizer.zero_grad();
    const at::Tensor loss = model->forward(x).square().sum();
    loss.backward();
    optimizer.step();
    const double rate = optimizer.param_groups()[0].options().get_lr();
    return loss * (rate + 1);
  };
  Session session(quiet());
  session.track("model", b).track("optimizer", other);
  auto train = session.wrap("train", [&](at::Tensor x) { return step(b, other, x).detach(); });
  for (int i = 0; i < 30; ++i) {
    const int epoch = i / 10;
    const double rate = 0.1 / (1 + epoch);
    mine.param_groups()[0].options().set_lr(rate);
    other.param_groups()[0].options().set_lr(rate);
    const at::Tensor x = at::randn({4, 3});
    ASSERT_TRUE(same_bits(step(a, mine, x), train(x))) << i << train.explain();
  }
  EXPECT_GT(train.stats().replayed, 10U) << train.explain();
}

}  // namespace
}  // namespace steptape::tests
