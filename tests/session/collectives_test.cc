#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

using testing::HasSubstr;

/// Two processes that always hold the same: a sum is twice what this one gives. It is there a
/// moment after it was asked for, done by another thread, as Gloo's is.
class Doubling final : public c10d::Backend {
 public:
  Doubling() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "doubling"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    const int number = issued++;
    auto work = c10::make_intrusive<Sum>(tensors[0], number == fails_at);
    work->start();
    return work;
  }

  std::atomic<int> issued = 0;
  int fails_at = -1;  ///< the collective of this number, counted from 0

 private:
  class Sum final : public c10d::Work {
   public:
    Sum(at::Tensor tensor, bool fails) : tensor_(std::move(tensor)), fails_(fails) {}
    ~Sum() override {
      if (thread_.joinable()) thread_.join();
    }
    void start() {
      thread_ = std::thread([this] {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        if (fails_) return finish(std::make_exception_ptr(std::runtime_error("a peer has died")));
        float* elements = tensor_.mutable_data_ptr<float>();
        for (std::int64_t i = 0; i < tensor_.numel(); ++i) elements[i] *= 2;
        finish();
      });
    }

   private:
    at::Tensor tensor_;
    bool fails_;
    std::thread thread_;
  };
};

/// Steps over a parameter, each beside the same without Steptape, in a group of its own.
class CollectivesTest : public ::testing::Test {
 protected:
  struct Training {
    c10::intrusive_ptr<Doubling> backend = c10::make_intrusive<Doubling>();
    c10::intrusive_ptr<c10d::ProcessGroup> group;
    at::Tensor weight = at::full({4}, 0.5);
    bool is_eager;

    explicit Training(bool eager) : is_eager(eager) {
      group = make_group(eager ? "eager" : "taped", backend);
    }
    ~Training() { c10d::unregister_process_group(group->getGroupName()); }
    Training(const Training&) = delete;
    Training& operator=(const Training&) = delete;

    c10::intrusive_ptr<c10d::Work> sum(const at::Tensor& tensor) const {
      std::vector<at::Tensor> tensors{tensor};
      return group->allreduce(tensors);
    }
  };

  static c10::intrusive_ptr<c10d::ProcessGroup> make_group(const std::string& name,
                                                           c10::intrusive_ptr<Doubling> backend) {
    auto group =
        c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 2);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                      c10::intrusive_ptr<c10d::Backend>(std::move(backend)));
    group->setGroupName(name);
    c10d::register_process_group(name, group);
    return group;
  }

  /// A gradient that is summed, and an update by it.
  static at::Tensor plain(Training& training, const at::Tensor& x) {
    at::Tensor gradient = x * training.weight;
    training.sum(gradient)->wait();
    training.weight.sub_(gradient, 0.1);
    return gradient.sum();
  }

  void expect_equal(const at::Tensor& expected, const at::Tensor& found) {
    EXPECT_TRUE(same_bits(expected, found));
    EXPECT_TRUE(same_bits(eager_.weight, taped_.weight));
    EXPECT_EQ(eager_.backend->issued, taped_.backend->issued);
  }

  /// Calls the step beside its `body`.
  template <typename Body>
  void play(Step<at::Tensor(const at::Tensor&)>& step, Body body, int calls) {
    for (int i = 0; i < calls; ++i) {
      const at::Tensor x = at::rand({4});
      expect_equal(body(eager_, x), step(x));
    }
  }

  static Options audited() {
    Options options = quiet();
    options.verify.rate = 1;
    return options;
  }

  Training eager_{true}, taped_{false};
};

TEST_F(CollectivesTest, AreReplayedAndIssuedOnce) {
  Session session(quiet());
  session.track("weight", taped_.weight);
  auto step = session.wrap("step", [this](const at::Tensor& x) { return plain(taped_, x); });
  play(step, plain, 20);
  EXPECT_GE(step.stats().replayed, 16U) << step.explain();
}

TEST_F(CollectivesTest, AreIssuedOnceWhereEachCallIsAudited) {
  Session session(audited());
  session.track("weight", taped_.weight);
  auto step = session.wrap("step", [this](const at::Tensor& x) { return plain(taped_, x); });
  play(step, plain, 20);
  EXPECT_GE(step.stats().audits, 10U) << step.explain();
  EXPECT_THAT(step.explain(), testing::Not(HasSubstr("diverged")));
}

TEST_F(CollectivesTest, AreAwaitedWhereTheirResultIsUsedAlone) {
  const auto body = [](Training& training, const at::Tensor& x) {
    at::Tensor first = x * training.weight, second = x + 1;
    const auto one = training.sum(first), other = training.sum(second);
    at::Tensor meanwhile = x.exp().sin() * 3;  // in memory that is free, but for what is in flight
    other->wait();
    training.weight.add_(second, 0.01);
    one->wait();
    return first.sum() + meanwhile.sum();
  };
  Session session(quiet());
  session.track("weight", taped_.weight);
  auto step = session.wrap("step", [&](const at::Tensor& x) { return body(taped_, x); });
  play(step, body, 30);
  EXPECT_GE(step.stats().replayed, 26U) << step.explain();
}

/// The step looks at what came back and goes another way: a plan of the first way has issued it.
TEST_F(CollectivesTest, ARunThatIsUndoneHasIssuedForWhatComesAfterIt) {
  const auto body = [](Training& training, const at::Tensor& x) {
    at::Tensor total = x.sum();
    training.sum(total)->wait();
    if (total.item<float>() > 8) training.weight.mul_(0.5);
    at::Tensor gradient = x * training.weight;
    training.sum(gradient)->wait();
    training.weight.sub_(gradient, 0.1);
    return gradient.sum();
  };
  Session session(quiet());
  session.track("weight", taped_.weight);
  auto step = session.wrap("step", [&](const at::Tensor& x) { return body(taped_, x); });
  for (int i = 0; i < 60; ++i) {
    const at::Tensor x = at::full({4}, i % 7 == 3 ? 2. : 0.5);
    expect_equal(body(eager_, x), step(x));
  }
  EXPECT_GE(step.stats().replayed, 20U) << step.explain();
}

TEST_F(CollectivesTest, AFailureIsThatOfTheEagerStep) {
  Session session(quiet());
  session.track("weight", taped_.weight);
  const auto body = [](Training& training, const at::Tensor& x) {
    at::Tensor total = x.sum();
    training.sum(total)->wait();
    training.weight.mul_(0.5);
    at::Tensor gradient = x * training.weight;
    training.sum(gradient)->wait();
    training.weight.sub_(gradient, 0.1);
    return gradient.sum();
  };
  auto step = session.wrap("step", [&](const at::Tensor& x) { return body(taped_, x); });
  play(step, body, 10);
  const std::uint64_t replayed = step.stats().replayed;
  EXPECT_GE(replayed, 6U) << step.explain();
  for (Training* training : {&eager_, &taped_}) {
    training->backend->fails_at = training->backend->issued + 1;
  }
  const at::Tensor x = at::rand({4});
  EXPECT_THROW(body(eager_, x), std::runtime_error);
  try {
    step(x);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a peer has died"));
  }
  EXPECT_TRUE(same_bits(eager_.weight, taped_.weight));
  EXPECT_EQ(eager_.backend->issued, taped_.backend->issued);
}

TEST_F(CollectivesTest, AnotherGroupOfTheNameEndsThePlan) {
  Session session(quiet());
  session.track("weight", taped_.weight);
  auto step = session.wrap("step", [this](const at::Tensor& x) { return plain(taped_, x); });
  const at::Tensor x = at::rand({4});
  for (int i = 0; i < 8; ++i) expect_equal(plain(eager_, x), step(x));
  c10d::unregister_process_group("taped");
  taped_.group = make_group("taped", taped_.backend);
  const std::uint64_t replayed = step.stats().replayed;
  expect_equal(plain(eager_, x), step(x));
  EXPECT_EQ(step.stats().replayed, replayed);
  EXPECT_EQ(step.stats().last_verdict.kind, GuardKind::kProcessGroup);
  EXPECT_EQ(step.stats().last_verdict.text(),
            "process group `taped`: the one that was recorded → another one, or none");
  for (int i = 0; i < 8; ++i) expect_equal(plain(eager_, x), step(x));
  EXPECT_GT(step.stats().replayed, replayed) << step.explain();
}

TEST_F(CollectivesTest, AGroupWithoutANameIsRefused) {
  Session session(quiet());
  session.track("weight", taped_.weight);
  auto step = session.wrap("step", [this](const at::Tensor& x) { return plain(taped_, x); });
  c10d::unregister_process_group("taped");
  play(step, plain, 6);
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_THAT(step.explain(), HasSubstr("takes or gives what no trace can hold"));
  c10d::register_process_group("taped", taped_.group);
}

TEST_F(CollectivesTest, AreRefusedWhereTheyCannotBeServedOrUndone) {
  for (const bool restores : {false, true}) {
    Options options = quiet();
    if (restores) {
      options.on_divergence = OnDivergence::kRestore;
    } else {
      options.interception = Interception::kDispatchMode;
    }
    Session session(options);
    session.track("weight", taped_.weight);
    auto step = session.wrap("step", [this](const at::Tensor& x) { return plain(taped_, x); });
    play(step, plain, 6);
    EXPECT_EQ(step.stats().replayed, 0U);
    EXPECT_THAT(step.explain(), HasSubstr(restores ? "kRestore" : "kFakeKey"));
  }
}

}  // namespace
}  // namespace steptape::tests
