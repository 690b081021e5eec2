#include "recorder/byte_ranges.h"

#include <algorithm>
#include <vector>

namespace steptape::recorder {
namespace {

constexpr std::uint64_t kMostRanges = 4096;

struct Dimension {
  std::uint64_t stride;  ///< in bytes
  std::uint64_t size;
};

std::vector<Dimension> dimensions_of(const trace::Tensor& tensor) {
  const std::uint64_t item = trace::bytes_of(tensor.dtype);
  std::vector<Dimension> dimensions;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] == 1 || tensor.strides[d] == 0) continue;
    dimensions.push_back({static_cast<std::uint64_t>(tensor.strides[d]) * item,
                          static_cast<std::uint64_t>(tensor.sizes[d])});
  }
  std::ranges::sort(dimensions, {}, &Dimension::stride);
  return dimensions;
}

}  // namespace

void ByteRanges::add(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= begin) --next;
  while (next != ranges_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = ranges_.erase(next);
  }
  ranges_.emplace(begin, end);
}

void ByteRanges::remove(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second > begin) --next;
  while (next != ranges_.end() && next->first < end) {
    const auto [first, last] = *next;
    next = ranges_.erase(next);
    if (first < begin) ranges_.emplace(first, begin);
    if (last > end) ranges_.emplace(end, last);
  }
}

bool ByteRanges::covers(std::uint64_t begin, std::uint64_t end) const {
  if (begin >= end) return true;
  auto next = ranges_.upper_bound(begin);
  return next != ranges_.begin() && std::prev(next)->second >= end;
}

void for_each_range(const trace::Tensor& tensor,
                    const std::function<void(std::uint64_t, std::uint64_t)>& visit) {
  const auto [first, last] = tensor.byte_range();
  if (first == last) return;
  auto dimensions = dimensions_of(tensor);
  std::uint64_t run = trace::bytes_of(tensor.dtype);
  auto inner = dimensions.begin();
  for (; inner != dimensions.end() && inner->stride <= run; ++inner) {
    run += (inner->size - 1) * inner->stride;
  }
  dimensions.erase(dimensions.begin(), inner);
  std::uint64_t ranges = 1;
  for (const Dimension& dimension : dimensions) {
    ranges = std::min(kMostRanges + 1, ranges * dimension.size);
  }
  if (ranges > kMostRanges) return visit(first, last);
  for (std::uint64_t k = 0; k < ranges; ++k) {
    std::uint64_t begin = first;
    std::uint64_t rest = k;
    for (const Dimension& dimension : dimensions) {
      begin += rest % dimension.size * dimension.stride;
      rest /= dimension.size;
    }
    visit(begin, begin + run);
  }
}

void copy_written(const ByteRanges& from, const trace::Tensor& source, ByteRanges& to,
                  const trace::Tensor& target) {
  const std::int64_t elements = source.numel();
  const std::uint64_t item = trace::bytes_of(source.dtype);
  const auto at = [item](const trace::Tensor& tensor, std::int64_t element) {
    std::int64_t offset = tensor.offset;
    for (std::size_t d = tensor.sizes.size(); d-- > 0;) {
      offset += element % tensor.sizes[d] * tensor.strides[d];
      element /= tensor.sizes[d];
    }
    return static_cast<std::uint64_t>(offset) * item;
  };
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::uint64_t begin = at(source, i);
    const std::uint64_t into = at(target, i);
    from.covers(begin, begin + item) ? to.add(into, into + item) : to.remove(into, into + item);
  }
}

bool covers(const ByteRanges& ranges, const trace::Tensor& tensor) {
  bool is_covered = true;
  for_each_range(tensor, [&](std::uint64_t begin, std::uint64_t end) {
    is_covered = is_covered && ranges.covers(begin, end);
  });
  return is_covered;
}

}  // namespace steptape::recorder
