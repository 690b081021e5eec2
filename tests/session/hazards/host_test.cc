#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/session/hazards/hazard.h"

/// What the host reads from tensors, and what it decides on its own.
namespace steptape::tests {
namespace {

struct Reporting : SgdTwin {
  double step(at::Tensor images, at::Tensor labels) {
    return SgdTwin::step(images, labels).item<double>();
  }
};

TEST(HostHazards, LossItemReturned) {
  Hazard<Reporting> hazard("loss_item_returned");
  hazard.train(150);
  hazard.expect_replays();
}

struct ClippedByNorm : SgdTwin {
  std::tuple<at::Tensor, double> step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    at::Tensor loss = loss_of(model, images, labels);
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(model->parameters(), 0.5);
    optimizer.step();
    return {loss, norm};
  }
};

TEST(HostHazards, ClippingByNorm) {
  Hazard<ClippedByNorm> hazard("clipping_by_norm");
  hazard.train(150);
  hazard.expect_replays();
}

struct ClippedByValue : SgdTwin {
  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    at::Tensor loss = loss_of(model, images, labels);
    loss.backward();
    torch::nn::utils::clip_grad_value_(model->parameters(), 0.01);
    optimizer.step();
    return loss;
  }
};

TEST(HostHazards, ClippingByValue) {
  Hazard<ClippedByValue> hazard("clipping_by_value");
  hazard.train(150);
  hazard.expect_replays();
}

/// Logs every loss and gives up at the first that is not a number, after the update.
struct Asserting : SgdTwin {
  Session* session = nullptr;
  std::vector<float> log;

  void track(Session& session_of_twin) {
    SgdTwin::track(session_of_twin);
    session = &session_of_twin;
  }
  void look_at(const at::Tensor& loss) {
    log.push_back(loss.item<float>());
    if (std::isnan(log.back())) throw std::runtime_error("the loss is not a number");
  }
  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    at::Tensor loss = loss_of(model, images, labels);
    if (session != nullptr) {
      session->observe(loss, [this](const at::Tensor& value) { look_at(value); });
    }
    step_on(loss);
    if (session == nullptr) look_at(loss);
    return loss;
  }
};

TEST(HostHazards, NanAssertionThroughObserve) {
  Hazard<Asserting> hazard("nan_assertion");
  hazard.train(150);
  const Batch batch = make_batches(1)[0];
  hazard.step_that_throws(at::full_like(batch.images, NAN), batch.labels);
  ASSERT_EQ(hazard.taped.log.size(), 151U);
  for (int i = 0; i < 150; ++i) EXPECT_EQ(hazard.taped.log[i], hazard.eager.log[i]) << i;
  EXPECT_TRUE(std::isnan(hazard.taped.log.back()));
  hazard.expect_replays();
}

/// Throws bad batches away, by a look at the loss.
struct Picky : SgdTwin {
  int thrown_away = 0;

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    at::Tensor loss = loss_of(model, images, labels);
    if (loss.item<float>() > 4) {
      ++thrown_away;
      return loss.detach();
    }
    return step_on(loss);
  }
};

TEST(HostHazards, EarlyExitOnALoss) {
  Hazard<Picky> hazard("early_exit");
  const std::vector<Batch> batches = make_batches(150);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const at::Tensor images = i % 30 == 20 ? batches[i].images * 100 : batches[i].images;
    hazard.step(images, batches[i].labels);
  }
  EXPECT_GE(hazard.eager.thrown_away, 3);
  hazard.expect_replays_or({RefusalCode::kHostRead});
}

/// Of a depth that the host draws anew in each step.
struct Stochastic : SgdTwin {
  std::mt19937 engine{kSeed};
  static constexpr unsigned kSeed = 481;  // no two of the first draws in a row are equal

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    at::Tensor hidden = images;
    for (auto depth = engine() % 5; depth > 0; --depth) hidden = torch::tanh(hidden);
    return step_on(loss_of(model, hidden, labels));
  }
};

TEST(HostHazards, BranchOnAHostRandomNumber) {
  Hazard<Stochastic> hazard("branch_on_host_random");
  hazard.train(100);
  hazard.expect_replays_or({RefusalCode::kUnstableOpStream});
}

/// Takes its batch from the whole data set, by an index that the loop moves.
struct Indexing : SgdTwin {
  at::Tensor images = make_batches(1, 256)[0].images;
  at::Tensor labels = make_batches(1, 256)[0].labels;
  std::int64_t index = 0;

  at::Tensor step() {
    return SgdTwin::step(images.narrow(0, 16 * index, 16), labels.narrow(0, 16 * index, 16));
  }
};

TEST(HostHazards, DataSetSlicedByACapturedIndex) {
  Hazard<Indexing> hazard("data_set_sliced");
  for (int i = 0; i < 120; ++i) {
    hazard.both([&](Indexing& twin) { twin.index = i % 16; });
    hazard.step();
  }
  hazard.expect_replays_or({RefusalCode::kUnstableOpStream, RefusalCode::kScalarVaries});
}

/// Looks, after its BatchNorm, whether the batch was any good.
struct Careful : SgdTwin {
  Careful() : SgdTwin({true, 0}) {}

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad(/*set_to_none=*/false);
    at::Tensor loss = loss_of(model, images, labels);
    if ((images.abs().max() > 100).item<bool>()) return loss.detach();
    return step_on(loss);
  }
};

TEST(HostHazards, BatchNormAfterARolledBackStep) {
  Hazard<Careful> hazard("batch_norm_rolled_back");
  const std::vector<Batch> batches = make_batches(200);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const at::Tensor images = i % 50 == 40 ? batches[i].images * 1000 : batches[i].images;
    hazard.step(images, batches[i].labels);
  }
  EXPECT_EQ(hazard.taped.model->norm->num_batches_tracked.item<std::int64_t>(), 200);
  hazard.expect_replays_or({RefusalCode::kHostRead});
}

}  // namespace
}  // namespace steptape::tests
