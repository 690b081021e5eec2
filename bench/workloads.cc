#include "workloads.h"

#include <ATen/ATen.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <utility>

#include "examples/digits_cnn/model.h"

namespace steptape::bench {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kClasses = 10;

at::Tensor labels_of(std::int64_t count, std::int64_t classes) {
  return at::arange(count).remainder(classes);
}

template <typename Holder>
Trainee trainee_of(Holder model, at::Tensor inputs, at::Tensor labels) {
  return {model.ptr(), nullptr, std::move(inputs), std::move(labels),
          [model](const at::Tensor& x) mutable { return model->forward(x); }};
}

/// `layers` layers of one width with ReLU between them, and a classifier.
Trainee mlp(std::int64_t layers, std::int64_t width, std::int64_t batch) {
  nn::Sequential model;
  for (std::int64_t i = 0; i < layers; ++i) {
    model->push_back(nn::Linear(width, width));
    model->push_back(nn::ReLU());
  }
  model->push_back(nn::Linear(width, kClasses));
  return trainee_of(model, at::randn({batch, width}), labels_of(batch, kClasses));
}

constexpr std::int64_t kSteps = 24, kHidden = 64, kSequences = 8;

/// A GRU cell that the program unrolls itself.
struct GruImpl : nn::Module {
  GruImpl() {
    cell = register_module("cell", nn::GRUCell(kHidden, kHidden));
    head = register_module("head", nn::Linear(kHidden, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor state = at::zeros({x.size(1), kHidden}, x.options());
    for (std::int64_t t = 0; t < x.size(0); ++t) state = cell->forward(x[t], state);
    return head->forward(state);
  }
  nn::GRUCell cell{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Gru);

struct LstmImpl : nn::Module {
  LstmImpl() {
    lstm = register_module("lstm", nn::LSTM(kHidden, kHidden));
    head = register_module("head", nn::Linear(kHidden, kClasses));
  }
  at::Tensor forward(const at::Tensor& x) {
    return head->forward(std::get<0>(lstm->forward(x))[x.size(0) - 1]);
  }
  nn::LSTM lstm{nullptr};
  nn::Linear head{nullptr};
};
TORCH_MODULE(Lstm);

constexpr std::int64_t kHeads = 4, kLength = 32, kTexts = 8, kVocabulary = 128;

/// Attention and an MLP, each after a layer norm.
struct BlockImpl : nn::Module {
  explicit BlockImpl(std::int64_t width) {
    norm1 = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})));
    norm2 = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    out = register_module("out", nn::Linear(width, width));
    up = register_module("up", nn::Linear(width, 4 * width));
    down = register_module("down", nn::Linear(4 * width, width));
  }
  at::Tensor forward(at::Tensor x) {
    const std::int64_t texts = x.size(0), length = x.size(1), width = x.size(2);
    const auto parts = qkv->forward(norm1->forward(x)).chunk(3, -1);
    const auto heads = [&](const at::Tensor& part) {
      return part.reshape({texts, length, kHeads, width / kHeads}).transpose(1, 2);
    };
    const at::Tensor mixed = at::scaled_dot_product_attention(
        heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, 0.0, /*is_causal=*/true);
    x = x + out->forward(mixed.transpose(1, 2).reshape({texts, length, width}));
    return x + down->forward(at::gelu(up->forward(norm2->forward(x))));
  }
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  GptImpl(std::int64_t width, std::int64_t layers) {
    tokens = register_module("tokens", nn::Embedding(kVocabulary, width));
    places = register_module("places", nn::Embedding(kLength, width));
    blocks = register_module("blocks", nn::ModuleList());
    for (std::int64_t i = 0; i < layers; ++i) blocks->push_back(Block(width));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})));
    head = register_module("head", nn::Linear(width, kVocabulary));
    where = register_buffer("where", at::arange(kLength));
  }
  at::Tensor forward(const at::Tensor& texts) {
    at::Tensor x = tokens->forward(texts) + places->forward(where);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head->forward(norm->forward(x)).flatten(0, 1);
  }
  nn::Embedding tokens{nullptr}, places{nullptr};
  nn::ModuleList blocks{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
  at::Tensor where;
};
TORCH_MODULE(Gpt);

Trainee gpt(std::int64_t width, std::int64_t layers) {
  return trainee_of(Gpt(width, layers), at::randint(kVocabulary, {kTexts, kLength}, at::kLong),
                    labels_of(kTexts * kLength, kVocabulary));
}

Trainee conv() {
  nn::Sequential model;
  std::int64_t channels = 3;
  for (const std::int64_t width : {16, 32, 32}) {
    model->push_back(nn::Conv2d(nn::Conv2dOptions(channels, width, 3).padding(1)));
    model->push_back(nn::BatchNorm2d(width));
    model->push_back(nn::ReLU());
    model->push_back(nn::MaxPool2d(2));
    channels = width;
  }
  model->push_back(nn::Flatten());
  model->push_back(nn::Linear(32 * 4 * 4, kClasses));
  return trainee_of(model, at::randn({16, 3, 32, 32}), labels_of(16, kClasses));
}

/// What a control loop asks in each of its steps: no gradients, one observation or some.
Trainee policy(std::int64_t batch) {
  nn::Sequential model(nn::Linear(8, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(),
                       nn::Linear(64, 4));
  return trainee_of(model, at::randn({batch, 8}), at::Tensor());
}

/// The classifier of examples/digits_cnn, in evaluation.
Trainee digits_cnn() {
  digits_cnn::Net model;
  model->eval();
  return trainee_of(model, at::rand({1, digits::kSide * digits::kSide}), at::Tensor());
}

struct Model {
  const char* name;
  Trainee (*make)();
};

constexpr Model kModels[] = {
    {"mlp4x32", [] { return mlp(4, 32, 32); }},
    {"mlp4x128", [] { return mlp(4, 128, 32); }},
    {"mlp4x1024", [] { return mlp(4, 1024, 128); }},
    {"mlp100x16", [] { return mlp(100, 16, 32); }},
    {"gru24",
     [] {
       return trainee_of(Gru(), at::randn({kSteps, kSequences, kHidden}),
                         labels_of(kSequences, kClasses));
     }},
    {"lstm24",
     [] {
       return trainee_of(Lstm(), at::randn({kSteps, kSequences, kHidden}),
                         labels_of(kSequences, kClasses));
     }},
    {"gpt64x2", [] { return gpt(64, 2); }},
    {"gpt256x4", [] { return gpt(256, 4); }},
    {"conv3", conv},
};

std::shared_ptr<torch::optim::Optimizer> optimizer_of(const std::string& name,
                                                      const torch::nn::Module& model) {
  constexpr double kRate = 1e-3;
  if (name == "sgd") {
    return std::make_shared<torch::optim::SGD>(model.parameters(),
                                               torch::optim::SGDOptions(kRate).momentum(0.9));
  }
  if (name == "adam") return std::make_shared<torch::optim::Adam>(model.parameters(), kRate);
  return std::make_shared<torch::optim::AdamW>(model.parameters(), kRate);
}

}  // namespace

at::Tensor Trainee::step(const at::Tensor& x, const at::Tensor& y) const {
  if (optimizer == nullptr) {
    const at::NoGradGuard without;
    return forward(x);
  }
  optimizer->zero_grad();
  at::Tensor loss = at::cross_entropy_loss(forward(x), y);
  loss.backward();
  optimizer->step();
  return loss;
}

std::vector<Workload> workloads() {
  std::vector<Workload> all;
  for (const Model& model : kModels) {
    for (const char* optimizer : {"sgd", "adam", "adamw"}) {
      all.push_back({model.name, optimizer, [model, optimizer] {
                       at::manual_seed(1);
                       Trainee trainee = model.make();
                       trainee.optimizer = optimizer_of(optimizer, *trainee.model);
                       return trainee;
                     }});
    }
  }
  all.push_back({"policy", "none", [] {
                   at::manual_seed(1);
                   return policy(1);
                 }});
  return all;
}

std::vector<Workload> served_workloads() {
  constexpr Model kServed[] = {
      {"policy, batch 1", [] { return policy(1); }},
      {"policy, batch 16", [] { return policy(16); }},
      {"digits_cnn, batch 1", digits_cnn},
      {"gpt64x2", [] { return gpt(64, 2); }},
  };
  std::vector<Workload> all;
  for (const Model& model : kServed) {
    all.push_back({model.name, "none", [model] {
                     at::manual_seed(1);
                     return model.make();
                   }});
  }
  return all;
}

}  // namespace steptape::bench
