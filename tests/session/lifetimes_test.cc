#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <memory>
#include <optional>
#include <thread>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

TEST(LifetimesTest, AModelThatDiedIsAnErrorNotACrash) {
  auto model = std::make_shared<NetImpl>();
  Session session(quiet());
  session.track("model", model);
  const std::weak_ptr<NetImpl> watched = model;
  auto step = session.wrap("forward", [watched](at::Tensor x) {
    const torch::NoGradGuard no_grad;
    return watched.lock()->forward(x);
  });
  for (int i = 0; i < 5; ++i) step(at::rand({4, 64}));
  model.reset();
  try {
    step(at::rand({4, 64}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_NE(std::string(error.what()).find("model"), std::string::npos) << error.what();
  }
}

TEST(LifetimesTest, AnOptimizerThatDiedIsAnErrorNotACrash) {
  Net model;
  auto optimizer = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1);
  Session session(quiet());
  session.track("model", model).track("optimizer", optimizer);
  auto step =
      session.wrap("train", [&, watched = std::weak_ptr(optimizer)](at::Tensor x, at::Tensor y) {
        auto live = watched.lock();
        live->zero_grad();
        torch::nn::functional::cross_entropy(model->forward(x), y).backward();
        live->step();
      });
  for (const Batch& batch : make_batches(6)) step(batch.images, batch.labels);
  optimizer.reset();
  const Batch batch = make_batches(1)[0];
  EXPECT_THROW(step(batch.images, batch.labels), Error);
}

/// What a program holds when its step replays; each part may go before the others.
struct Holdings {
  Holdings() {
    model = std::make_shared<NetImpl>();
    optimizer = std::make_shared<torch::optim::Adam>(model->parameters());
    batch = std::make_unique<Batch>(make_batches(1)[0]);
    session = std::make_unique<Session>(quiet());
    session->track("model", model).track("optimizer", optimizer);
    step.emplace(
        session->wrap("train", [watched = std::weak_ptr(model), stepped = std::weak_ptr(optimizer)](
                                   at::Tensor x, at::Tensor y) {
          const auto net = watched.lock();
          const auto update = stepped.lock();
          update->zero_grad();
          const auto loss = torch::nn::functional::cross_entropy(net->forward(x), y);
          loss.backward();
          update->step();
          return loss;
        }));
    for (int i = 0; i < 7; ++i) (*step)(batch->images, batch->labels);
    EXPECT_GE(step->stats().replayed, 1U) << step->explain();
    weight = model->fc1->weight.storage().getWeakStorageImpl();
    moment = static_cast<torch::optim::AdamParamState&>(
                 *optimizer->state().at(model->fc1->weight.unsafeGetTensorImpl()))
                 .exp_avg()
                 .storage()
                 .getWeakStorageImpl();
    images = batch->images.storage().getWeakStorageImpl();
  }

  void drop(int part) {
    if (part == 0) model = nullptr;
    if (part == 1) optimizer = nullptr;
    if (part == 2) batch = nullptr;
    if (part == 3) session = nullptr;
    if (part == 4) step.reset();
  }

  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::shared_ptr<NetImpl> model;
  std::shared_ptr<torch::optim::Adam> optimizer;
  std::unique_ptr<Batch> batch;
  std::unique_ptr<Session> session;
  std::optional<Step<at::Tensor(at::Tensor, at::Tensor)>> step;
  std::optional<Weak> weight, moment, images;
};

TEST(LifetimesTest, PartsMayGoInAnyOrderFromAnyThread) {
  std::array<int, 5> order{0, 1, 2, 3, 4};
  int round = 0;
  do {
    Holdings held;
    bool is_elsewhere = round++ % 2 == 0;
    for (const int part : order) {
      const Batch batch = make_batches(1)[0];
      if (is_elsewhere) {
        std::thread([&] { held.drop(part); }).join();
      } else {
        held.drop(part);
      }
      const bool is_whole =
          held.model != nullptr && held.optimizer != nullptr && held.session != nullptr;
      if (held.step && !is_whole) {
        EXPECT_THROW((*held.step)(batch.images, batch.labels), Error);
      } else if (held.step) {
        EXPECT_NO_THROW((*held.step)(batch.images, batch.labels));
      }
      is_elsewhere = !is_elsewhere;
    }
    EXPECT_EQ(held.weight->use_count(), 0U);
    EXPECT_EQ(held.moment->use_count(), 0U);
    EXPECT_EQ(held.images->use_count(), 0U);
  } while (std::ranges::next_permutation(order).found);
  EXPECT_EQ(round, 120);
}

TEST(LifetimesTest, APlanKeepsNoMemoryOfADeadModel) {
  Holdings held;
  held.model = nullptr;
  held.optimizer = nullptr;
  EXPECT_EQ(held.weight->use_count(), 0U);
  EXPECT_EQ(held.moment->use_count(), 0U);
  EXPECT_EQ(held.step->stats().variants.size(), 1U);
  EXPECT_THROW((*held.step)(held.batch->images, held.batch->labels), Error);
  EXPECT_EQ(held.step->stats().variants.size(), 0U);
}

TEST(LifetimesTest, AStepThatOutlivesItsSessionIsAnError) {
  auto session = std::make_unique<Session>(quiet());
  auto step = session->wrap("double", [](at::Tensor x) { return x * 2; });
  step(at::rand({4}));
  session.reset();
  EXPECT_THROW(step(at::rand({4})), Error);
}

TEST(LifetimesTest, ResultsOutliveTheSession) {
  at::Tensor result;
  const at::Tensor x = at::rand({1000});
  {
    Session session(quiet());
    auto step = session.wrap("double", [](at::Tensor t) { return (t * 2).add_(1); });
    for (int i = 0; i < 6; ++i) result = step(x);
    EXPECT_GE(step.stats().replayed, 1U);
  }
  EXPECT_TRUE(same_bits(result, x * 2 + 1));
}

TEST(LifetimesTest, TrackingAfterTheFirstCallIsAnError) {
  Session session(quiet());
  auto step = session.wrap("double", [](at::Tensor x) { return x * 2; });
  step(at::rand({4}));
  Net model;
  EXPECT_THROW(session.track("model", model), Error);
}

TEST(LifetimesTest, NamesAreUnique) {
  Session session(quiet());
  Net model;
  session.track("model", model);
  EXPECT_THROW(session.track("model", model), Error);
  EXPECT_THROW(session.track("", model), Error);
  EXPECT_THROW(session.track("a b", model), Error);
  session.wrap("step", [](at::Tensor x) { return x; });
  EXPECT_THROW(session.wrap("step", [](at::Tensor x) { return x; }), Error);
}

TEST(ThreadsTest, TwoThreadsInStepsOverOneModelIsAnError) {
  Net model;
  std::atomic<bool> inside = false, go_on = false;
  Session first(quiet()), second(quiet());
  first.track("model", model);
  second.track("model", model);
  auto slow = first.wrap("slow", [&](at::Tensor x) {
    inside = true;
    while (!go_on) std::this_thread::yield();
    return x * 2;
  });
  auto quick = second.wrap("quick", [&](at::Tensor x) { return x * 2; });
  std::thread other([&] { slow(at::rand({4})); });
  while (!inside) std::this_thread::yield();
  try {
    quick(at::rand({4}));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_NE(std::string(error.what()).find("model"), std::string::npos) << error.what();
  }
  go_on = true;
  other.join();
  EXPECT_NO_THROW(quick(at::rand({4})));
}

TEST(ThreadsTest, EightThreadsTrainEachWithItsSession) {
  constexpr int kThreads = 8;
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  const std::vector<Batch> batches = make_batches(12);
  std::vector<std::unique_ptr<SgdTraining>> eager, taped;
  for (int i = 0; i < kThreads; ++i) {
    eager.push_back(std::make_unique<SgdTraining>(NetOptions{true, 0}, options));
    taped.push_back(std::make_unique<SgdTraining>(NetOptions{true, 0}, options));
  }
  std::vector<std::uint64_t> replayed(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      at::set_num_threads(1);
      Session session(quiet());
      session.track("model", taped[i]->model).track("optimizer", taped[i]->optimizer);
      auto train =
          session.wrap("train", [&](at::Tensor x, at::Tensor y) { return taped[i]->step(x, y); });
      for (const Batch& batch : batches) train(batch.images, batch.labels);
      replayed[i] = train.stats().replayed;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::thread([&] {
    at::set_num_threads(1);
    for (int i = 0; i < kThreads; ++i) {
      for (const Batch& batch : batches) eager[i]->step(batch.images, batch.labels);
    }
  }).join();
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(all_same_bits(visible_state(*eager[i]->model), visible_state(*taped[i]->model)))
        << i;
    EXPECT_GE(replayed[i], 7U) << i;
  }
}

TEST(ThreadsTest, TwoSessionsAlternateInOneThread) {
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  SgdTraining a({}, options), b({}, options), eager({}, options);
  Session first(quiet()), second(quiet());
  first.track("model", a.model).track("optimizer", a.optimizer);
  second.track("model", b.model).track("optimizer", b.optimizer);
  auto train_a = first.wrap("train", [&](at::Tensor x, at::Tensor y) { return a.step(x, y); });
  auto train_b = second.wrap("train", [&](at::Tensor x, at::Tensor y) { return b.step(x, y); });
  for (const Batch& batch : make_batches(10)) {
    const at::Tensor expected = eager.step(batch.images, batch.labels);
    EXPECT_TRUE(same_bits(expected, train_a(batch.images, batch.labels)));
    EXPECT_TRUE(same_bits(expected, train_b(batch.images, batch.labels)));
  }
  EXPECT_GE(train_a.stats().replayed + train_b.stats().replayed, 12U);
}

TEST(InvalidateTest, FromInsideAStepItEndsThePlansOfAllSteps) {
  Session session(quiet());
  double temperature = 1;
  bool throws = false;
  auto other = session.wrap("other", [&](at::Tensor x) { return x * temperature; });
  auto step = session.wrap("step", [&](at::Tensor x) {
    session.observe(x, [&](const at::Tensor&) {
      if (temperature == 4) session.invalidate("seen");
    });
    if (temperature == 3) session.invalidate("temperature");
    if (throws) throw std::runtime_error("stop");
    return x * temperature;
  });
  const at::Tensor x = at::rand({4});
  for (int i = 0; i < 8; ++i) {
    other(x);
    step(x);
  }
  ASSERT_GT(other.stats().replayed, 0U);
  for (const double next : {3.0, 4.0}) {
    temperature = next;
    session.invalidate("before it");  // so that the function runs
    step(x);
    EXPECT_TRUE(same_bits(other(x), x * next)) << next;
    for (int i = 0; i < 6; ++i) other(x);
  }
  temperature = 3;
  throws = true;
  session.invalidate("before it");
  EXPECT_THROW(step(x), std::runtime_error);
  EXPECT_TRUE(same_bits(other(x), x * 3));
}

}  // namespace
}  // namespace steptape::tests
