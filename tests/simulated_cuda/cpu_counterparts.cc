#include "tests/simulated_cuda/cpu_counterparts.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

// The formulas and the layout of the workspaces are those of aten/src/ATen/native/cuda/RNN.cu.

namespace steptape::tests::simulated {
namespace {

using at::Tensor;
using Bias = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const Bias& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

/// dx of y = sigmoid(x), and of y = tanh(x).
Tensor sigmoid_gradient(const Tensor& gradient, const Tensor& y) { return gradient * (1 - y) * y; }
Tensor tanh_gradient(const Tensor& gradient, const Tensor& y) { return gradient * (1 - y * y); }

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                             const Tensor& cx, const Bias& input_bias,
                                             const Bias& hidden_bias) {
  const Tensor gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto part = gates.chunk(4, 1);
  const Tensor in = part[0].sigmoid(), forget = part[1].sigmoid(), cell = part[2].tanh(),
               out = part[3].sigmoid();
  const Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Bias& grad_hy, const Bias& grad_cy,
                                                      const Tensor& cx, const Tensor& cy,
                                                      const Tensor& workspace, bool has_bias) {
  const bool has_any = (grad_hy && grad_hy->defined()) || (grad_cy && grad_cy->defined());
  if (!has_any) return {};
  const auto part = workspace.chunk(4, 1);
  const Tensor &in = part[0], &forget = part[1], &cell = part[2], &out = part[3];
  const Tensor gradient = grad_hy && grad_hy->defined() ? *grad_hy : at::zeros_like(cx);
  const Tensor tanh_cy = cy.tanh();
  Tensor to_cell = tanh_gradient(gradient * out, tanh_cy);
  if (grad_cy && grad_cy->defined()) to_cell = to_cell + *grad_cy;
  const Tensor gates =
      at::cat({sigmoid_gradient(to_cell * cell, in), sigmoid_gradient(to_cell * cx, forget),
               tanh_gradient(to_cell * in, cell), sigmoid_gradient(gradient * tanh_cy, out)},
              1);
  return {gates, to_cell * forget, has_bias ? gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates,
                                    const Tensor& hx, const Bias& input_bias,
                                    const Bias& hidden_bias) {
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (input[0] + hidden[0]).sigmoid();
  const Tensor update = (input[1] + hidden[1]).sigmoid();
  const Tensor fresh = (input[2] + reset * hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy,
                                                                     const Tensor& workspace,
                                                                     bool has_bias) {
  const auto part = workspace.chunk(5, 1);
  const Tensor &reset = part[0], &update = part[1], &fresh = part[2], &hx = part[3],
               &hidden_fresh = part[4];
  const Tensor to_update = sigmoid_gradient(grad_hy * (hx - fresh), update);
  const Tensor to_fresh = tanh_gradient(grad_hy * (1 - update), fresh);
  const Tensor to_reset = sigmoid_gradient(to_fresh * hidden_fresh, reset);
  const Tensor input = at::cat({to_reset, to_update, to_fresh}, 1);
  const Tensor hidden = at::cat({to_reset, to_update, to_fresh * reset}, 1);
  return {input, hidden, grad_hy * update, has_bias ? input.sum(0) : Tensor(),
          has_bias ? hidden.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& gradient, const Tensor& input,
                                             at::IntArrayRef shape, const Tensor& rstd,
                                             const Bias& weight, std::array<bool, 2> mask) {
  const bool has_weight = weight && weight->defined();
  std::vector<std::int64_t> normalized, outer;
  for (std::int64_t i = 0; i < input.dim(); ++i)
    (i + static_cast<std::int64_t>(shape.size()) < input.dim() ? outer : normalized).push_back(i);
  const Tensor scaled = has_weight ? gradient * *weight : gradient;
  const Tensor unit = input * rstd;
  const Tensor to_input = rstd * (scaled - unit * (scaled * unit).mean(normalized, true));
  const Tensor to_weight = outer.empty() ? gradient * unit : (gradient * unit).sum(outer);
  return {mask[0] ? to_input : Tensor(), mask[1] && has_weight ? to_weight : Tensor()};
}

}  // namespace

void register_cpu_counterparts() {
  static auto& library =
      *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library.impl("_thnn_fused_lstm_cell", &lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", &gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
  library.impl("_fused_rms_norm_backward", &rms_norm_backward);
}

}  // namespace steptape::tests::simulated
