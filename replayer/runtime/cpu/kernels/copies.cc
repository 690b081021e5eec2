#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "replayer/runtime/cpu/kernels/table.h"

namespace steptape::replayer::cpu {
namespace {

/// A part of one of the plan's tensors. A view of it would not follow it to other memory.
struct Part {
  Part(at::Tensor whole) : whole(std::move(whole)), geometry(this->whole) {}
  Part(at::Tensor whole, at::Tensor view) : whole(std::move(whole)), geometry(std::move(view)) {}

  void* address() const {
    return static_cast<char*>(whole.storage().unsafeGetStorageImpl()->mutable_data()) +
           geometry.storage_offset() * static_cast<std::int64_t>(whole.itemsize());
  }

  at::Tensor whole;
  at::Tensor geometry;
};

/// Copies bytes from one geometry to another of the same sizes and dtype: inner stretches that are
/// in one piece on both sides, along as few dimensions as they allow.
class StridedCopy {
 public:
  /// None where there are more dimensions than it follows, or another dtype.
  static std::optional<StridedCopy> make(const Part& source, const Part& target) {
    const at::Tensor& from = source.geometry;
    const at::Tensor& to = target.geometry;
    if (from.scalar_type() != to.scalar_type() || from.sizes() != to.sizes()) return std::nullopt;
    StridedCopy copy(source, target);
    copy.bytes_ = static_cast<std::int64_t>(from.itemsize());
    std::vector<Dimension> dimensions;
    for (std::int64_t i = 0; i < from.dim(); ++i) {
      if (from.size(i) == 0) copy.is_empty_ = true;
      if (from.size(i) == 1) continue;
      dimensions.push_back(
          {from.size(i), from.stride(i) * copy.bytes_, to.stride(i) * copy.bytes_});
    }
    std::ranges::stable_sort(dimensions, std::ranges::greater(), &Dimension::to);
    while (!dimensions.empty() && dimensions.back().from == copy.bytes_ &&
           dimensions.back().to == copy.bytes_) {
      copy.bytes_ *= dimensions.back().size;
      dimensions.pop_back();
    }
    for (const Dimension& outer : dimensions) {
      if (copy.rank_ > 0 && copy.dimensions_[copy.rank_ - 1].goes_on_with(outer)) {
        Dimension& last = copy.dimensions_[copy.rank_ - 1];
        last = {last.size * outer.size, outer.from, outer.to};
        continue;
      }
      if (copy.rank_ == copy.dimensions_.size()) return std::nullopt;
      copy.dimensions_[copy.rank_++] = outer;
    }
    return copy;
  }

  void run() const {
    if (is_empty_) return;
    go(0, static_cast<const char*>(from_.address()), static_cast<char*>(to_.address()));
  }

 private:
  struct Dimension {
    std::int64_t size, from, to;  ///< strides in bytes
    /// Whether the two are one: `inner` lies without a gap in this.
    bool goes_on_with(const Dimension& inner) const {
      return from == inner.from * inner.size && to == inner.to * inner.size;
    }
  };

  void go(std::size_t level, const char* from, char* to) const {
    if (level == rank_) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes_));
      return;
    }
    const Dimension& dimension = dimensions_[level];
    if (level + 1 == rank_ && bytes_ == sizeof(float)) {
      for (std::int64_t i = 0; i < dimension.size; ++i) {
        std::memcpy(to + i * dimension.to, from + i * dimension.from, sizeof(float));
      }
      return;
    }
    for (std::int64_t i = 0; i < dimension.size; ++i) {
      go(level + 1, from + i * dimension.from, to + i * dimension.to);
    }
  }

  StridedCopy(Part from, Part to) : from_(std::move(from)), to_(std::move(to)) {}

  Part from_, to_;
  std::array<Dimension, 4> dimensions_{};
  std::size_t rank_ = 0;
  std::int64_t bytes_ = 0;  ///< of an inner stretch
  bool is_empty_ = false;
};

/// Several copies, perhaps into zeros.
class Copies final : public Kernel {
 public:
  void run() override {
    if (zeroed_.defined()) std::memset(zeroed_.mutable_data_ptr(), 0, zeroed_.nbytes());
    for (const StridedCopy& copy : copies_) copy.run();
  }
  /// False where this copy cannot be made.
  bool add(const Part& from, const Part& to) {
    if (auto copy = StridedCopy::make(from, to)) {
      copies_.push_back(*std::move(copy));
      return true;
    }
    return false;
  }
  /// Fills `tensor`, which has no gaps, with zeros first.
  void zero(const at::Tensor& tensor) { zeroed_ = tensor; }

 private:
  at::Tensor zeroed_;
  std::vector<StridedCopy> copies_;
};

Preparation done(std::unique_ptr<Copies> copies, bool is_good) {
  if (is_good) return {std::move(copies), {}};
  return Preparation::refused("a copy that changes more than strides");
}

Preparation make_copy(const KernelSite& site, const Part& from) {
  auto copies = std::make_unique<Copies>();
  const at::Tensor& to = site.results.at(0);
  // what lies on itself is left to ATen
  const bool is_apart =
      from.whole.storage().unsafeGetStorageImpl() != to.storage().unsafeGetStorageImpl();
  const bool is_good = is_apart && is_for_one_thread(to.numel()) && copies->add(from, to);
  return done(std::move(copies), is_good);
}

Preparation make_clone(const KernelSite& site) {
  return make_copy(site, site.call.arguments.at(0).toTensor());
}
Preparation make_copy_in_place(const KernelSite& site) {
  const at::Tensor from = site.call.arguments.at(1).toTensor();
  if (from.sizes() == site.results.at(0).sizes()) return make_copy(site, from);
  return from.sizes().size() <= site.results.at(0).sizes().size()
             ? make_copy(site, {from, from.expand_as(site.results.at(0))})
             : Preparation::refused("a source of more dimensions");
}

std::int64_t wrapped(std::int64_t dimension, const at::Tensor& tensor) {
  return dimension < 0 ? dimension + tensor.dim() : dimension;
}

Preparation make_cat(const KernelSite& site) {
  const at::Tensor& to = site.results.at(0);
  const std::int64_t dimension = wrapped(site.call.arguments.at(1).toInt(), to);
  auto copies = std::make_unique<Copies>();
  bool is_good = is_for_one_thread(to.numel());
  std::int64_t start = 0;
  for (const at::Tensor& from : site.call.arguments.at(0).toTensorVector()) {
    is_good =
        is_good && from.dim() == to.dim() && from.size(dimension) + start <= to.size(dimension);
    if (!is_good) break;
    is_good = copies->add(from, {to, to.narrow(dimension, start, from.size(dimension))});
    start += from.size(dimension);
  }
  return done(std::move(copies), is_good && start == to.size(dimension));
}

Preparation make_stack(const KernelSite& site) {
  const at::Tensor& to = site.results.at(0);
  const std::int64_t dimension = wrapped(site.call.arguments.at(1).toInt(), to);
  auto copies = std::make_unique<Copies>();
  bool is_good = is_for_one_thread(to.numel());
  std::int64_t place = 0;
  for (const at::Tensor& from : site.call.arguments.at(0).toTensorVector()) {
    is_good = is_good && copies->add(from, {to, to.select(dimension, place++)});
  }
  return done(std::move(copies), is_good);
}

/// The first argument where `part` of the result is, and zeros around it.
Preparation make_padded(const KernelSite& site, const at::Tensor& part) {
  const at::Tensor& to = site.results.at(0);
  auto copies = std::make_unique<Copies>();
  copies->zero(to);
  const bool is_good = to.is_non_overlapping_and_dense() && is_for_one_thread(to.numel()) &&
                       copies->add(site.call.arguments.at(0).toTensor(), {to, part});
  return done(std::move(copies), is_good);
}

/// aten::select_backward(grad_output, input_sizes, dim, index)
Preparation make_select_backward(const KernelSite& site) {
  const auto& given = site.call.arguments;
  return make_padded(site, site.results.at(0).select(given.at(2).toInt(), given.at(3).toInt()));
}

/// aten::slice_backward(grad_output, input_sizes, dim, start, end, step)
Preparation make_slice_backward(const KernelSite& site) {
  const auto& given = site.call.arguments;
  return make_padded(site, site.results.at(0).slice(given.at(2).toInt(), given.at(3).toInt(),
                                                    given.at(4).toInt(), given.at(5).toInt()));
}

}  // namespace

void add_copy_kernels(KernelTable& table) {
  table.add_filling("aten::clone", &make_clone);
  table.add("aten::copy_", &make_copy_in_place);
  table.add("aten::cat.out", &make_cat);
  table.add("aten::stack.out", &make_stack);
  table.add_filling("aten::select_backward", &make_select_backward);
  table.add_filling("aten::slice_backward", &make_slice_backward);
}

}  // namespace steptape::replayer::cpu
