#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>

#include "tests/session/training.h"

// A random fact of a random model changes between two steps: some guard must name it, and the step
// must do as its eager twin does.
namespace steptape::tests {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
}

/// Blocks of layers in a tree, with names that tests can foresee: "model.blocks.2.norm".
struct BlockImpl : torch::nn::Module {
  BlockImpl(Random& random, std::int64_t width) {
    linear = register_module("linear", torch::nn::Linear(width, width));
    if (below(random, 2) == 0) norm = register_module("norm", torch::nn::BatchNorm1d(width));
    if (below(random, 2) == 0)
      layer = register_module("layer", torch::nn::LayerNorm(std::vector{width}));
    dropout = register_module("dropout", torch::nn::Dropout(0.25));
  }
  at::Tensor forward(at::Tensor x) {
    x = linear->forward(x);
    if (norm) x = norm->forward(x);
    if (layer) x = layer->forward(x);
    return dropout->forward(torch::tanh(x));
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::LayerNorm layer{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Block);

struct TreeImpl : torch::nn::Module {
  explicit TreeImpl(Random random) {
    constexpr std::int64_t kWidth = 8;
    const std::size_t depth = 1 + below(random, 4);
    for (std::size_t k = 0; k < depth; ++k) blocks->push_back(Block(random, kWidth));
    register_module("blocks", blocks);
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return x;
  }
  torch::nn::ModuleList blocks;
};

struct Learner {
  explicit Learner(unsigned seed) {
    torch::manual_seed(seed);
    model = std::make_shared<TreeImpl>(Random(seed));
    if (seed % 2 == 0) {
      optimizer = std::make_shared<torch::optim::Adam>(model->parameters());
    } else {
      optimizer = std::make_shared<torch::optim::SGD>(model->parameters(),
                                                      torch::optim::SGDOptions(0.1).momentum(0.9));
    }
  }
  at::Tensor step(const at::Tensor& x) {
    optimizer->zero_grad();
    const at::Tensor loss = model->forward(x).square().mean();
    loss.backward();
    optimizer->step();
    return loss;
  }
  std::shared_ptr<TreeImpl> model;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
};

/// Something to change, and the path that the verdict must have then.
struct Mutation {
  std::string path;
  std::function<void(Learner&)> apply;
};

Mutation of_parameter(Random& random, const Learner& learner) {
  const auto parameters = learner.model->named_parameters();
  const std::string key = parameters[below(random, parameters.size())].key();
  const std::string path = "model." + key;
  const auto in = [key](Learner& l) { return l.model->named_parameters()[key]; };
  switch (below(random, 5)) {
    case 0:
      return {path + ".requires_grad", [in](Learner& l) { in(l).set_requires_grad(false); }};
    case 1:
      return {path + ".grad", [in](Learner& l) { in(l).mutable_grad().reset(); }};
    case 2:
      return {path + " (hooks)", [in](Learner& l) {
                in(l).register_hook([](const at::Tensor& g) { return g * 0.5; });
              }};
    case 3:
      return {path + ".storage_offset", [in](Learner& l) {
                const torch::NoGradGuard no_grad;
                at::Tensor parameter = in(l);
                const std::int64_t numel = parameter.numel();
                const at::Tensor moved = at::zeros({numel + 16}).narrow(0, 16, numel);
                moved.copy_(parameter.flatten());
                parameter.set_data(moved.view(parameter.sizes()));
              }};
    default:
      return {"optimizer.state[" + path + "]",
              [in](Learner& l) { l.optimizer->state().erase(in(l).unsafeGetTensorImpl()); }};
  }
}

Mutation of_module(Random& random, const Learner& learner) {
  const auto modules = learner.model->named_modules("model");
  const std::string key = modules[below(random, modules.size())].key();
  const auto in = [key](Learner& l) { return l.model->named_modules("model")[key]; };
  switch (below(random, 4)) {
    case 0:
      return {key + ".training", [in](Learner& l) {
                // itself alone: the flags of its children stay
                const auto children = in(l)->modules(/*include_self=*/false);
                in(l)->eval();
                for (const auto& child : children) child->train();
              }};
    case 1:
      return {key + ".extra",
              [in](Learner& l) { in(l)->register_buffer("extra", at::zeros({1})); }};
    case 2:
      return {key + ".extra",
              [in](Learner& l) { in(l)->register_parameter("extra", at::zeros({1})); }};
    default:
      return {key + ".extra",
              [in](Learner& l) { in(l)->register_module("extra", torch::nn::Dropout(0.5)); }};
  }
}

Mutation of_option(Random& random, const Learner& learner) {
  const std::size_t at = below(random, learner.model->blocks->size());
  const std::string path = "model.blocks." + std::to_string(at);
  const auto in = [at](Learner& l) { return l.model->blocks[at]->as<Block>(); };
  auto* block = learner.model->blocks[at]->as<Block>();
  if (block->norm && below(random, 2) == 0) {
    return {path + ".norm.options.eps", [in](Learner& l) { in(l)->norm->options.eps(1e-2); }};
  }
  if (block->layer && below(random, 2) == 0) {
    return {path + ".layer.options.eps", [in](Learner& l) { in(l)->layer->options.eps(1e-2); }};
  }
  return {path + ".dropout.options.p", [in](Learner& l) { in(l)->dropout->options.p(0.75); }};
}

Mutation random_mutation(Random& random, const Learner& learner) {
  switch (below(random, 3)) {
    case 0:
      return of_parameter(random, learner);
    case 1:
      return of_module(random, learner);
    default:
      return of_option(random, learner);
  }
}

TEST(GuardPropertyTest, SomeGuardNamesWhateverChanges) {
  constexpr unsigned kModels = 60;
  for (unsigned seed = 1; seed <= kModels; ++seed) {
    Learner eager(seed), taped(seed);
    Session session(quiet());
    session.track("model", taped.model).track("optimizer", taped.optimizer);
    auto train = session.wrap("train", [&](const at::Tensor& x) { return taped.step(x); });
    unsigned step_seed = 0;
    const auto step_both = [&] {
      const at::Tensor x = at::rand({4, 8});
      torch::manual_seed(++step_seed);
      const at::Tensor expected = eager.step(x);
      torch::manual_seed(step_seed);
      EXPECT_TRUE(same_bits(expected, train(x))) << seed;
      EXPECT_TRUE(all_same_bits(visible_state(*eager.model), visible_state(*taped.model))) << seed;
    };
    for (int i = 0; i < 6; ++i) step_both();
    const std::uint64_t replayed = train.stats().replayed;
    ASSERT_GE(replayed, 1U) << seed << "\n" << train.explain();
    Random random(seed);
    const Mutation mutation = random_mutation(random, taped);
    mutation.apply(eager);
    mutation.apply(taped);
    step_both();
    EXPECT_EQ(train.stats().replayed, replayed) << seed << " " << mutation.path;
    EXPECT_EQ(train.stats().last_verdict.path, mutation.path)
        << seed << " " << train.stats().last_verdict.text();
    for (int i = 0; i < 4; ++i) step_both();
  }
}

}  // namespace
}  // namespace steptape::tests
