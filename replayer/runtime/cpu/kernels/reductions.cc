#include <algorithm>
#include <cmath>
#include <vector>

#include "replayer/runtime/cpu/kernels/floats.h"
#include "replayer/runtime/cpu/kernels/planes.h"
#include "replayer/runtime/cpu/kernels/table.h"

namespace steptape::replayer::cpu {
namespace {

/// The sums of the columns of a float32 matrix.
class ColumnSums final : public Kernel {
 public:
  ColumnSums(const Call& call, at::Tensor matrix, std::int64_t rows, at::Tensor out)
      : call_(call), matrix_(std::move(matrix)), rows_(rows), out_(std::move(out)) {}

  void run() override {
    auto* const out = writable_floats_of(out_);
    const std::int64_t columns = out_.numel();
    sums::down(floats_of(matrix_), rows_, columns, out);
    if (std::any_of(out, out + columns, [](float sum) { return std::isnan(sum); }))
      dispatch(call_, {out_});
  }

 private:
  const Call& call_;
  at::Tensor matrix_;
  std::int64_t rows_;
  at::Tensor out_;
};

/// How many leading dimensions `dimensions` are, if they are such and no others; else 0.
std::size_t leading(std::vector<std::int64_t> dimensions, std::int64_t rank) {
  for (std::int64_t& dimension : dimensions) dimension += dimension < 0 ? rank : 0;
  std::ranges::sort(dimensions);
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (dimensions[i] != static_cast<std::int64_t>(i)) return 0;
  }
  return dimensions.size();
}

/// aten::sum.IntList_out(self, dim, keepdim, dtype, out)
Preparation make_sum(const KernelSite& site) {
  const auto& given = site.call.arguments;
  const at::Tensor& matrix = given[0].toTensor();
  const at::Tensor& out = site.results.at(0);
  const bool is_float = matrix.scalar_type() == at::kFloat && out.scalar_type() == at::kFloat;
  const std::size_t count = given[1].isNone() ? 0 : leading(given[1].toIntVector(), matrix.dim());
  std::int64_t rows = 1;
  for (std::size_t i = 0; i < count; ++i) rows *= matrix.size(static_cast<std::int64_t>(i));
  if (!is_float || !matrix.is_contiguous() || !out.is_contiguous() || rows < 2 || out.numel() < 2 ||
      !is_for_one_thread(matrix.numel())) {
    return Preparation::refused("no sum of float32 columns");
  }
  return {std::make_unique<ColumnSums>(site.call, matrix, rows, out), {}};
}

}  // namespace

void add_reduction_kernels(KernelTable& table) {
  table.add("aten::sum.IntList_out", &with_atens_vectors<make_sum>);
}

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
