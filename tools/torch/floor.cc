#include "tools/torch/floor.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "live/operators.h"
#include "live/values.h"
#include "replayer/runtime/cpu/kernels/products/sgemm.h"
#include "replayer/runtime/tensor_on.h"

namespace steptape::tools {
namespace {

using Clock = std::chrono::steady_clock;

/// Of the best of several rounds, since everything that disturbs makes them longer.
template <typename Run>
double best_us(Run&& run) {
  constexpr int kRounds = 7;
  const auto timed = [&](int count) {
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) run();
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / count;
  };
  const int count = std::max(1, static_cast<int>(300 / std::max(0.1, timed(3))));
  double best = timed(count);
  for (int round = 1; round < kRounds; ++round) best = std::min(best, timed(count));
  return best;
}

/// Bytes read and written in a microsecond by a copy that the second-level cache holds.
double bandwidth() {
  static const double bytes = [] {
    constexpr std::size_t kBytes = std::size_t{64} << 10;
    std::vector<char> from(kBytes, 1), to(kBytes);
    return 2.0 * kBytes / best_us([&] {
             std::memcpy(to.data(), from.data(), kBytes);
             asm volatile("" : : "r"(to.data()) : "memory");
           });
  }();
  return bytes;
}

using Shape = std::array<int, 3>;

double product_us(const Shape& shape) {
  static std::map<std::pair<Shape, int>, double> known;
  const std::pair key(shape, at::get_num_threads());
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  const auto [m, n, k] = shape;
  const at::Tensor a = at::randn({k, m}), b = at::randn({n, k}), c = at::empty({n, m});
  const float one = 1, zero = 0;
  const auto run = [&, m = m, n = n, k = k] {
    replayer::cpu::blas().sgemm("n", "n", &m, &n, &k, &one, a.const_data_ptr<float>(), &m,
                                b.const_data_ptr<float>(), &k, &zero, c.mutable_data_ptr<float>(),
                                &m);
  };
  return known[key] = best_us(run);
}

class Floor {
 public:
  explicit Floor(const trace::Recording& recording) : recording_(recording) {}

  double us_of(const trace::Op& op) const {
    const trace::Operator& name = recording_.operator_of(op);
    if (name.name == "aten::mm") return product_of(op, 0);
    if (name.name == "aten::bmm") return product_of(op, 0);
    if (name.name == "aten::addmm" || name.name == "aten::baddbmm") return product_of(op, 1);
    const auto handle = live::find_operator(name);
    if (!handle || live::effects_of(*handle).is_view) return 0;
    if (is_heavy(name.name)) return call_us(op, *handle);
    return bytes_of(op) / bandwidth();
  }

 private:
  const trace::Tensor& tensor(const trace::Value& value) const {
    return recording_.tensors[std::get<trace::TensorRef>(value.data).id];
  }

  static bool is_heavy(const std::string& name) {
    return name.find("convolution") != std::string::npos ||
           name.find("rnn_layer") != std::string::npos ||
           name.find("attention") != std::string::npos;
  }

  double product_of(const trace::Op& op, std::size_t first) const {
    const auto& a = tensor(op.inputs[first]).sizes;
    const auto& b = tensor(op.inputs[first + 1]).sizes;
    const std::size_t rank = a.size();
    const auto batch = rank == 3 ? static_cast<double>(a[0]) : 1;
    return batch * product_us({static_cast<int>(b[rank - 1]), static_cast<int>(a[rank - 2]),
                               static_cast<int>(a[rank - 1])});
  }

  double bytes_of(const trace::Op& op) const {
    double bytes = 0;
    const auto add = [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      const trace::Tensor& tensor = recording_.tensors[id];
      double count = 1;
      for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
        count *= tensor.strides[i] == 0 ? 1.0 : static_cast<double>(tensor.sizes[i]);
      }
      bytes += count * static_cast<double>(trace::bytes_of(tensor.dtype));
    };
    for (const trace::Value& value : op.inputs) for_each_tensor(value, add);
    for (const trace::Value& value : op.outputs) for_each_tensor(value, add);
    return bytes;
  }

  /// By the dispatcher, on made-up numbers: what the call itself costs beside it does not show.
  double call_us(const trace::Op& op, const c10::OperatorHandle& handle) const {
    std::map<trace::TensorId, at::Tensor> tensors;
    const auto made = [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return at::Tensor();
      const trace::Tensor& like = recording_.tensors[id];
      const trace::Buffer& buffer = recording_.buffers[like.buffer];
      const c10::Storage storage = replayer::allocate(buffer.bytes, buffer.address_mod_64);
      std::memset(storage.mutable_data(), 0, buffer.bytes);
      return tensors[id] = replayer::tensor_on(storage, like);
    };
    std::vector<c10::IValue> arguments;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      arguments.push_back(live::ivalue_of(op.inputs[i], *handle.schema().arguments()[i].type(),
                                          made,
                                          [](const std::string&) -> at::Generator { return {}; }));
    }
    torch::jit::Stack stack;
    return best_us([&] {
      stack = arguments;
      handle.callBoxed(stack);
    });
  }

  const trace::Recording& recording_;
};

}  // namespace

std::vector<double> floors_us(const trace::Recording& recording) {
  const Floor floor(recording);
  std::vector<double> us;
  for (const trace::Op& op : recording.ops) us.push_back(floor.us_of(op));
  return us;
}

double floor_us(const trace::Recording& recording) {
  const std::vector<double> us = floors_us(recording);
  return std::accumulate(us.begin(), us.end(), 0.0);
}

}  // namespace steptape::tools
