#include <gtest/gtest.h>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

/// A small model of one kind with the loss of a step over it, and inputs for any number of steps.
struct Kind {
  std::string name;
  std::function<std::shared_ptr<nn::Module>()> make;
  std::function<at::Tensor(nn::Module&, const at::Tensor&, const at::Tensor&)> loss;
  std::function<Batch()> batch;
};

struct ConvImpl : nn::Module {
  nn::Conv2d a{register_module("a", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)))};
  nn::BatchNorm2d norm{register_module("norm", nn::BatchNorm2d(4))};
  nn::Conv2d b{register_module("b", nn::Conv2d(nn::Conv2dOptions(4, 8, 3).stride(2)))};
  nn::Linear head{register_module("head", nn::Linear(8, 10))};
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = F::max_pool2d(torch::relu(norm(a(x))), F::MaxPool2dFuncOptions(2));
    y = torch::dropout(torch::relu(b(y)), 0.2, is_training());
    return head(y.mean({2, 3}));
  }
};

struct GruCellImpl : nn::Module {
  nn::GRUCell cell{register_module("cell", nn::GRUCell(8, 16))};
  nn::Linear head{register_module("head", nn::Linear(16, 10))};
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor hidden = torch::zeros({x.size(1), 16});
    for (std::int64_t t = 0; t < x.size(0); ++t) hidden = cell(x[t], hidden);
    return head(hidden);
  }
};

struct LstmImpl : nn::Module {
  nn::LSTM lstm{register_module("lstm", nn::LSTM(nn::LSTMOptions(8, 16).num_layers(2)))};
  nn::Linear head{register_module("head", nn::Linear(16, 10))};
  at::Tensor forward(const at::Tensor& x) { return head(std::get<0>(lstm(x))[-1]); }
};

struct AttentionImpl : nn::Module {
  nn::Embedding embedding{register_module("embedding", nn::Embedding(32, 16))};
  nn::LayerNorm norm{register_module("norm", nn::LayerNorm(nn::LayerNormOptions({16})))};
  nn::Linear qkv{register_module("qkv", nn::Linear(16, 48))};
  nn::Linear mlp{register_module("mlp", nn::Linear(16, 16))};
  at::Tensor forward(const at::Tensor& tokens) {
    at::Tensor x = embedding(tokens);
    const auto parts =
        qkv(norm(x)).view({x.size(0), x.size(1), 3, 2, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
    at::Tensor y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    x = x + y.transpose(1, 2).reshape(x.sizes());
    x = x + torch::gelu(mlp(x));
    return torch::matmul(x, embedding->weight.t());  // tied weights
  }
};

struct GroupNormImpl : nn::Module {
  nn::Conv1d conv{register_module("conv", nn::Conv1d(nn::Conv1dOptions(4, 8, 3)))};
  nn::GroupNorm norm{register_module("norm", nn::GroupNorm(2, 8))};
  nn::ConvTranspose1d back{
      register_module("back", nn::ConvTranspose1d(nn::ConvTranspose1dOptions(8, 4, 3)))};
  at::Tensor forward(const at::Tensor& x) { return back(F::silu(norm(conv(x)))); }
};

struct EmbeddingBagImpl : nn::Module {
  nn::EmbeddingBag bag{
      register_module("bag", nn::EmbeddingBag(nn::EmbeddingBagOptions(32, 8).mode(torch::kMean)))};
  nn::Linear head{register_module("head", nn::Linear(8, 10))};
  at::Tensor forward(const at::Tensor& x) { return head(bag(x)); }
};

struct ComplexImpl : nn::Module {
  nn::Linear a{register_module("a", nn::Linear(16, 16))};
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor spectrum = torch::fft_rfft(a(x));
    return torch::fft_irfft(spectrum * spectrum.conj(), 16);
  }
};

template <typename Model>
at::Tensor classify(nn::Module& module, const at::Tensor& x, const at::Tensor& y) {
  return F::cross_entropy(static_cast<Model&>(module).forward(x), y);
}

template <typename Model>
at::Tensor regress(nn::Module& module, const at::Tensor& x, const at::Tensor& y) {
  return F::mse_loss(static_cast<Model&>(module).forward(x), y);
}

at::Tensor classes(std::int64_t count) { return torch::randint(0, 10, {count}, at::kLong); }

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"conv", [] { return std::make_shared<ConvImpl>(); }, classify<ConvImpl>,
       [] {
         return Batch{torch::randn({6, 1, 8, 8}), classes(6)};
       }},
      {"gru_cell", [] { return std::make_shared<GruCellImpl>(); }, classify<GruCellImpl>,
       [] {
         return Batch{torch::randn({6, 4, 8}), classes(4)};
       }},
      {"lstm", [] { return std::make_shared<LstmImpl>(); }, classify<LstmImpl>,
       [] {
         return Batch{torch::randn({6, 4, 8}), classes(4)};
       }},
      {"attention", [] { return std::make_shared<AttentionImpl>(); },
       [](nn::Module& module, const at::Tensor& x, const at::Tensor& y) {
         return F::cross_entropy(static_cast<AttentionImpl&>(module).forward(x).flatten(0, 1),
                                 y.flatten());
       },
       [] {
         return Batch{torch::randint(0, 32, {3, 7}, at::kLong),
                      torch::randint(0, 32, {3, 7}, at::kLong)};
       }},
      {"group_norm", [] { return std::make_shared<GroupNormImpl>(); }, regress<GroupNormImpl>,
       [] {
         return Batch{torch::randn({3, 4, 12}), torch::randn({3, 4, 12})};
       }},
      {"embedding_bag", [] { return std::make_shared<EmbeddingBagImpl>(); },
       classify<EmbeddingBagImpl>,
       [] {
         return Batch{torch::randint(0, 32, {4, 5}, at::kLong), classes(4)};
       }},
      {"complex", [] { return std::make_shared<ComplexImpl>(); }, regress<ComplexImpl>,
       [] {
         return Batch{torch::randn({3, 16}), torch::randn({3, 16})};
       }},
  };
  return all;
}

class ModelsTest : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ModelsTest, ReplaysWithTheBitsOfTheEagerStep) {
  const Kind& kind = kinds()[GetParam()];
  torch::manual_seed(11);
  const auto eager = kind.make();
  torch::manual_seed(11);
  const auto taped = kind.make();
  const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
  torch::optim::SGD eager_optimizer(eager->parameters(), options),
      optimizer(taped->parameters(), options);
  const auto step = [&](nn::Module& module, torch::optim::SGD& sgd, const at::Tensor& x,
                        const at::Tensor& y) {
    sgd.zero_grad();
    at::Tensor loss = kind.loss(module, x, y);
    loss.backward();
    sgd.step();
    return loss;
  };
  Session session(quiet());
  session.track("model", taped).track("optimizer", optimizer);
  auto train = session.wrap(
      "train", [&](at::Tensor x, at::Tensor y) { return step(*taped, optimizer, x, y); });
  for (std::uint64_t i = 0; i < 20; ++i) {
    torch::manual_seed(1000 + i);
    const Batch batch = kind.batch();
    torch::manual_seed(i);
    const at::Tensor expected = step(*eager, eager_optimizer, batch.images, batch.labels);
    torch::manual_seed(i);
    const at::Tensor found = train(batch.images, batch.labels);
    ASSERT_TRUE(same_bits(expected, found)) << "step " << i << "\n" << train.explain();
    ASSERT_TRUE(all_same_bits(visible_state(*eager), visible_state(*taped))) << "step " << i << "\n"
                                                                             << train.explain();
  }
  EXPECT_GE(train.stats().replayed, 14U) << train.explain();
}

INSTANTIATE_TEST_SUITE_P(Kinds, ModelsTest, ::testing::Range<std::size_t>(0, kinds().size()),
                         [](const auto& info) { return kinds()[info.param].name; });

TEST(TwoOptimizersTest, AnAdversarialPairInOneStepReplays) {
  struct Pair {
    nn::Linear generator{4, 8}, critic{8, 1};
    torch::optim::SGD first{generator->parameters(), torch::optim::SGDOptions(0.05).momentum(0.5)};
    torch::optim::SGD second{critic->parameters(), torch::optim::SGDOptions(0.05)};
    at::Tensor step(const at::Tensor& noise, const at::Tensor& real) {
      second.zero_grad();
      at::Tensor fake = torch::tanh(generator(noise));
      at::Tensor loss = critic(fake.detach()).mean() - critic(real).mean();
      loss.backward();
      second.step();
      first.zero_grad();
      at::Tensor other = -critic(fake).mean();
      other.backward();
      first.step();
      return loss + other.detach();
    }
  };
  torch::manual_seed(2);
  Pair eager;
  torch::manual_seed(2);
  Pair taped;
  Session session(quiet());
  session.track("generator", taped.generator).track("critic", taped.critic);
  session.track("first", taped.first).track("second", taped.second);
  auto train = session.wrap("train", [&](at::Tensor a, at::Tensor b) { return taped.step(a, b); });
  for (int i = 0; i < 14; ++i) {
    const at::Tensor noise = torch::randn({5, 4}), real = torch::randn({5, 8});
    ASSERT_TRUE(same_bits(eager.step(noise, real), train(noise, real))) << train.explain();
    ASSERT_TRUE(all_same_bits(visible_state(*eager.generator), visible_state(*taped.generator)));
    ASSERT_TRUE(all_same_bits(visible_state(*eager.critic), visible_state(*taped.critic)));
  }
  EXPECT_GE(train.stats().replayed, 9U) << train.explain();
}

}  // namespace
}  // namespace steptape::tests
