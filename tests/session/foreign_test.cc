#include <ATen/Parallel.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/functorch/DynamicLayer.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <fstream>

#include "tests/session/training.h"

namespace steptape::tests {
namespace {

/// What stands around a step, or comes into it, that no plan can hold: named, and the step runs
/// eagerly.
bool was_refused(const Stats& stats, RefusalCode code) {
  for (const CountedRefusal& counted : stats.refusals) {
    if (counted.refusal.code == code) return stats.replayed == 0;
  }
  return false;
}

TEST(ForeignTest, AFunctorchTransformIsNamed) {
  Session session(quiet());
  auto step = session.wrap("step", [](at::Tensor x) { return x * 2; });
  at::functorch::initAndPushDynamicLayer(at::functorch::TransformType::Vmap, 4,
                                         at::functorch::RandomnessType::Error);
  for (int i = 0; i < 6; ++i) step(at::ones({4}));
  at::functorch::popDynamicLayerAndDeleteMetadata();
  EXPECT_TRUE(was_refused(step.stats(), RefusalCode::kDispatchMode)) << step.explain();
}

TEST(ForeignTest, ATensorOnADeviceThatNobodyServesIsNamed) {
  std::vector<float> bytes(4);
  const c10::Device device(c10::kPrivateUse1, 0);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes.size() * sizeof(float),
                             at::DataPtr(bytes.data(), device), nullptr, false);
  at::Tensor far = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(at::kFloat));
  far.unsafeGetTensorImpl()->set_sizes_contiguous({4});
  Session session(quiet());
  auto step = session.wrap("step", [](at::Tensor x, at::Tensor) { return x * 2; });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::rand({4});
    EXPECT_TRUE(same_bits(step(x, far), x * 2));
  }
  EXPECT_TRUE(was_refused(step.stats(), RefusalCode::kDevice)) << step.explain();
}

/// A tensor of a class that answers no question.
struct Mute : c10::TensorImpl {
  Mute()
      : c10::TensorImpl(c10::DispatchKeySet(c10::DispatchKey::CPU),
                        c10::scalarTypeToTypeMeta(at::kFloat), c10::Device(c10::kCPU)) {
    set_custom_sizes_strides(SizesStridesPolicy::CustomSizes);
  }
  at::IntArrayRef sizes_custom() const override { throw std::runtime_error("no sizes"); }
};

TEST(ForeignTest, WhatTheRecorderDoesNotUnderstandStopsTheRecordingAlone) {
  auto library = c10::RegisterOperators().op(
      "steptape_test::ignore(Tensor mute, Tensor x) -> Tensor",
      c10::RegisterOperators::options().kernel(
          c10::DispatchKey::CPU, [](const at::Tensor&, const at::Tensor& x) { return x.clone(); }));
  const auto ignore = c10::Dispatcher::singleton()
                          .findSchemaOrThrow("steptape_test::ignore", "")
                          .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  const at::Tensor mute = at::detail::make_tensor<Mute>();
  Session session(quiet());
  auto step = session.wrap("step", [&](at::Tensor x) { return ignore.call(mute, x) * 2; });
  for (int i = 0; i < 6; ++i) {
    const at::Tensor x = at::rand({4});
    EXPECT_TRUE(same_bits(step(x), x * 2)) << step.explain();
  }
  EXPECT_EQ(step.stats().replayed, 0U);
  EXPECT_FALSE(step.stats().refusals.empty()) << step.explain();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Address space in use, in bytes.
std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

TEST(ForeignDeathTest, WithoutMemoryForATrialTheStepRunsEagerly) {
  const auto run = [] {
    at::set_num_threads(1);
    at::Tensor big = at::zeros({std::int64_t{256} << 20});
    Session session(quiet());
    session.track("big", big);
    auto step = session.wrap("step", [&](at::Tensor x) { big.add_(x); });
    for (int i = 0; i < 2; ++i) step(at::ones({1}));
    const std::size_t limit = address_space() + (std::size_t{512} << 20);
    const rlimit memory{limit, limit};
    setrlimit(RLIMIT_AS, &memory);
    for (int i = 0; i < 4; ++i) step(at::ones({1}));
    const bool right = big[0].item<float>() == 6 && big[-1].item<float>() == 6;
    std::exit(right && was_refused(step.stats(), RefusalCode::kTrialSkipped) ? 7 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(7), "");
}
#endif

}  // namespace
}  // namespace steptape::tests
