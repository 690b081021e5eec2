#include <algorithm>
#include <cmath>

#include "replayer/runtime/cpu/kernels/dispatch.h"
#include "replayer/runtime/cpu/kernels/floats.h"
#include "replayer/runtime/cpu/kernels/sums.h"
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

}  // namespace steptape::replayer::cpu
