#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/simulated_cuda/device.h"

namespace steptape::tests::simulated {
namespace {

at::TensorOptions device_options() { return at::TensorOptions().device(at::kCUDA); }

class SimulatedCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    set_order(Order::kNeededOnly);
    c10::cuda::device_synchronize();
  }
  void TearDown() override {
    set_order(Order::kNeededOnly);
    clear_failure();
  }
};

TEST_F(SimulatedCudaTest, TensorsLieInDeviceMemory) {
  const at::Tensor tensor = at::ones({3}, device_options());
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, tensor.data_ptr()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  const at::Tensor host = tensor.cpu();
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, host.data_ptr()), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(SimulatedCudaTest, MemoryBeyondTheLimitIsRefused) {
  set_memory_limit(allocated_bytes() + (std::size_t{1} << 20));
  EXPECT_THROW(at::empty({64 << 20}, device_options()), c10::OutOfMemoryError);
  set_memory_limit(std::size_t{16} << 30);
}

TEST_F(SimulatedCudaTest, OperatorsComputeWhatTheCpuComputes) {
  const at::Tensor a = at::rand({5, 7}), b = at::rand({7, 3});
  const at::Tensor expected = at::cat({a.mm(b).relu().sum(0), a.sin().mean(0)});
  const at::Tensor da = a.cuda(), db = b.cuda();
  EXPECT_TRUE(at::cat({da.mm(db).relu().sum(0), da.sin().mean(0)}).cpu().equal(expected));
}

TEST_F(SimulatedCudaTest, WorkRunsOnlyWhenSomethingWaitsForIt) {
  at::Tensor tensor = at::zeros({4}, device_options());
  c10::cuda::getCurrentCUDAStream().synchronize();
  tensor.add_(1);
  EXPECT_EQ(pending_work(), 1U);
  EXPECT_EQ(*static_cast<const float*>(tensor.const_data_ptr()), 0.0F);
  c10::cuda::getCurrentCUDAStream().synchronize();
  EXPECT_EQ(*static_cast<const float*>(tensor.const_data_ptr()), 1.0F);
}

/// Adds on one stream and reads on another; `is_joined` with an event between.
float read_on_another_stream(bool is_joined) {
  at::Tensor tensor = at::zeros({4}, device_options());
  c10::cuda::device_synchronize();
  const auto writer = c10::cuda::getStreamFromPool();
  const auto reader = c10::cuda::getStreamFromPool();
  {
    const c10::cuda::CUDAStreamGuard guard(writer);
    tensor.add_(1);
  }
  at::cuda::CUDAEvent written;
  written.record(writer);
  if (is_joined) written.block(reader);
  const c10::cuda::CUDAStreamGuard guard(reader);
  return (tensor * 10).sum().item<float>();
}

TEST_F(SimulatedCudaTest, AMissingEventBetweenStreamsIsAStaleValue) {
  EXPECT_EQ(read_on_another_stream(false), 0);
  EXPECT_EQ(read_on_another_stream(true), 40);
}

TEST_F(SimulatedCudaTest, AnEventBetweenStreamsHoldsInEveryOrder) {
  for (const Order order : {Order::kOthersFirst, Order::kShuffled})
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      set_order(order, seed);
      EXPECT_EQ(read_on_another_stream(true), 40);
    }
}

TEST_F(SimulatedCudaTest, AnEventIsReachedAfterTheWorkBeforeIt) {
  at::Tensor tensor = at::zeros({4}, device_options());
  at::cuda::CUDAEvent event;
  tensor.add_(1).add_(1);
  event.record();
  EXPECT_FALSE(event.query());
  while (!event.query()) continue;
  EXPECT_EQ(*static_cast<const float*>(tensor.const_data_ptr()), 2.0F);
}

TEST_F(SimulatedCudaTest, APinnedBufferIsReadWhenTheStreamGetsThere) {
  const at::Tensor pinned = at::empty({4}, at::TensorOptions().pinned_memory(true)).fill_(1);
  const at::Tensor pageable = at::ones({4});
  const at::Tensor from_pinned = at::empty({4}, device_options());
  const at::Tensor from_pageable = at::empty({4}, device_options());
  from_pinned.copy_(pinned, /*non_blocking=*/true);
  from_pageable.copy_(pageable, /*non_blocking=*/true);
  pinned.fill_(2);
  pageable.fill_(2);
  EXPECT_EQ(from_pinned.sum().item<float>(), 8);
  EXPECT_EQ(from_pageable.sum().item<float>(), 4);
}

TEST_F(SimulatedCudaTest, CopiesConvertAndReorder) {
  const at::Tensor host = at::arange(12).view({3, 4});
  const at::Tensor device = at::empty({4, 3}, device_options().dtype(at::kDouble));
  device.t().copy_(host);
  EXPECT_TRUE(device.cpu().equal(host.t().to(at::kDouble)));
  const at::Tensor back = at::empty({3, 4}, at::kInt);
  back.copy_(device.t());
  EXPECT_TRUE(back.equal(host.to(at::kInt)));
}

TEST_F(SimulatedCudaTest, FreedDeviceMemoryIsOverwritten) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 16), cudaSuccess);
  ASSERT_EQ(cudaMemset(memory, 1, 16), cudaSuccess);
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(*static_cast<const unsigned char*>(memory), 0xcd);
}

TEST_F(SimulatedCudaTest, OperatorsWhoseShapeIsAValueWait) {
  const at::Tensor tensor = at::arange(6, device_options());
  EXPECT_TRUE(tensor.gt(2).nonzero().cpu().equal(at::arange(3, 6).view({3, 1})));
  EXPECT_TRUE(tensor.masked_select(tensor.gt(3)).cpu().equal(at::arange(4, 6)));
  EXPECT_TRUE(tensor.index({tensor.gt(3)}).cpu().equal(at::arange(4, 6)));
}

TEST_F(SimulatedCudaTest, TensorsOnTwoDevicesAreRefused) {
  EXPECT_THROW(at::ones({2}, device_options()) + at::ones({2}), c10::Error);
  EXPECT_EQ((at::ones({2}, device_options()) + at::ones({})).sum().item<float>(), 4);
}

TEST_F(SimulatedCudaTest, WrongShapesAreRefusedAtTheCall) {
  at::Tensor tensor = at::ones({2}, device_options());
  EXPECT_THROW(tensor.add_(at::ones({3}, device_options())), c10::Error);
  EXPECT_THROW(at::mm(tensor, tensor), c10::Error);
}

TEST_F(SimulatedCudaTest, AnOperatorWithoutACpuCounterpartIsRefusedByName) {
  const at::Tensor q = at::rand({1, 1, 4, 8}, device_options());
  try {
    at::_scaled_dot_product_flash_attention(q, q, q);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("_scaled_dot_product_flash_attention"),
              std::string::npos);
  }
}

TEST_F(SimulatedCudaTest, WorkThatFailsFailsTheDevice) {
  const at::Tensor tensor = at::rand({4, 2}, device_options());
  const at::Tensor beyond = at::full({1}, 9, device_options().dtype(at::kLong));
  const at::Tensor row = tensor.index_select(0, beyond);
  EXPECT_THROW(row.cpu(), c10::Error);
  EXPECT_TRUE(has_failed());
  clear_failure();
  EXPECT_EQ(tensor.cpu().numel(), 8);
}

TEST_F(SimulatedCudaTest, RandomNumbersFollowThePhiloxState) {
  auto generator = at::cuda::detail::createCUDAGenerator();
  generator.set_current_seed(7);
  const auto draw = [&] { return at::rand({8}, generator, device_options()).cpu(); };
  const at::Tensor first = draw();
  const at::Tensor second = draw();
  EXPECT_FALSE(first.equal(second));
  generator.set_current_seed(7);
  EXPECT_TRUE(draw().equal(first));
  generator.set_offset(4);
  EXPECT_TRUE(draw().equal(second));
}

}  // namespace
}  // namespace steptape::tests::simulated
