#include <gtest/gtest.h>

#include "tests/session/hazards/hazard.h"

/// Tensors that are edited, moved or exchanged where the plan does not look.
namespace steptape::tests {
namespace {

/// A copy whose memory starts one element off the 64 bytes that torch's allocator aligns to.
at::Tensor shifted(const at::Tensor& tensor) {
  const at::Tensor memory = at::empty({tensor.numel() + 1}, tensor.options());
  float* first = memory.data_ptr<float>() + 1;
  const at::Tensor copy = at::from_blob(
      first, tensor.sizes(), [memory](void*) {}, tensor.options());
  return copy.copy_(tensor);
}

TEST(MemoryHazards, ParameterRebound) {
  Hazard<SgdTwin> hazard("parameter_rebound");
  hazard.train(200, [&](int i) {
    if (i % 40 != 30) return;
    hazard.both([](SgdTwin& twin) {
      twin.model->fc1->weight.set_data(twin.model->fc1->weight.detach().clone());
    });
  });
  hazard.expect_replays();
}

TEST(MemoryHazards, WeightsEditedByHand) {
  Hazard<SgdTwin> hazard("weights_edited");
  hazard.train(150, [&](int i) {
    if (i % 20 != 15) return;
    hazard.both([](SgdTwin& twin) {
      const torch::NoGradGuard no_grad;
      twin.model->fc1->weight.mul_(0.5);
      poke(twin.model->fc2->bias, 3, 0.25F);
    });
  });
  hazard.expect_replays();
}

/// Reads a tensor that nobody tracked.
struct Masked : SgdTwin {
  at::Tensor mask = at::ones({16, 64}, device());

  at::Tensor step(at::Tensor images, at::Tensor labels) {
    return SgdTwin::step(images * mask, labels);
  }
};

TEST(MemoryHazards, OutsideTensorEditedInPlace) {
  Hazard<Masked> hazard("outside_tensor_edited");
  hazard.train(150, [&](int i) {
    if (i % 10 == 9) hazard.both([](Masked& twin) { twin.mask.mul_(0.9); });
  });
  hazard.expect_replays();
}

TEST(MemoryHazards, OutsideTensorRebound) {
  Hazard<Masked> hazard("outside_tensor_rebound");
  hazard.train(240, [&](int i) {
    if (i % 60 != 50) return;
    hazard.both([&](Masked& twin) { twin.mask = at::full({16, 64}, 1 + 0.1 * i, device()); });
  });
  hazard.expect_replays_or({RefusalCode::kOutsideTensorVaries});
}

TEST(MemoryHazards, MisalignedInput) {
  Hazard<SgdTwin> hazard("misaligned_input");
  const Batch batch = make_batches(1)[0];
  const at::Tensor off = shifted(batch.images);
  for (int i = 0; i < 150; ++i) hazard.step(i % 3 == 2 ? off : batch.images, batch.labels);
  hazard.expect_replays();
}

TEST(MemoryHazards, MisalignedParameter) {
  Hazard<SgdTwin> hazard("misaligned_parameter");
  hazard.train(200, [&](int i) {
    if (i != 100) return;
    hazard.both([](SgdTwin& twin) {
      twin.model->fc1->weight.set_data(shifted(twin.model->fc1->weight.detach()));
    });
  });
  hazard.expect_replays();
}

/// A matrix product and an update in complex numbers, where conj() is a bit and no op.
struct Complex {
  at::Tensor weight = (torch::manual_seed(1), at::randn({8, 8}, at::kComplexFloat).to(device()));

  void track(Session& session) { session.track("weight", weight); }
  std::vector<at::Tensor> state() const { return {weight}; }
  at::Tensor step(at::Tensor x) {
    weight.mul_(0.99);
    return at::mm(x, weight) + x;
  }
};

TEST(MemoryHazards, ATensorAndItsConjugate) {
  Hazard<Complex> hazard("conjugate");
  const at::Tensor x = at::randn({8, 8}, at::kComplexFloat).to(device());
  for (int i = 0; i < 150; ++i) hazard.step(i % 3 == 2 ? x.conj() : x);
  hazard.expect_replays();
}

/// Encodes and decodes with one tensor, registered under two names.
struct Tied {
  struct ModelImpl : torch::nn::Module {
    at::Tensor encoder = register_parameter("encoder", at::randn({16, 64}) * 0.1);
    at::Tensor decoder = register_parameter("decoder", encoder);
  };
  std::shared_ptr<ModelImpl> model = (torch::manual_seed(1), placed(std::make_shared<ModelImpl>()));
  torch::optim::Adam optimizer{std::vector<at::Tensor>{model->encoder},
                               torch::optim::AdamOptions(1e-3)};

  void track(Session& session) { session.track("model", model).track("optimizer", optimizer); }
  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> tensors = visible_state(*model);
    for (at::Tensor& tensor : optimizer_state(optimizer)) tensors.push_back(tensor);
    return tensors;
  }
  at::Tensor step(at::Tensor images, at::Tensor /*labels*/) {
    optimizer.zero_grad();
    const at::Tensor hidden = torch::relu(torch::linear(images, model->encoder));
    at::Tensor loss = torch::mse_loss(torch::mm(hidden, model->decoder), images);
    loss.backward();
    optimizer.step();
    return loss;
  }
};

TEST(MemoryHazards, TiedWeights) {
  Hazard<Tied> hazard("tied_weights");
  hazard.train(200);
  hazard.expect_replays();
}

struct Scribbling : SgdTwin {
  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    const at::Tensor mask = at::ones({16, 64}, device());
    poke(mask, 3, 0);
    return step_on(loss_of(model, images * mask, labels));
  }
};

TEST(MemoryHazards, TensorWrittenThroughAPointer) {
  Hazard<Scribbling> hazard("written_through_pointer");
  hazard.train(120);
  hazard.expect_replays_or({RefusalCode::kWrittenOutside});
}

/// Halves a part of a gradient behind torch's back, between backward and the optimizer.
struct Tampering : SgdTwin {
  at::Tensor step(at::Tensor images, at::Tensor labels) {
    optimizer.zero_grad();
    at::Tensor loss = loss_of(model, images, labels);
    loss.backward();
    const at::Tensor gradient = model->fc1->weight.grad();
    for (int i = 0; i < 8; ++i) poke(gradient, i, peek(gradient, i) * 0.5F);
    optimizer.step();
    return loss;
  }
};

TEST(MemoryHazards, GradientsEditedOutsideTorch) {
  Hazard<Tampering> hazard("gradients_edited_outside");
  hazard.train(120);
  hazard.expect_replays_or({RefusalCode::kWrittenOutside});
}

}  // namespace
}  // namespace steptape::tests
