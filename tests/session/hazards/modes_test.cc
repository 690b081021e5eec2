#include <gtest/gtest.h>

#include "tests/session/hazards/hazard.h"

/// Modes, options, seeds and shapes that change while the loop runs.
namespace steptape::tests {
namespace {

struct Dropping : SgdTwin {
  Dropping() : SgdTwin({false, 0.5}) {}
};

struct Norming : SgdTwin {
  Norming() : SgdTwin({true, 0}) {}
};

TEST(ModeHazards, DropoutReseeded) {
  Hazard<Dropping> hazard("dropout_reseeded");
  hazard.train(150, [&](int i) {
    if (i % 7 == 3) hazard.both([&](Dropping&) { torch::manual_seed(i / 14); });
  });
  hazard.expect_replays();
}

// options of a module are plain host state: a guard makes them a fact
TEST(ModeHazards, DropoutProbability) {
  Hazard<Dropping> hazard("dropout_probability");
  hazard.session.guard("p", [&] { return hazard.taped.model->dropout->options.p(); });
  hazard.train(300, [&](int i) {
    if (i % 100 != 99) return;
    hazard.both([&](Dropping& twin) { twin.model->dropout->options.p(i == 199 ? 0.5 : 0.25); });
  });
  hazard.expect_replays();
}

TEST(ModeHazards, BatchNormMomentum) {
  Hazard<Norming> hazard("batch_norm_momentum");
  hazard.session.guard("momentum", [&] { return *hazard.taped.model->norm->options.momentum(); });
  hazard.train(200, [&](int i) {
    if (i == 100) hazard.both([](Norming& twin) { twin.model->norm->options.momentum(0.01); });
  });
  hazard.expect_replays();
}

TEST(ModeHazards, BatchNormCountsItsBatches) {
  Hazard<Norming> hazard("num_batches_tracked");
  hazard.train(150);
  EXPECT_EQ(hazard.taped.model->norm->num_batches_tracked.item<std::int64_t>(), 150);
  hazard.expect_replays();
}

TEST(ModeHazards, LastBatchSmaller) {
  Hazard<Norming> hazard("last_batch_smaller");
  const std::vector<Batch> whole = make_batches(9), last = make_batches(1, 7);
  for (int i = 0; i < 200; ++i) {
    const Batch& batch = i % 10 == 9 ? last[0] : whole[static_cast<std::size_t>(i % 10)];
    hazard.step(batch.images, batch.labels);
  }
  hazard.expect_replays();
}

struct Accumulating : SgdTwin {
  at::Tensor step(at::Tensor images, at::Tensor labels, bool is_last) {
    at::Tensor loss = loss_of(model, images, labels);
    (loss / 4).backward();
    if (is_last) {
      optimizer.step();
      optimizer.zero_grad();
    }
    return loss;
  }
};

TEST(ModeHazards, GradientAccumulation) {
  Hazard<Accumulating> hazard("gradient_accumulation");
  const std::vector<Batch> batches = make_batches(240);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    hazard.step(batches[i].images, batches[i].labels, i % 4 == 3);
  }
  hazard.expect_replays();
}

struct Scoring : SgdTwin {
  Scoring() : SgdTwin({true, 0.25}) {}

  at::Tensor score(at::Tensor images) {
    const torch::NoGradGuard no_grad;
    return model->forward(images);
  }
};

TEST(ModeHazards, TrainAndEvalAlternate) {
  Hazard<Scoring> hazard("train_and_eval");
  const auto eval = hazard.wrap("eval", &Scoring::score);
  for (const Batch& batch : make_batches(120)) {
    hazard.both([](Scoring& twin) { twin.model->train(); });
    hazard.step(batch.images, batch.labels);
    hazard.both([](Scoring& twin) { twin.model->eval(); });
    hazard.step_of(eval, batch.images);
  }
  hazard.expect_replays();
}

}  // namespace
}  // namespace steptape::tests
