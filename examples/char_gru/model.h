#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/pimpl.h>

#include <utility>
#include <vector>

namespace char_gru {

/// Foretells the next character from all before it: a GRU cell over embedded characters.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(std::int64_t alphabet)
      : embedding_(register_module("embedding", torch::nn::Embedding(alphabet, 32))),
        cell_(register_module("cell", torch::nn::GRUCell(32, kHidden))),
        head_(register_module("head", torch::nn::Linear(kHidden, alphabet))) {}

  /// For `characters`, int64 [length, streams], and the hidden state [streams, kHidden] before
  /// them: logits [length, streams, alphabet] and the hidden state after them.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& characters, at::Tensor hidden) {
    std::vector<at::Tensor> states;
    for (const auto& character : embedding_->forward(characters).unbind(0)) {
      hidden = cell_->forward(character, hidden);
      states.push_back(hidden);
    }
    return {head_->forward(at::stack(states)), hidden};
  }

  /// The hidden state before a text begins.
  static at::Tensor silence(std::int64_t streams) { return at::zeros({streams, kHidden}); }

 private:
  static constexpr std::int64_t kHidden = 96;

  torch::nn::Embedding embedding_;
  torch::nn::GRUCell cell_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Net);

}  // namespace char_gru
