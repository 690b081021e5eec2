#include "tests/session/cuda/device_training.h"

namespace steptape::tests {
namespace {

/// What ../hazards trains, it trains on the device in these programs.
class OnDevice : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "this machine has no CUDA device";
    at::globalContext().setDeterministicAlgorithms(true, false);
    train_on(c10::Device(c10::kCUDA, 0));
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

const ::testing::Environment* const kOnDevice = ::testing::AddGlobalTestEnvironment(new OnDevice());

}  // namespace
}  // namespace steptape::tests
