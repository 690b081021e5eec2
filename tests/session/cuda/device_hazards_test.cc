#include <ATen/CPUGeneratorImpl.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include "tests/session/cuda/device_training.h"

namespace steptape::tests {
namespace {

namespace nn = torch::nn;

class DeviceHazardsTest : public DeviceTest {};

/// A linear model whose step a test writes.
struct Small {
  nn::Linear model{nn::Linear(4, 4)};
  std::shared_ptr<torch::optim::SGD> optimizer;
  Small() {
    model->to(at::kCUDA);
    optimizer = std::make_shared<torch::optim::SGD>(model->parameters(),
                                                    torch::optim::SGDOptions(0.05).momentum(0.5));
  }
  at::Tensor update(const at::Tensor& loss) {
    optimizer->zero_grad();
    loss.backward();
    optimizer->step();
    return loss.detach();
  }
};

using Body = std::function<at::Tensor(Small&, std::vector<at::Tensor>)>;
using Inputs = std::function<std::vector<at::Tensor>(int)>;

std::vector<at::Tensor> on_device_batch(int call) {
  torch::manual_seed(50 + static_cast<std::uint64_t>(call));
  return {on_device(torch::randn({3, 4}))};
}

std::vector<at::Tensor> host_batch(int call) {
  torch::manual_seed(50 + static_cast<std::uint64_t>(call));
  return {torch::randn({3, 4})};
}

std::function<DeviceTraining()> small(Body body, Inputs inputs = on_device_batch) {
  return [body = std::move(body), inputs = std::move(inputs)] {
    auto state = std::make_shared<Small>();
    return DeviceTraining{state->model.ptr(), state->optimizer, inputs,
                          [state, body](std::vector<at::Tensor> arguments) {
                            return body(*state, std::move(arguments));
                          }};
  };
}

bool is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

bool mentions(const std::vector<std::string>& texts, const std::string& part) {
  return std::ranges::any_of(
      texts, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

TEST_F(DeviceHazardsTest, AHostReadThatIsReturnedStandsBetweenTwoGraphs) {
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    at::Tensor loss = state.model(in[0]).square().mean();
    // what was read goes back in: the graph after it must not keep the recorded number
    const double norm = loss.item<double>();
    return state.update(loss * norm);
  });
  const Trained run = expect_same(make, 25, 0);
  EXPECT_GT(device_of(run).graphs, 1U) << run.text;
}

TEST_F(DeviceHazardsTest, ABranchOnTheHostIsUndoneWhenItGoesTheOtherWay) {
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    at::Tensor out = state.model(in[0]);
    at::Tensor loss = out.square().mean();
    state.update(loss);
    const bool is_large = (in[0].sum() > 0).item<bool>();
    return is_large ? loss.detach() * 2 : loss.detach() + 1;
  });
  const Trained run = expect_same(make, 40, 10);
  EXPECT_GE(run.stats.variants.size(), 1U);
  EXPECT_TRUE(mentions(device_of(run).between, "gives the host a value")) << run.text;
}

TEST_F(DeviceHazardsTest, ABatchOfTheHostIsBroughtAheadOfTheGraph) {
  const auto make = small(
      [](Small& state, std::vector<at::Tensor> in) {
        return state.update(state.model(in[0].to(at::kCUDA)).square().mean());
      },
      host_batch);
  const Trained run = expect_same(make, 25, 18);
  EXPECT_EQ(device_of(run).graphs, 1U) << run.text;
  EXPECT_EQ(device_of(run).ahead, 1U) << run.text;
  EXPECT_TRUE(device_of(run).between.empty()) << run.text;
}

TEST_F(DeviceHazardsTest, ANumberOnTheHostIsNeverFrozen) {
  const auto make = small(
      [](Small& state, std::vector<at::Tensor> in) {
        return state.update((state.model(in[0]) * in[1]).square().mean());
      },
      [](int call) {
        std::vector<at::Tensor> in = on_device_batch(call);
        in.push_back(torch::scalar_tensor(0.5 + 0.1 * call));
        return in;
      });
  const Trained run = expect_same(make, 25, 18);
  EXPECT_GT(device_of(run).updated, 0U) << run.text;
}

TEST_F(DeviceHazardsTest, NumbersThatLeaveWhatCapturesShowedAreCapturedAgain) {
  const auto make = [] {
    DeviceTraining training = small([](Small& state, std::vector<at::Tensor> in) {
      return state.update(state.model(in[0]).square().mean());
    })();
    training.between = [optimizer = training.optimizer](int call) {
      // zero, a sign, and one: kernels may be others there
      const std::vector<double> rates = {0.05, 0.0, -0.05, 1.0, 0.01};
      for (auto& group : optimizer->param_groups()) {
        group.options().set_lr(call < 10 ? 0.05 : rates[static_cast<std::size_t>(call) % 5]);
      }
    };
    return training;
  };
  expect_same(make, 40, 20);
}

TEST_F(DeviceHazardsTest, CountersOfTheHostGoOn) {
  const auto make = [] {
    struct Counting : nn::Module {
      nn::Linear linear{register_module("linear", nn::Linear(4, 4))};
      at::Tensor count{register_buffer("count", torch::zeros({}, at::kLong))};
    };
    auto model = std::make_shared<Counting>();
    model->linear->to(at::kCUDA);
    auto optimizer =
        std::make_shared<torch::optim::SGD>(model->parameters(), torch::optim::SGDOptions(0.05));
    return DeviceTraining{model, optimizer, on_device_batch,
                          [model, optimizer](std::vector<at::Tensor> in) {
                            model->count.add_(1);
                            at::Tensor loss = model->linear(in[0]).square().mean();
                            optimizer->zero_grad();
                            loss.backward();
                            optimizer->step();
                            return loss.detach();
                          }};
  };
  const Trained run = expect_same(make, 20, 14);
  EXPECT_EQ(device_of(run).graphs, 1U) << run.text;
}

TEST_F(DeviceHazardsTest, DropoutDrawsFromAGeneratorOfTheUsers) {
  for (const How how : {How::kEager, How::kTaped}) {
    static std::vector<at::Tensor> expected;
    torch::manual_seed(3);
    Small state;
    at::Generator generator = at::globalContext().defaultGenerator(at::kCUDA).clone();
    Session session(quiet());
    session.track("model", state.model.ptr()).track("optimizer", state.optimizer);
    session.track("noise", generator);
    const auto body = [&](at::Tensor x) {
      at::Tensor noise = torch::empty_like(x).normal_(0, 1, generator);
      return state.update(state.model(x + noise).square().mean());
    };
    auto step = session.wrap("train", body);
    std::vector<at::Tensor> seen;
    for (int call = 0; call < 20; ++call) {
      const at::Tensor x = on_device_batch(call)[0];
      seen.push_back(how == How::kEager ? body(x) : step(x));
    }
    seen.push_back(generator.get_state());
    seen = on_host(seen);
    if (how == How::kEager) {
      expected = seen;
    } else {
      EXPECT_TRUE(all_same_bits(expected, seen)) << step.explain();
    }
  }
}

TEST_F(DeviceHazardsTest, AnOpThatWaitsForTheDeviceIsKeptOutOfGraphs) {
  // without a word of it in schema or tags
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("erfc", [](const at::Tensor& x) {
    torch::cuda::synchronize();
    return 1 - at::erf(x);
  });
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    const at::Tensor seen = state.model(in[0]).detach().erfc();
    return state.update((state.model(in[0]) * seen).square().mean());
  });
  const Trained run = expect_same(make, 20, 12);
  EXPECT_TRUE(mentions(device_of(run).between, "aten::erfc")) << run.text;
  EXPECT_TRUE(mentions(device_of(run).between, "under capture")) << run.text;
  EXPECT_EQ(device_of(run).graphs, 2U) << run.text;
}

TEST_F(DeviceHazardsTest, AnOpThatCopiesFromTheHostByItselfIsKeptOutOfGraphs) {
  // memory that is gone by the next launch; nothing but the node in the graph tells
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("erfc", [](const at::Tensor& x) {
    at::Tensor result = at::empty_like(x);
    std::vector<float> numbers(static_cast<std::size_t>(x.numel()), 0.25F);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    cudaMemcpyAsync(result.mutable_data_ptr(), numbers.data(), result.nbytes(),
                    cudaMemcpyHostToDevice, stream);
    if (!is_capturing()) cudaStreamSynchronize(stream);
    std::ranges::fill(numbers, 7.0F);
    return result;
  });
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    const at::Tensor seen = state.model(in[0]).detach().erfc();
    return state.update((state.model(in[0]) * seen).square().mean());
  });
  const Trained run = expect_same(make, 20, 12);
  EXPECT_TRUE(mentions(device_of(run).between, "aten::erfc")) << run.text;
  EXPECT_EQ(device_of(run).graphs, 2U) << run.text;
}

TEST_F(DeviceHazardsTest, ACaptureThatFailsInAnAuditRaisesNothing) {
  static bool fails;
  fails = false;
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("erfc", [](const at::Tensor& x) {
    const bool is_on_side = c10::cuda::getCurrentCUDAStream() != c10::cuda::getDefaultCUDAStream();
    TORCH_CHECK(!fails || !is_on_side, "no memory for it");
    return x * 2;
  });
  Small state;
  Options options;
  options.verify.rate = 0;
  options.on_divergence = OnDivergence::kThrow;
  Session session(options);
  session.track("model", state.model.ptr()).track("optimizer", state.optimizer);
  auto step = session.wrap("train", [&](at::Tensor x) {
    return state.update((state.model(x) * state.model(x).detach().erfc()).square().mean());
  });
  for (int call = 0; call < 12; ++call) {
    if (call == 10) {
      // graphs are made anew for it
      const torch::NoGradGuard no_grad;
      state.model->weight.set_data(state.model->weight.clone());
      fails = true;
    }
    EXPECT_TRUE(step(on_device_batch(call)[0]).isfinite().item<bool>());
  }
  EXPECT_GE(step.stats().replayed, 5U) << step.explain();
  EXPECT_NE(step.explain().find("threw: no memory for it"), std::string::npos) << step.explain();
}

TEST_F(DeviceHazardsTest, AnOpOnAnotherStreamThanTheCallsIsRefused) {
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    const auto side = c10::cuda::getStreamFromPool();
    const auto caller = c10::cuda::getCurrentCUDAStream();
    at::cuda::CUDAEvent before, after;
    before.record(caller);
    before.block(side);
    at::Tensor loss;
    {
      const c10::cuda::CUDAStreamGuard on_side(side);
      loss = state.update(state.model(in[0]).square().mean());
      after.record(side);
    }
    after.block(caller);
    return loss;
  });
  const Trained run = expect_same(make, 8, 0);
  EXPECT_EQ(run.stats.replayed, 0U) << run.text;
  EXPECT_NE(run.text.find("given to another stream"), std::string::npos) << run.text;
}

TEST_F(DeviceHazardsTest, AnOpThatDiffersFromItselfSpeaksAgainstNoNumber) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("erfc", [](const at::Tensor& x) {
    static double calls = 0;
    return x + 1e-5 * ++calls;
  });
  // Adam counts its steps: each call has numbers that were not proved yet
  nn::Linear model(4, 4);
  model->to(at::kCUDA);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));
  Options options;
  options.verify.rate = 0;
  Session session(options);
  session.track("model", model.ptr()).track("optimizer", optimizer);
  auto step = session.wrap("train", [&](at::Tensor x) {
    optimizer.zero_grad();
    at::Tensor loss = (model(x) * model(x).detach().erfc()).square().mean();
    loss.backward();
    optimizer.step();
    return loss.detach();
  });
  for (int call = 0; call < 30; ++call) step(on_device_batch(call)[0]);
  const Stats stats = step.stats();
  EXPECT_GE(stats.replayed, 20U) << step.explain();
  ASSERT_EQ(stats.variants.size(), 1U) << step.explain();
  EXPECT_EQ(stats.variants[0].nondeterministic.size(), 1U) << step.explain();
}

TEST_F(DeviceHazardsTest, AnOpThatDiffersFromItselfStaysBetweenGraphsAndIsListed) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("erfc", [](const at::Tensor& x) {
    static double calls = 0;
    return x + 1e-5 * ++calls;
  });
  for (const auto determinism : {Determinism::kListed, Determinism::kStrict}) {
    Small state;
    Options options;
    options.determinism = determinism;
    options.verify.rate = 0.5;
    Session session(options);
    session.track("model", state.model.ptr()).track("optimizer", state.optimizer);
    auto step = session.wrap("train", [&](at::Tensor x) {
      const at::Tensor seen = state.model(x).detach().erfc();
      return state.update((state.model(x) * seen).square().mean());
    });
    for (int call = 0; call < 40; ++call) step(on_device_batch(call)[0]);
    const Stats stats = step.stats();
    if (determinism == Determinism::kStrict) {
      EXPECT_EQ(stats.replayed, 0U);
      EXPECT_NE(step.explain().find("nondeterministic_op"), std::string::npos) << step.explain();
      continue;
    }
    EXPECT_GE(stats.replayed, 5U) << step.explain();
    EXPECT_GE(stats.audits, 5U) << step.explain();
    EXPECT_TRUE(stats.refusals.empty()) << step.explain();
    ASSERT_EQ(stats.variants.at(0).nondeterministic.size(), 1U) << step.explain();
    EXPECT_EQ(stats.variants[0].nondeterministic[0].op, "aten::erfc");
    EXPECT_EQ(stats.variants[0].device.graphs, 2U) << step.explain();
  }
}

TEST_F(DeviceHazardsTest, SeedsOfAttentionFollowTheCapture) {
  // as LibTorch's kernels do: seed and offset lie on the host, and on the device under capture
  using Tensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl(
      "_scaled_dot_product_efficient_attention",
      [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
         const std::optional<at::Tensor>&, bool, double, bool, std::optional<double>) -> Tensors {
        const auto where = is_capturing() ? at::kCUDA : at::kCPU;
        const auto seed = at::full({}, 3, at::dtype(at::kLong).device(where));
        return {query + key * value, query.sum(-1), seed, seed.clone()};
      });
  library.impl("_scaled_dot_product_efficient_attention_backward",
               [](const at::Tensor& grad, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                  const at::Tensor& seed, const at::Tensor&, double, std::array<bool, 4>, bool,
                  std::optional<double>) -> Tensors {
                 TORCH_CHECK(seed.is_cuda() == is_capturing(), "a seed of the other way");
                 return {grad + query, grad * value, grad * key, at::Tensor()};
               });
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    at::Tensor scale;
    {
      const torch::NoGradGuard no_grad;
      const at::Tensor x = in[0].view({1, 1, 3, 4});
      const auto [out, sums, seed, offset] = at::_scaled_dot_product_efficient_attention(
          x, x, x, std::nullopt, true, 0.1, false, std::nullopt);
      const auto back = at::_scaled_dot_product_efficient_attention_backward(
          out, x, x, x, at::Tensor(), out, sums, seed, offset, 0.1, {true, true, true, false},
          false, std::nullopt);
      scale = std::get<0>(back).view({3, 4}) + std::get<1>(back).view({3, 4});
    }
    return state.update((state.model(in[0]) * scale).square().mean());
  });
  const Trained run = expect_same(make, 20, 14);
  EXPECT_EQ(device_of(run).graphs, 1U) << run.text;
}

TEST_F(DeviceHazardsTest, TwoShapesTakeTurnsInOnePool) {
  const auto make = small(
      [](Small& state, std::vector<at::Tensor> in) {
        return state.update(state.model(in[0]).square().mean());
      },
      [](int call) {
        torch::manual_seed(50 + static_cast<std::uint64_t>(call));
        return std::vector<at::Tensor>{on_device(torch::randn({call % 3 == 0 ? 2 : 5, 4}))};
      });
  const Trained run = expect_same(make, 50, 30);
  EXPECT_EQ(run.stats.variants.size(), 2U) << run.text;
}

TEST_F(DeviceHazardsTest, GradientsThatAddUpOverSteps) {
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    at::Tensor loss = state.model(in[0]).square().mean();
    loss.backward();
    return loss.detach();
  });
  expect_same(make, 20, 14);
}

TEST_F(DeviceHazardsTest, GradientsThatAreClearedNowAndThenAreCopiedAndNotCapturedForEver) {
  const auto make = [] {
    DeviceTraining training = small([](Small& state, std::vector<at::Tensor> in) {
      at::Tensor loss = state.model(in[0]).square().mean();
      loss.backward();
      return loss.detach();
    })();
    training.between = [optimizer = training.optimizer](int call) {
      if (call % 4 == 0) optimizer->zero_grad();
    };
    return training;
  };
  const Trained run = expect_same(make, 80, 50);
  for (const auto& variant : run.stats.variants) EXPECT_LE(variant.device.captures, 3U) << run.text;
}

TEST_F(DeviceHazardsTest, TensorsThatTheHostMakesForTheDeviceAreConstants) {
  const at::Tensor outside = on_device(torch::randn({4}));
  const auto make = small([outside](Small& state, std::vector<at::Tensor> in) {
    const at::Tensor weights = torch::tensor({1.0F, 2.0F, 3.0F, 4.0F}, at::kCUDA);
    return state.update((state.model(in[0]) * weights * outside).square().mean());
  });
  expect_same(make, 20, 14);
}

TEST_F(DeviceHazardsTest, AReadThatGoesTheOtherWayInTheFirstRunIsPutBackInOrder) {
  const auto make = small([](Small& state, std::vector<at::Tensor> in) {
    at::Tensor loss = (state.model(in[0]) * in[0]).sum();
    if (loss.item<double>() > 0) loss = loss * 2;
    const torch::NoGradGuard no_grad;
    state.model->weight.add_(in[0].sum(0), 0.01);
    return loss.detach();
  });
  for (const int calls : {5, 6, 8, 9, 12, 30}) expect_same(make, calls, 0);
}

TEST_F(DeviceHazardsTest, ANumberThatTheHostMakesInsideTheStepReachesTheGraph) {
  const auto make = small(
      [](Small& state, std::vector<at::Tensor> in) {
        return state.update((state.model(in[0]) * (in[1] * 2 + 1)).square().mean());
      },
      [](int call) {
        std::vector<at::Tensor> in = on_device_batch(call);
        in.push_back(torch::scalar_tensor(call % 7 == 6 ? 0.0 : 0.5 + 0.1 * call));
        return in;
      });
  const Trained run = expect_same(make, 30, 15);
  EXPECT_EQ(device_of(run).graphs, 1U) << run.text;
}

TEST_F(DeviceHazardsTest, IntegersThatNoDoubleHoldsKeepTheirBits) {
  const auto make = small(
      [](Small& state, std::vector<at::Tensor> in) {
        state.update(state.model(in[0]).square().mean());
        return in[1] + in[2];
      },
      [](int call) {
        std::vector<at::Tensor> in = on_device_batch(call);
        in.push_back(on_device(torch::arange(4)));
        const std::int64_t large = (std::int64_t{1} << 53) + call / 2;
        in.push_back(torch::scalar_tensor(call < 8 ? call : large, at::kLong));
        return in;
      });
  expect_same(make, 30, 10);
}

TEST_F(DeviceHazardsTest, PinnedMemoryThatTheDeviceIsWritingIsReadInItsTurn) {
  const auto make = [] {
    auto state = std::make_shared<Small>();
    const at::Tensor pinned = torch::empty({3, 4}).pin_memory();
    return DeviceTraining{state->model.ptr(), state->optimizer,
                          [pinned](int call) {
                            pinned.copy_(on_device_batch(call)[0], /*non_blocking=*/true);
                            // a recording looks at what the step is given
                            if (call < 8) torch::cuda::synchronize();
                            return std::vector<at::Tensor>{pinned};
                          },
                          [state](std::vector<at::Tensor> in) {
                            const at::Tensor x = in[0].to(at::kCUDA, /*non_blocking=*/true);
                            return state->update(state->model(x).square().mean());
                          }};
  };
  expect_same(make, 30, 15);
}

TEST_F(DeviceHazardsTest, GradientsClearedOutsideAreNotMissed) {
  const auto make = [] {
    DeviceTraining training = small([](Small& state, std::vector<at::Tensor> in) {
      at::Tensor loss = state.model(in[0]).square().mean();
      loss.backward();
      state.optimizer->step();
      return loss.detach();
    })();
    training.between = [optimizer = training.optimizer](int) { optimizer->zero_grad(); };
    return training;
  };
  expect_same(make, 20, 14);
}

}  // namespace
}  // namespace steptape::tests
