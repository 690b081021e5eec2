#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "steptape/player.h"
#include "tests/session/training.h"

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define STEPTAPE_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

#ifdef STEPTAPE_COUNTS_ALLOCATIONS
// Those of the program and of all libraries that it loads: operator new of libstdc++ calls malloc.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(block, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  *block = memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
}
#endif

namespace steptape::tests {
namespace {

class PlayerAllocationTest : public ::testing::Test {
 protected:
  PlayerAllocationTest()
      : path_((std::filesystem::temp_directory_path() /
               ("steptape_allocations_" + std::to_string(getpid()) + ".tape"))
                  .string()) {
    at::set_num_threads(1);
    torch::manual_seed(1);
    torch::nn::Sequential policy(torch::nn::Linear(8, 64), torch::nn::Tanh(),
                                 torch::nn::Linear(64, 64), torch::nn::ReLU(),
                                 torch::nn::Linear(64, 4));
    Session session(quiet());
    session.track("policy", *policy);
    auto act = session.wrap("act", [&](at::Tensor seen) {
      const at::NoGradGuard no_grad;
      return at::softmax(policy->forward(seen), 1);
    });
    for (int i = 0; i < 4; ++i) {
      for (const std::int64_t count : {1, 16}) act(at::randn({count, 8}));
    }
    session.save(path_, Session::State::kWith);
  }
  ~PlayerAllocationTest() override { std::filesystem::remove(path_); }
  void SetUp() override {
#ifndef STEPTAPE_COUNTS_ALLOCATIONS
    GTEST_SKIP() << "the sanitizers have an allocator of their own";
#endif
  }

  std::string path_;
};

TEST_F(PlayerAllocationTest, NoneOnTheForwardPathOnceItIsWarm) {
  Player player = load(path_);
  Player clone = player.clone();
  for (Player* each : {&player, &clone}) {
    PlayerStep act = each->step("act");
    for (const std::int64_t count : {1, 16}) {
      const std::vector<at::Tensor> inputs = {at::randn({count, 8})};
      const std::vector<at::Tensor> results = {at::empty({count, 4})};
      ASSERT_TRUE(act.check(inputs));
      for (int i = 0; i < 3; ++i) act.run_into(inputs, results);
      const std::uint64_t before = allocations;
      for (int i = 0; i < 100; ++i) act.run_into(inputs, results);
      EXPECT_EQ(allocations - before, 0U) << count << " observations:\n" << player.explain();
      EXPECT_TRUE(same_bits(results[0], act(inputs[0])));
    }
  }
}

/// That the counter counts.
TEST_F(PlayerAllocationTest, CallsThatReturnTensorsAllocate) {
  Player player = load(path_);
  const std::vector<at::Tensor> inputs = {at::randn({1, 8})};
  const std::uint64_t before = allocations;
  player.step("act").run(inputs);
  EXPECT_GT(allocations - before, 0U);
}

}  // namespace
}  // namespace steptape::tests
