#include <gtest/gtest.h>

#include "tests/session/hazards/hazard.h"

/// A step that throws half-way, in any of its three parts: the twins end up alike, and the next
/// step replays.
namespace steptape::tests {
namespace {

/// Zeroes gradients in place, so that a step that threw leaves an entry that a plan knows.
struct Plain : SgdTwin {
  Plain() : SgdTwin({true, 0.25}) {}

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad(/*set_to_none=*/false);
    return step_on(loss_of(model, images, labels));
  }
};

template <typename T, typename Step>
void expect_next_replays(Hazard<T>& hazard, Step step) {
  const std::uint64_t before = hazard.stats().replayed;
  step();
  EXPECT_EQ(hazard.stats().replayed, before + 1) << hazard.session.explain();
}

/// Of a kernel: on a GPU it ends the program.
const char* const kAssertion = "an index out of range is no exception on a GPU";

TEST(ExceptionHazards, InForward) {
  if (device().is_cuda()) GTEST_SKIP() << kAssertion;
  Hazard<Plain> hazard("exception_in_forward");
  const Batch batch = make_batches(1)[0];
  for (int i = 0; i < 3; ++i) {
    hazard.train(40);
    hazard.step_that_throws(batch.images, batch.labels + 1000);
    expect_next_replays(hazard, [&] { hazard.step(batch.images, batch.labels); });
  }
  hazard.expect_replays();
}

/// The identity, whose gradient is put into another order.
struct Reordered : torch::autograd::Function<Reordered> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, at::Tensor x,
                            at::Tensor order) {
    context->save_for_backward({order});
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0].index_select(0, context->get_saved_variables()[0]), at::Tensor()};
  }
};

struct Reordering : Plain {
  at::Tensor step(at::Tensor images, at::Tensor labels, at::Tensor order) {
    optimizer.zero_grad(/*set_to_none=*/false);
    const at::Tensor logits = Reordered::apply(model->forward(images), order);
    return step_on(torch::nn::functional::cross_entropy(logits, labels));
  }
};

TEST(ExceptionHazards, InBackward) {
  if (device().is_cuda()) GTEST_SKIP() << kAssertion;
  Hazard<Reordering> hazard("exception_in_backward");
  const Batch batch = make_batches(1)[0];
  const at::Tensor order = at::arange(16, device()).flip(0);
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 40; ++k) hazard.step(batch.images, batch.labels, order);
    hazard.step_that_throws(batch.images, batch.labels, order + 1000);
    expect_next_replays(hazard, [&] { hazard.step(batch.images, batch.labels, order); });
  }
  hazard.expect_replays();
}

/// Exchanges the momentum of its last parameter for one that does not fit, and back.
struct Unfitting : Plain {
  at::Tensor other = at::zeros({7}, device());

  void exchange() {
    auto& state = static_cast<torch::optim::SGDParamState&>(
        *optimizer.state().at(model->fc2->bias.unsafeGetTensorImpl()));
    const at::Tensor momentum = state.momentum_buffer();
    state.momentum_buffer(other);
    other = momentum;
  }
};

// all parameters but the last are updated when it throws
TEST(ExceptionHazards, InTheOptimizer) {
  Hazard<Unfitting> hazard("exception_in_optimizer");
  const Batch batch = make_batches(1)[0];
  for (int i = 0; i < 3; ++i) {
    hazard.train(40);
    hazard.both([](Unfitting& twin) { twin.exchange(); });
    hazard.step_that_throws(batch.images, batch.labels);
    hazard.both([](Unfitting& twin) { twin.exchange(); });
    expect_next_replays(hazard, [&] { hazard.step(batch.images, batch.labels); });
  }
  hazard.expect_replays();
}

}  // namespace
}  // namespace steptape::tests
