#include <ATen/ScalarOps.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/session/hazards/hazard.h"

/// Numbers of the host that move while the tensors go round.
namespace steptape::tests {
namespace {

torch::optim::SGDOptions& sgd(SgdTwin& twin) {
  return options_of<torch::optim::SGDOptions>(twin.optimizer);
}

// constant while Steptape looks, then a cosine
TEST(ScalarHazards, FrozenLearningRate) {
  Hazard<SgdTwin> hazard("frozen_lr");
  hazard.train(200, [&](int i) {
    hazard.both([&](SgdTwin& twin) {
      sgd(twin).lr(0.05 * (1 + std::cos(std::max(i - 20, 0) * M_PI / 180)));
    });
  });
  hazard.expect_replays();
}

// sqrt and pow of the bias corrections first part company at step 1,270
TEST(ScalarHazards, FrozenBiasCorrection) {
  Hazard<AdamTwin> hazard("frozen_bias_correction");
  hazard.train(1500);
  hazard.expect_replays();
}

TEST(ScalarHazards, WeightDecaySetFromZero) {
  Hazard<AdamTwin> hazard("weight_decay_set");
  hazard.train(240, [&](int i) {
    hazard.both([&](AdamTwin& twin) {
      options_of<torch::optim::AdamOptions>(twin.optimizer)
          .weight_decay(i >= 80 && i < 160 ? 0.1 : 0);
    });
  });
  hazard.expect_replays();
}

/// Its loss is multiplied by a number as Python would do it: a 0-dim tensor that no op filled.
struct Tempered : SgdTwin {
  double temperature = 1;

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    at::Tensor number = c10::scalar_to_tensor(temperature);
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return step_on(loss_of(model, images, labels) * number);
  }
};

TEST(ScalarHazards, WrappedNumberThatFollowsAHostValue) {
  Hazard<Tempered> hazard("wrapped_number");
  hazard.session.host("temperature", [&] { return hazard.taped.temperature; });
  hazard.train(200, [&](int i) {
    hazard.both([&](Tempered& twin) { twin.temperature = std::pow(0.99, i + 1); });
  });
  hazard.expect_replays();
}

struct Weighted : SgdTwin {
  double weight = 0.37;

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    return step_on(loss_of(model, images, labels) * weight);
  }
};

TEST(ScalarHazards, CapturedLossWeightThatChangesLate) {
  Hazard<Weighted> hazard("captured_loss_weight");
  hazard.session.host("weight", [&] { return hazard.taped.weight; });
  hazard.train(600, [&](int i) {
    if (i == 500) hazard.both([](Weighted& twin) { twin.weight = 0.21; });
  });
  hazard.expect_replays();
}

/// Warms its loss up by the number of steps made.
struct Warming : SgdTwin {
  int steps = 0;

  double warmth() const { return 1 - 0.9 * std::pow(0.99, steps); }
  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    return step_on(loss_of(model, images, labels) * warmth());
  }
};

// a counter that the step itself advances stands still in replays: the host value advances it
TEST(ScalarHazards, CounterAdvancedInTheStep) {
  Hazard<Warming> hazard("counter_advanced_in_step");
  hazard.session.host("warmth", [&] {
    ++hazard.taped.steps;
    return hazard.taped.warmth();
  });
  hazard.train(200, [&](int) { ++hazard.eager.steps; });
  EXPECT_EQ(hazard.taped.steps, 200);
  hazard.expect_replays();
}

struct Scheduled : SgdTwin {
  torch::optim::StepLR scheduler{optimizer, 1, 0.99};

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    at::Tensor loss = SgdTwin::step(images, labels);
    scheduler.step();
    return loss;
  }
};

TEST(ScalarHazards, SchedulerSteppedInTheStep) {
  Hazard<Scheduled> hazard("scheduler_in_step");
  hazard.train(150);
  hazard.expect_replays_or({RefusalCode::kHyperparameterChanged});
}

/// Applies every k-th gradient, by a counter that nobody else knows of.
struct CountingAccumulation : SgdTwin {
  int k = 2;
  int count = 0;

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    at::Tensor loss = loss_of(model, images, labels);
    (loss / k).backward();
    if (++count % k == 0) {
      optimizer.step();
      optimizer.zero_grad(/*set_to_none=*/false);
    }
    return loss;
  }

  void become(CountingAccumulation& other) {
    const torch::NoGradGuard no_grad;
    k = other.k;
    count = other.count;
    const std::vector<at::Tensor> mine = model->parameters(), theirs = other.model->parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i].copy_(theirs[i]);
      mine[i].mutable_grad() = copied({theirs[i].grad()})[0];
      const auto found = other.optimizer.state().find(theirs[i].unsafeGetTensorImpl());
      if (found == other.optimizer.state().end()) continue;
      auto state = std::make_unique<torch::optim::SGDParamState>();
      state->momentum_buffer(
          static_cast<torch::optim::SGDParamState&>(*found->second).momentum_buffer().clone());
      optimizer.state()[mine[i].unsafeGetTensorImpl()] = std::move(state);
    }
  }
};

bool is_found(const Stats& stats) {
  return has_refusal(stats, RefusalCode::kAuditDiverged) ||
         has_refusal(stats, RefusalCode::kTrialDiverged) ||
         has_refusal(stats, RefusalCode::kUnstableOpStream);
}

// Replays do not advance the counter; audits do, one by one, until it comes round.
TEST(ScalarHazards, AccumulationByAHiddenCounter) {
  Options options;
  options.verify.rate = 0.25;
  options.audit_seed = 7;
  options.on_divergence = OnDivergence::kReport;
  const std::vector<Batch> batches = make_batches(16);
  for (const int k : {2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32, 64}) {
    SCOPED_TRACE(k);
    Hazard<CountingAccumulation> hazard("hidden_counter", options);
    hazard.taped.k = k;
    for (int i = 0; i < 2000 && !is_found(hazard.stats()); ++i) {
      const Batch& batch = batches[static_cast<std::size_t>(i) % batches.size()];
      hazard.step_of_taped(batch.images, batch.labels);
    }
    EXPECT_TRUE(is_found(hazard.stats())) << hazard.session.explain();
    if (k >= 8) {
      EXPECT_TRUE(has_refusal(hazard.stats(), RefusalCode::kAuditDiverged));
    }
    hazard.eager.become(hazard.taped);
    hazard.train(80);  // what is found is eager from there on
  }
  print_outcome("hidden_counter", "refused " + std::string(name_of(RefusalCode::kAuditDiverged)));
}

}  // namespace
}  // namespace steptape::tests
