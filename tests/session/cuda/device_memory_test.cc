#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <fstream>
#include <mutex>

#include "tests/session/cuda/device_training.h"

namespace steptape::tests {
namespace {

namespace nn = torch::nn;

class DeviceMemoryTest : public DeviceTest {
 protected:
  void make(Options options) {
    torch::manual_seed(1);
    model_ = nn::Linear(4, 4);
    model_->to(at::kCUDA);
    optimizer_ =
        std::make_unique<torch::optim::SGD>(model_->parameters(), torch::optim::SGDOptions(0.05));
    session_ = std::make_unique<Session>(options);
    session_->track("model", model_.ptr()).track("optimizer", *optimizer_);
    step_ = std::make_unique<Step<at::Tensor(at::Tensor)>>(
        session_->wrap("train", [this](at::Tensor x) { return body(x); }));
  }

  at::Tensor body(const at::Tensor& x) {
    optimizer_->zero_grad();
    at::Tensor loss = model_(x).square().mean();
    loss.backward();
    optimizer_->step();
    return loss.detach();
  }

  static at::Tensor batch(int call) {
    torch::manual_seed(50 + static_cast<std::uint64_t>(call));
    return on_device(torch::randn({3, 4}));
  }

  at::Tensor call(const at::Tensor& x) { return (*step_)(x); }

  /// Calls until one was replayed.
  void warm() {
    for (int i = 0; i < 8; ++i) call(batch(i));
    ASSERT_GE(step_->stats().replayed, 1U) << step_->explain();
  }

  const DeviceStats device() const { return step_->stats().variants.at(0).device; }

  nn::Linear model_{nullptr};
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Step<at::Tensor(at::Tensor)>> step_;
};

TEST_F(DeviceMemoryTest, ResultsAreTheUsersOwn) {
  make(quiet());
  warm();
  const at::Tensor first = call(batch(20));
  const at::Tensor was = first.clone();
  const at::Tensor second = call(batch(21));
  EXPECT_TRUE(same_bits(first.cpu(), was.cpu()));
  EXPECT_FALSE(same_bits(first.cpu(), second.cpu()));
}

TEST_F(DeviceMemoryTest, AGradientThatTheUserHoldsKeepsItsBytes) {
  for (const bool is_static : {false, true}) {
    Options options = quiet();
    options.static_gradients = is_static;
    make(options);
    warm();
    call(batch(20));
    const at::Tensor held = model_->weight.grad();
    const at::Tensor view = held.flatten();
    const at::Tensor was = held.clone();
    call(batch(21));
    EXPECT_TRUE(same_bits(held.cpu(), was.cpu())) << step_->explain();
    EXPECT_TRUE(same_bits(view.cpu(), was.flatten().cpu()));
    EXPECT_FALSE(same_bits(model_->weight.grad().cpu(), was.cpu()));
    bool copies_gradients = false;
    for (const TensorCopy& copy : device().copies) {
      copies_gradients |= copy.path.find(".grad") != std::string::npos;
    }
    EXPECT_EQ(copies_gradients, !is_static) << step_->explain();
  }
}

TEST_F(DeviceMemoryTest, AGradientThatTheHostBringsIsMovedOutToo) {
  for (const bool is_static : {false, true}) {
    Options options = quiet();
    options.static_gradients = is_static;
    make(options);
    auto step = session_->wrap("bring", [this](at::Tensor gradient) {
      model_->weight.mutable_grad() = gradient.to(at::kCUDA);
      optimizer_->step();
    });
    for (int i = 0; i < 8; ++i) step(torch::full({4, 4}, static_cast<double>(i)));
    ASSERT_GE(step.stats().replayed, 1U) << step.explain();
    const at::Tensor held = model_->weight.grad();
    step(torch::full({4, 4}, 20.0));
    EXPECT_TRUE((held.cpu() == 7).all().item<bool>()) << step.explain();
  }
}

TEST_F(DeviceMemoryTest, AnInputThatLiesStillIsNotCopied) {
  make(quiet());
  const at::Tensor x = batch(0).clone();
  for (int i = 0; i < 30; ++i) {
    x.copy_(batch(i));
    call(x);
  }
  ASSERT_GE(step_->stats().replayed, 1U) << step_->explain();
  EXPECT_EQ(device().static_bytes, 0U) << step_->explain();
  // graphs that no comparison has seen are not replayed before one has
  EXPECT_EQ(step_->stats().audits + 1, device().captures) << step_->explain();
  const std::uint64_t captures = device().captures;
  // elsewhere: captured once more, with a copy for good
  for (int i = 0; i < 5; ++i) call(batch(i));
  EXPECT_EQ(device().captures, captures + 1) << step_->explain();
  EXPECT_GT(device().static_bytes, 0U) << step_->explain();
  EXPECT_NE(device().captured_for.find("inputs[0]"), std::string::npos) << step_->explain();
  EXPECT_EQ(step_->stats().audits + 1, device().captures) << step_->explain();
}

TEST_F(DeviceMemoryTest, WorkspacesOfTheCapturesLiveAsLongAsTheirGraphs) {
  // one that cuBLAS might have made on the stream of the captures
  static bool is_freed;
  is_freed = false;
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  library.impl("erfc", [](const at::Tensor& x) {
    const auto stream = c10::cuda::getCurrentCUDAStream();
    auto& workspaces = at::cuda::cublas_handle_stream_to_workspace();
    const std::unique_lock lock(workspaces.mutex);
    auto& memory = workspaces.map[{&is_freed, stream.stream()}];
    if (stream != c10::cuda::getDefaultCUDAStream() && !memory) {
      memory = at::DataPtr(
          &is_freed, &is_freed, [](void*) { is_freed = true; }, x.device());
    }
    return x * 2;
  });
  make(quiet());
  {
    auto step = session_->wrap("erfc", [](at::Tensor x) { return x.erfc(); });
    for (int i = 0; i < 8; ++i) step(batch(i));
    ASSERT_GE(step.stats().replayed, 1U) << step.explain();
    at::cuda::clearCublasWorkspaces();
    EXPECT_FALSE(is_freed);
  }
  step_.reset();
  session_.reset();
  EXPECT_TRUE(is_freed);
}

TEST_F(DeviceMemoryTest, AMovedParameterIsCapturedAgainAndSaysSo) {
  make(quiet());
  warm();
  const std::uint64_t captures = device().captures;
  const std::uint64_t replayed = step_->stats().replayed;
  {
    const torch::NoGradGuard no_grad;
    model_->weight.set_data(model_->weight.clone());
  }
  for (int i = 0; i < 4; ++i) call(batch(i));
  EXPECT_GT(step_->stats().replayed, replayed) << step_->explain();
  EXPECT_EQ(device().captures, captures + 1) << step_->explain();
  EXPECT_NE(device().captured_for.find("model.weight"), std::string::npos) << step_->explain();
}

TEST_F(DeviceMemoryTest, ReplaysOnAnotherStreamWaitForTheOnesBefore) {
  const auto run = [this](bool taped) {
    make(quiet());
    const auto other = c10::cuda::getStreamFromPool();
    std::vector<at::Tensor> seen;
    for (int i = 0; i < 20; ++i) {
      const at::Tensor x = batch(i);
      torch::cuda::synchronize();
      // the user orders the streams; the plan's own memory is the plan's to order
      const c10::cuda::CUDAStreamGuard guard(i % 3 == 2 ? other
                                                        : c10::cuda::getDefaultCUDAStream());
      seen.push_back(taped ? call(x) : body(x));
      torch::cuda::synchronize();
    }
    seen.push_back(model_->weight.detach());
    return on_host(seen);
  };
  EXPECT_TRUE(all_same_bits(run(false), run(true))) << step_->explain();
}

TEST_F(DeviceMemoryTest, TenThousandReplaysTakeNoMemory) {
  make(quiet());
  warm();
  const auto allocated = [] {
    torch::cuda::synchronize();
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    return stats.allocated_bytes[0].current;
  };
  const auto resident = [] {  // of the host, in pages
    std::size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident;
  };
  const at::Tensor x = batch(0);
  const auto replay = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      call(x);
      if (i % 100 == 0) torch::cuda::synchronize();  // what is queued takes memory, too
    }
  };
  replay(1000);
  const auto before = allocated();
  const auto pages = resident();
  replay(10'000);
  EXPECT_EQ(allocated(), before);
  constexpr std::size_t kPagesOfAMiB = 256;
  EXPECT_LE(resident(), pages + kPagesOfAMiB);
}

TEST_F(DeviceMemoryTest, AStepInsideSomebodyElsesCaptureRunsEagerly) {
  make(quiet());
  warm();
  const at::Tensor x = batch(0);
  torch::cuda::synchronize();
  const std::uint64_t replayed = step_->stats().replayed;
  at::cuda::CUDAGraph graph;
  {
    const c10::cuda::CUDAStreamGuard on_side(c10::cuda::getStreamFromPool());
    graph.capture_begin();
    call(x);
    graph.capture_end();
  }
  EXPECT_EQ(step_->stats().replayed, replayed) << step_->explain();
  graph.replay();
  torch::cuda::synchronize();
}

TEST_F(DeviceMemoryTest, ASessionMayGoWhileItsGraphsRun) {
  make(quiet());
  warm();
  const at::Tensor loss = call(batch(20));
  step_.reset();
  session_.reset();
  const at::Tensor after = torch::full({256}, 7.0, at::kCUDA);
  EXPECT_TRUE(loss.cpu().isfinite().item<bool>());
  EXPECT_TRUE((after.cpu() == 7).all().item<bool>());
}

}  // namespace
}  // namespace steptape::tests
