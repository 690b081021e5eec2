#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "trace/model.h"

namespace steptape::recorder {

/// A set of byte positions, as disjoint half-open ranges.
class ByteRanges {
 public:
  void add(std::uint64_t begin, std::uint64_t end);
  void remove(std::uint64_t begin, std::uint64_t end);
  bool covers(std::uint64_t begin, std::uint64_t end) const;
  bool is_empty() const { return ranges_.empty(); }

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  ///< begin to end; neighbours are merged
};

/// Whether all bytes that the elements of `tensor` lie in are among `ranges`.
bool covers(const ByteRanges& ranges, const trace::Tensor& tensor);

/// What a copy from `source` to `target`, of the same sizes and dtype, leaves of the bytes that
/// somebody wrote: where the others go, nobody has written any more. Goes over all elements.
void copy_written(const ByteRanges& from, const trace::Tensor& source, ByteRanges& to,
                  const trace::Tensor& target);

/// Calls `visit(begin, end)` for the byte ranges in the buffer that the elements of `tensor` lie
/// in. Exact up to 4,096 ranges; a tensor scattered more than that counts as one range.
void for_each_range(const trace::Tensor& tensor,
                    const std::function<void(std::uint64_t, std::uint64_t)>& visit);

}  // namespace steptape::recorder
