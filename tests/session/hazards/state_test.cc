#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <sstream>

#include "tests/session/hazards/hazard.h"

/// Optimizers, parameters and results that change or live on between the steps.
namespace steptape::tests {
namespace {

/// Keeps the moments and step counts of some step and goes back to them.
struct Resuming : AdamTwin {
  std::vector<at::Tensor> moments;
  std::vector<std::int64_t> steps;

  torch::optim::AdamParamState& state_of(const at::Tensor& parameter) {
    return static_cast<torch::optim::AdamParamState&>(
        *optimizer.state().at(parameter.unsafeGetTensorImpl()));
  }
  void keep() {
    for (const at::Tensor& parameter : model->parameters()) {
      const auto& state = state_of(parameter);
      steps.push_back(state.step());
      moments.push_back(state.exp_avg().clone());
      moments.push_back(state.exp_avg_sq().clone());
    }
  }
  void go_back() {
    const std::vector<at::Tensor> parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto& state = state_of(parameters[i]);
      state.step(steps[i]);
      state.exp_avg().copy_(moments[2 * i]);
      state.exp_avg_sq().copy_(moments[2 * i + 1]);
    }
  }
};

TEST(StateHazards, OptimizerStateLoadedInPlace) {
  Hazard<Resuming> hazard("state_loaded_in_place");
  hazard.train(250, [&](int i) {
    if (i == 50) hazard.both([](Resuming& twin) { twin.keep(); });
    if (i == 100 || i == 180) hazard.both([](Resuming& twin) { twin.go_back(); });
  });
  hazard.expect_replays();
}

struct Reloading : AdamTwin {
  std::string file;

  void save() {
    std::ostringstream stream;
    torch::save(optimizer, stream);
    file = stream.str();
  }
  void load() {
    std::istringstream stream(file);
    torch::load(optimizer, stream);
  }
};

TEST(StateHazards, OptimizerStateLoadedByReplacement) {
  Hazard<Reloading> hazard("state_loaded_by_replacement");
  hazard.train(300, [&](int i) {
    if (i == 50) hazard.both([](Reloading& twin) { twin.save(); });
    if (i == 100 || i == 200) hazard.both([](Reloading& twin) { twin.load(); });
  });
  hazard.expect_replays();
}

TEST(StateHazards, ParameterFrozenAndUnfrozen) {
  Hazard<SgdTwin> hazard("parameter_frozen");
  hazard.train(300, [&](int i) {
    if (i % 80 != 79) return;
    hazard.both([&](SgdTwin& twin) {
      for (at::Tensor& parameter : twin.model->fc1->parameters()) {
        parameter.set_requires_grad(i / 80 % 2 == 1);
      }
    });
  });
  hazard.expect_replays();
}

/// Trains its second layer, and later the first too, at a pace of its own.
struct Growing : SgdTwin {
  Growing() { optimizer.param_groups()[0].params() = model->fc2->parameters(); }

  void grow() {
    optimizer.add_param_group(torch::optim::OptimizerParamGroup(
        model->fc1->parameters(),
        std::make_unique<torch::optim::SGDOptions>(
            torch::optim::SGDOptions(0.05).momentum(0.8).weight_decay(0.01))));
  }
  at::Tensor step(at::Tensor images, at::Tensor labels) {
    model->zero_grad();
    return step_on(loss_of(model, images, labels));
  }
};

TEST(StateHazards, ParameterGroupAdded) {
  Hazard<Growing> hazard("parameter_group_added");
  hazard.train(240, [&](int i) {
    if (i == 100) hazard.both([](Growing& twin) { twin.grow(); });
  });
  hazard.expect_replays();
}

/// A generator and a critic in one model, each with an optimizer.
struct Gan {
  struct ModelImpl : torch::nn::Module {
    torch::nn::Linear generator = register_module("generator", torch::nn::Linear(8, 64));
    torch::nn::Linear critic = register_module("critic", torch::nn::Linear(64, 1));
  };
  std::shared_ptr<ModelImpl> model = (torch::manual_seed(1), placed(std::make_shared<ModelImpl>()));
  torch::optim::Adam makes{model->generator->parameters(), torch::optim::AdamOptions(1e-3)};
  torch::optim::Adam judges{model->critic->parameters(), torch::optim::AdamOptions(2e-3)};

  void track(Session& session) {
    session.track("model", model).track("makes", makes).track("judges", judges);
  }
  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> tensors = visible_state(*model);
    for (const auto* optimizer : {&makes, &judges}) {
      for (at::Tensor& tensor : optimizer_state(*optimizer)) tensors.push_back(tensor);
    }
    return tensors;
  }
  at::Tensor loss(const at::Tensor& images, double truth) {
    const at::Tensor logits = model->critic->forward(images);
    return torch::binary_cross_entropy_with_logits(logits, at::full_like(logits, truth));
  }
  std::tuple<at::Tensor, at::Tensor> step(at::Tensor images, at::Tensor /*labels*/) {
    judges.zero_grad();
    const at::Tensor made = torch::tanh(model->generator->forward(at::randn({16, 8}, device())));
    at::Tensor judged = loss(images, 1) + loss(made.detach(), 0);
    judged.backward();
    judges.step();
    makes.zero_grad();
    at::Tensor fooled = loss(made, 1);
    fooled.backward();
    makes.step();
    return {judged, fooled};
  }
};

TEST(StateHazards, TwoOptimizersOverOneModel) {
  Hazard<Gan> hazard("two_optimizers");
  hazard.train(200);
  hazard.expect_replays();
}

TEST(StateHazards, ResultsCollectedInAList) {
  Hazard<SgdTwin> hazard("results_in_a_list");
  const Batch batch = make_batches(1)[0];
  std::vector<at::Tensor> expected, found;
  for (int i = 0; i < 150; ++i) {
    auto [eager, taped] = hazard.step(batch.images, batch.labels);
    expected.push_back(eager.detach().clone());
    found.push_back(taped);
  }
  EXPECT_TRUE(all_same_bits(expected, found));
  hazard.expect_replays();
}

TEST(StateHazards, YesterdaysGradientKept) {
  Hazard<SgdTwin> hazard("yesterdays_gradient");
  const auto gradient = [](SgdTwin& twin) { return twin.model->fc1->weight.grad(); };
  std::vector<at::Tensor> kept, copies;
  hazard.train(150, [&](int i) {
    if (i == 0) return;
    kept.push_back(gradient(hazard.taped));
    copies.push_back(gradient(hazard.eager).clone());
  });
  EXPECT_TRUE(all_same_bits(copies, kept));
  hazard.expect_replays();
}

// LibTorch's Adam moves the parameters' version counters; its SGD writes through data() and does
// not
TEST(StateHazards, BackwardThroughAStaleGraphRaises) {
  Hazard<AdamTwin> hazard("stale_graph");
  const std::vector<Batch> batches = make_batches(160);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches[i];
    const bool is_tried = i % 20 == 10;
    std::vector<at::Tensor> stale;
    if (is_tried) {
      hazard.both(
          [&](AdamTwin& twin) { stale.push_back(twin.model->forward(batch.images).sum()); });
    }
    hazard.step(batch.images, batch.labels);
    for (const at::Tensor& loss : stale) EXPECT_THROW(loss.backward(), c10::Error) << i;
  }
  hazard.expect_replays();
}

TEST(StateHazards, ModelToAnotherDtype) {
  Hazard<SgdTwin> hazard("model_to_dtype");
  const Batch single = make_batches(1)[0];
  const Batch twice = {single.images.to(at::kDouble), single.labels};
  for (int i = 0; i < 240; ++i) {
    if (i == 100) hazard.both([](SgdTwin& twin) { twin.model->to(at::kDouble); });
    const Batch& batch = i < 100 ? single : twice;
    hazard.step(batch.images, batch.labels);
  }
  hazard.expect_replays_or({RefusalCode::kReboundTensor});
}

}  // namespace
}  // namespace steptape::tests
