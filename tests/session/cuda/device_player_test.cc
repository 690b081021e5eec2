#include <gmock/gmock.h>

#include <filesystem>
#include <random>

#include "steptape/player.h"
#include "tests/session/cuda/device_training.h"

namespace steptape::tests {
namespace {

namespace nn = torch::nn;

/// A classifier over an embedding whose step was recorded on the device and saved with its state.
class DevicePlayerTest : public DeviceTest {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    model_->push_back(nn::Embedding(kWords, 4));
    model_->push_back(nn::Flatten());
    model_->push_back(nn::Linear(8, 3));
    model_->to(at::kCUDA);
    optimizer_ =
        std::make_unique<torch::optim::Adam>(model_->parameters(), torch::optim::AdamOptions(0.01));
    Session session(quiet());
    session.track("model", model_.ptr()).track("optimizer", *optimizer_);
    auto learn = session.wrap("learn", [&](at::Tensor x) { return this->learn(x); });
    auto predict = session.wrap("predict", [&](at::Tensor x) { return this->predict(x); });
    for (int i = 0; i < 8; ++i) {
      learn(on_device(batch(i)));
      predict(on_device(batch(i)));
    }
    path_ = std::filesystem::temp_directory_path() /
            ("steptape_device_player_" + std::to_string(std::random_device()()) + ".tape");
    session.save(path_.string(), Session::State::kWith);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  at::Tensor learn(const at::Tensor& x) {
    optimizer_->zero_grad();
    at::Tensor loss = model_->forward(x).square().mean();
    loss.backward();
    optimizer_->step();
    return loss.detach();
  }
  at::Tensor predict(const at::Tensor& x) {
    const torch::NoGradGuard without;
    return model_->forward(x).argmax(1);
  }

  static at::Tensor batch(int call) {
    return (torch::arange(6).reshape({3, 2}) * 5 + call) % kWords;
  }

  static constexpr std::int64_t kWords = 20;
  nn::Sequential model_;
  std::unique_ptr<torch::optim::Adam> optimizer_;
  std::filesystem::path path_;
};

TEST_F(DevicePlayerTest, GoesOnAsTheTrainingDoes) {
  Player player = load(path_.string());
  PlayerStep learn = player.step("learn");
  for (int call = 8; call < 20; ++call) {
    const at::Tensor expected = this->learn(on_device(batch(call)));
    const at::Tensor x = call % 2 == 0 ? batch(call) : on_device(batch(call));
    const at::Tensor found = learn.run(std::vector{x}).at(0);
    EXPECT_TRUE(found.is_cuda());
    EXPECT_TRUE(same_bits(found.cpu(), expected.cpu())) << call;
  }
  EXPECT_TRUE(
      same_bits(player.tensor("model.0.weight").cpu(), model_->parameters()[0].detach().cpu()));
  EXPECT_EQ(player.memory().published, 0U);
}

TEST_F(DevicePlayerTest, ClonesReadWhatWasPublished) {
  Player player = load(path_.string());
  Player reader = player.clone();
  const at::Tensor x = batch(1);
  const auto predicted = [&x](Player& by) {
    at::Tensor result = torch::empty({3}, at::kLong);  // of the host
    std::vector<at::Tensor> results{result};
    by.step("predict").run_into(std::vector{x}, results);
    return result;
  };
  const at::Tensor before = predicted(reader);
  EXPECT_TRUE(same_bits(before, predict(on_device(x)).cpu()));
  for (int call = 8; call < 60; ++call) {
    learn(on_device(batch(call)));
    player.step("learn").run(std::vector{batch(call)});
    EXPECT_TRUE(same_bits(predicted(player), predict(on_device(x)).cpu())) << call;
    if (call % 10 == 0) player.publish();
    if (call % 10 == 0) {
      EXPECT_TRUE(
          same_bits(reader.tensor("model.0.weight").cpu(), model_->parameters()[0].detach().cpu()));
    }
  }
  EXPECT_TRUE(same_bits(predicted(reader), predicted(reader)));
}

TEST_F(DevicePlayerTest, AnIndexBeyondItsTableIsRefusedBeforeTheDeviceSeesIt) {
  Player player = load(path_.string());
  PlayerStep learn = player.step("learn");
  for (const at::Tensor& x : {batch(1) + kWords, on_device(batch(1) + kWords)}) {
    try {
      learn.run(std::vector{x});
      ADD_FAILURE() << "ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("indices from 0 to 19"));
    }
  }
  EXPECT_TRUE(learn.run(std::vector{batch(1)}).at(0).isfinite().item<bool>());
}

TEST_F(DevicePlayerTest, AnotherDeviceIsRefused) {
  for (const char* device : {"cpu", "cuda:1"}) {
    LoadOptions options;
    options.device = device;
    EXPECT_THROW(load(path_.string(), options), Error) << device;
  }
  LoadOptions options;
  options.device = "cuda";
  EXPECT_EQ(load(path_.string(), options).steps().size(), 2U);
}

}  // namespace
}  // namespace steptape::tests
