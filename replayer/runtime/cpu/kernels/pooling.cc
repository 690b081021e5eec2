#include <vector>

#include "replayer/runtime/cpu/kernels/floats.h"
#include "replayer/runtime/cpu/kernels/table.h"
#include "replayer/runtime/cpu/kernels/windows.h"

namespace steptape::replayer::cpu {
namespace {

class MaxPool final : public Kernel {
 public:
  MaxPool(at::Tensor in, at::Tensor out, at::Tensor places, windows::Side height,
          windows::Side width)
      : in_(std::move(in)),
        out_(std::move(out)),
        places_(std::move(places)),
        height_(height),
        width_(width) {}

  void run() override {
    const auto* in = floats_of(in_);
    auto* out = writable_floats_of(out_);
    auto* places = static_cast<std::int64_t*>(places_.mutable_data_ptr());
    const std::int64_t size = height_.out * width_.out;
    const std::int64_t planes = out_.numel() / size;
    for (std::int64_t i = 0; i < planes; ++i, out += size, places += size) {
      windows::largest(in, height_, width_, out, places);
      in += height_.in * width_.in;
    }
  }

 private:
  at::Tensor in_, out_, places_;
  windows::Side height_, width_;
};

/// The `dimension`-th of a list that may have one number for both, or none for `otherwise`.
std::int64_t side_of(const c10::IValue& list, std::size_t dimension, std::int64_t otherwise) {
  const std::vector<std::int64_t> numbers = list.toIntVector();
  if (numbers.empty()) return otherwise;
  return numbers.size() == 1 ? numbers[0] : numbers.at(dimension);
}

/// aten::max_pool2d_with_indices.out(self, kernel_size, stride, padding, dilation, ceil_mode, out,
/// indices)
Preparation make_max_pool(const KernelSite& site) {
  const auto& given = site.call.arguments;
  const at::Tensor& in = given[0].toTensor();
  const at::Tensor& out = site.results.at(0);
  const at::Tensor& places = site.results.at(1);
  const bool is_good = in.scalar_type() == at::kFloat && in.is_contiguous() &&
                       in.suggest_memory_format() == at::MemoryFormat::Contiguous &&
                       out.is_contiguous() && places.is_contiguous() && out.numel() != 0 &&
                       in.size(-1) * in.size(-2) <= INT32_MAX &&
                       is_for_one_thread(in.numel(), kGainOverPlanes);
  if (!is_good) return Preparation::refused("no float32 planes row by row");
  const auto side = [&](std::size_t i) {
    const std::int64_t kernel = side_of(given[1], i, 1);
    const auto dimension = static_cast<std::int64_t>(i) - 2;
    return windows::Side{.in = in.size(dimension),
                         .out = out.size(dimension),
                         .kernel = kernel,
                         .stride = side_of(given[2], i, kernel),
                         .padding = side_of(given[3], i, 0),
                         .dilation = side_of(given[4], i, 1)};
  };
  return {std::make_unique<MaxPool>(in, out, places, side(0), side(1)), {}};
}

}  // namespace

void add_pooling_kernels(KernelTable& table) {
  table.add("aten::max_pool2d_with_indices.out", &with_atens_vectors<make_max_pool>);
}

}  // namespace steptape::replayer::cpu
