#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/session/training.h"

namespace steptape::tests {

/// A training with a step that learns, from 16 digits, and one that predicts, for 16 or for 4, both
/// taped and saved with their state; and it can go on.
class TaughtTest : public ::testing::Test {
 protected:
  TaughtTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("steptape_taught_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    session_.track("model", taught_.model).track("optimizer", taught_.optimizer);
    torch::manual_seed(3);
    for (const Batch& batch : make_batches(6)) {
      learn_(batch.images, batch.labels);
      predict(batch.images);
      predict(batch.images.slice(0, 0, 4).clone());
    }
    EXPECT_GE(learn_.stats().replayed, 1U) << learn_.explain();
    EXPECT_GE(predict_.stats().replayed, 1U) << predict_.explain();
  }
  ~TaughtTest() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string saved() {
    session_.save(path("run.tape"), Session::State::kWith);
    return path("run.tape");
  }
  at::Tensor predict(const at::Tensor& images) {
    taught_.model->eval();
    at::Tensor scores = predict_(images);
    taught_.model->train();
    return scores;
  }

  std::filesystem::path folder_;
  AdamTraining taught_{{true, 0.25}, torch::optim::AdamOptions(0.01)};
  Session session_{quiet()};
  Step<at::Tensor(at::Tensor, at::Tensor)> learn_ = session_.wrap(
      "learn",
      [this](at::Tensor images, at::Tensor labels) { return taught_.step(images, labels); });
  Step<at::Tensor(at::Tensor)> predict_ = session_.wrap("predict", [this](at::Tensor images) {
    const at::NoGradGuard no_grad;
    return taught_.model->forward(images);
  });
};

}  // namespace steptape::tests
