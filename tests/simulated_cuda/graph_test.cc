#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/simulated_cuda/device.h"

namespace steptape::tests::simulated {
namespace {

at::TensorOptions on_device() { return at::TensorOptions().device(at::kCUDA); }

class GraphTest : public testing::Test {
 protected:
  void SetUp() override {
    set_order(Order::kNeededOnly);
    generator.set_current_seed(1);
  }
  void TearDown() override { c10::cuda::setCurrentCUDAStream(c10::cuda::getDefaultCUDAStream()); }

  void capture(at::cuda::CUDAGraph& graph, const std::function<void()>& body,
               c10::MempoolId_t pool = {0, 0}) {
    c10::cuda::device_synchronize();
    const c10::cuda::CUDAStreamGuard guard(stream);
    graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    body();
    graph.capture_end();
  }

  std::vector<cudaGraphNode_t> nodes(at::cuda::CUDAGraph& graph) {
    std::size_t count = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph.raw_cuda_graph(), nullptr, &count), cudaSuccess);
    std::vector<cudaGraphNode_t> nodes(count);
    EXPECT_EQ(cudaGraphGetNodes(graph.raw_cuda_graph(), nodes.data(), &count), cudaSuccess);
    return nodes;
  }

  cudaError_t last_capture(const std::function<void(cudaStream_t)>& body) {
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    body(stream);
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    return error;
  }

  c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator();
};

TEST_F(GraphTest, AReplayComputesFromWhatItsInputsHoldThen) {
  const at::Tensor input = at::ones({4}, on_device());
  at::Tensor output;
  at::cuda::CUDAGraph graph;
  capture(graph, [&] { output = (input * 3).relu().sum(); });
  for (const int value : {1, 5}) {
    input.fill_(value);
    graph.replay();
    EXPECT_EQ(output.item<float>(), 12 * value);
  }
}

TEST_F(GraphTest, WhatACaptureAllocatesLiesInItsOwnPool) {
  at::cuda::CUDAGraph graph;
  at::Tensor output;
  const at::Tensor input = at::ones({4}, on_device());
  capture(graph, [&] { output = input + 1; });
  bool is_found = false;
  for (const auto& segment : c10::cuda::CUDACachingAllocator::snapshot().segments) {
    const auto begin = static_cast<std::size_t>(segment.address);
    const auto address = reinterpret_cast<std::size_t>(output.data_ptr());
    if (address < begin || address >= begin + segment.total_size) continue;
    is_found = true;
    EXPECT_EQ(segment.owner_private_pool_id, graph.pool());
  }
  EXPECT_TRUE(is_found);
}

TEST_F(GraphTest, ANumberOfAKernelNodeCanBeReplaced) {
  const at::Tensor input = at::rand({64}, on_device());
  at::Tensor output;
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  capture(graph, [&] { output = input * 3; });
  graph.instantiate();
  ASSERT_EQ(nodes(graph).size(), 1U);
  const cudaGraphNode_t node = nodes(graph)[0];

  cudaGraphNodeType type{};
  ASSERT_EQ(cudaGraphNodeGetType(node, &type), cudaSuccess);
  EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  cudaKernelNodeParams parameters{};
  ASSERT_EQ(cudaGraphKernelNodeGetParams(node, &parameters), cudaSuccess);
  std::size_t offset = 0, size = 0;
  ASSERT_EQ(cudaFuncGetParamInfo(parameters.func, 0, &offset, &size), cudaSuccess);
  EXPECT_EQ(size, sizeof(float));
  EXPECT_EQ(*static_cast<const float*>(parameters.kernelParams[0]), 3.0F);
  ASSERT_EQ(cudaFuncGetParamInfo(parameters.func, 1, &offset, &size), cudaSuccess);
  EXPECT_EQ(size, 2 * sizeof(void*));
  EXPECT_NE(cudaFuncGetParamInfo(parameters.func, 2, &offset, &size), cudaSuccess);
  cudaGetLastError();

  float number = 0.1F;
  void* values[] = {&number, parameters.kernelParams[1]};
  parameters.kernelParams = values;
  ASSERT_EQ(cudaGraphExecKernelNodeSetParams(graph.raw_cuda_graph_exec(), node, &parameters),
            cudaSuccess);
  graph.replay();
  EXPECT_TRUE(output.cpu().equal((input * 0.1).cpu()));
}

TEST_F(GraphTest, ALaunchKeepsTheNumbersItWasGiven) {
  const at::Tensor input = at::ones({1}, on_device());
  const at::Tensor sum = at::zeros({1}, on_device());
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  capture(graph, [&] { sum.add_(input, 2); });
  graph.instantiate();
  cudaKernelNodeParams parameters{};
  ASSERT_EQ(cudaGraphKernelNodeGetParams(nodes(graph)[0], &parameters), cudaSuccess);
  graph.replay();
  float number = 10;
  void* values[] = {&number, parameters.kernelParams[1]};
  parameters.kernelParams = values;
  ASSERT_EQ(
      cudaGraphExecKernelNodeSetParams(graph.raw_cuda_graph_exec(), nodes(graph)[0], &parameters),
      cudaSuccess);
  graph.replay();
  EXPECT_EQ(sum.item<float>(), 12);
}

TEST_F(GraphTest, ADivisionByANumberHoldsItsReciprocal) {
  const at::Tensor input = at::rand({512}, on_device());
  at::Tensor output;
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  capture(graph, [&] { output = input / 3; });
  cudaKernelNodeParams parameters{};
  ASSERT_EQ(cudaGraphKernelNodeGetParams(nodes(graph)[0], &parameters), cudaSuccess);
  EXPECT_EQ(*static_cast<const float*>(parameters.kernelParams[0]), 1.0F / 3.0F);
  graph.instantiate();
  graph.replay();
  EXPECT_TRUE(output.cpu().equal(input.cpu() * (1.0F / 3.0F)));
}

TEST_F(GraphTest, DoublesAndIntegersKeepTheirWidth) {
  const at::Tensor input = at::ones({2}, on_device());
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  capture(graph, [&] {
    input.to(at::kDouble).mul_(0.1);
    input.to(at::kLong).add_(7);
  });
  std::vector<void*> numbers;
  for (const cudaGraphNode_t node : nodes(graph)) {
    cudaKernelNodeParams parameters{};
    ASSERT_EQ(cudaGraphKernelNodeGetParams(node, &parameters), cudaSuccess);
    numbers.push_back(parameters.kernelParams[0]);
  }
  ASSERT_EQ(numbers.size(), 4U);
  EXPECT_EQ(*static_cast<const double*>(numbers[1]), 0.1);
}

TEST_F(GraphTest, BranchesAreJoinedByEvents) {
  const at::Tensor input = at::ones({4}, on_device());
  const auto other = c10::cuda::getStreamFromPool();
  at::Tensor left, right, output;
  at::cuda::CUDAGraph graph(/*keep_graph=*/true);
  capture(graph, [&] {
    at::cuda::CUDAEvent fork, join;
    fork.record();
    fork.block(other);
    left = input + 1;
    {
      const c10::cuda::CUDAStreamGuard guard(other);
      right = input + 2;
    }
    join.record(other);
    join.block(c10::cuda::getCurrentCUDAStream());
    output = left * right;
  });
  std::size_t count = 0;
  ASSERT_EQ(cudaGraphNodeGetDependencies(nodes(graph)[2], nullptr, nullptr, &count), cudaSuccess);
  EXPECT_EQ(count, 2U);
  graph.instantiate();
  graph.replay();
  EXPECT_EQ(output.sum().item<float>(), 24);
}

TEST_F(GraphTest, WorkOfABranchThatIsNotJoinedIsAnError) {
  const auto other = c10::cuda::getStreamFromPool();
  const at::Tensor memory = at::zeros({4}, on_device());
  at::cuda::CUDAEvent fork;
  EXPECT_EQ(last_capture([&](cudaStream_t captured) {
              fork.record(stream);
              fork.block(other);
              cudaMemsetAsync(memory.data_ptr(), 0, 4, captured);
              cudaMemsetAsync(memory.data_ptr(), 0, 4, other);
            }),
            cudaErrorStreamCaptureUnjoined);
}

TEST_F(GraphTest, WaitingForACapturingStreamEndsTheCapture) {
  EXPECT_EQ(last_capture([](cudaStream_t captured) {
              EXPECT_EQ(cudaStreamSynchronize(captured), cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
}

TEST_F(GraphTest, AllocatingInACaptureNeedsTheRelaxedMode) {
  void* memory = nullptr;
  EXPECT_EQ(last_capture([&](cudaStream_t) {
              EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(last_capture([&](cudaStream_t) {
              const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
              EXPECT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
            }),
            cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(GraphTest, AFailedCaptureLeavesAUsableStream) {
  const at::Tensor input = at::ones({4}, on_device());
  const auto pool = at::cuda::graph_pool_handle();
  at::cuda::CUDAGraph graph;
  std::string text;
  try {
    capture(
        graph, [&] { input.mul(2).sum().item(); }, pool);
  } catch (const c10::Error& error) {
    text = error.what();
  }
  EXPECT_THAT(text, testing::HasSubstr("operation not permitted when stream is capturing"));
  // As in LibTorch's own users: the capture is ended where the stream is current.
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    EXPECT_THROW(graph.capture_end(), c10::Error);
    EXPECT_EQ(input.add(1).sum().item<float>(), 8);
  }
  // CUDAGraph::capture_end throws before it takes the generator and the allocator out of the
  // capture.
  c10::cuda::CUDACachingAllocator::endAllocateToPool(0, pool);
  EXPECT_THROW(at::rand({2}, on_device()), c10::Error);
  at::cuda::CUDAGraph healing;
  capture(healing, [&] { input.add(1); });
  EXPECT_EQ(at::rand({2}, on_device()).numel(), 2);
}

TEST_F(GraphTest, DropoutInAGraphDrawsWhatItDrawsEagerly) {
  const at::Tensor input = at::ones({32}, on_device());
  std::vector<at::Tensor> eager;
  generator.set_current_seed(5);
  for (int i = 0; i < 2; ++i) eager.push_back(at::dropout(input, 0.5, true).cpu());
  EXPECT_FALSE(eager[0].equal(eager[1]));
  at::Tensor output;
  at::cuda::CUDAGraph graph;
  capture(graph, [&] { output = at::dropout(input, 0.5, true); });
  generator.set_current_seed(5);
  for (int i = 0; i < 2; ++i) {
    graph.replay();
    EXPECT_TRUE(output.cpu().equal(eager[i])) << i;
  }
}

TEST_F(GraphTest, ACapturedCopyFromPageableMemoryReadsItAtTheLaunch) {
  const at::Tensor host = at::ones({4});
  const at::Tensor device = at::zeros({4}, on_device());
  at::cuda::CUDAGraph graph;
  capture(graph, [&] { device.copy_(host, /*non_blocking=*/true); });
  host.fill_(3);
  graph.replay();
  EXPECT_EQ(device.sum().item<float>(), 12);
}

}  // namespace
}  // namespace steptape::tests::simulated
