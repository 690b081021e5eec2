#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

namespace steptape::replayer {

/// Bytes that something of a plan reads or writes: at their addresses, or from the start of a
/// storage whose memory each run is given anew.
struct Use {
  /// Null: memory that stays where it is. Buffers of it that do not live at the same time share
  /// bytes.
  using Storage = const c10::StorageImpl*;

  Storage storage = nullptr;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool is_write = false;
  bool is_element = true;  ///< element by element; else as a number, before anything is done
  std::size_t by = 0;      ///< who: the caller's to say

  /// Of all bytes from the first element to the last: before the first run of a plan, or in a run,
  /// where all memory has its address.
  static Use of(const at::Tensor& tensor, bool is_write);

  bool overlaps(const Use& other) const { return begin < other.end && other.begin < end; }
  bool conflicts_with(const Use& other) const {
    return (is_write || other.is_write) && overlaps(other);
  }
  bool covers(const Use& other) const { return begin <= other.begin && other.end <= end; }
};

/// Uses of one storage, found by their bytes. Uses of the same bytes by one are one.
class Uses {
 public:
  void add(const Use& use);

  /// Calls `visit` for those that conflict with `use`.
  template <typename Visit>
  void for_each_conflict(const Use& use, Visit&& visit) const {
    auto at = uses_.lower_bound(use.begin - std::min(use.begin, longest_));
    for (; at != uses_.end() && at->first < use.end; ++at) {
      if (use.conflicts_with(at->second)) visit(at->second);
    }
  }

  /// Forgets those whose bytes `use` covers.
  void forget_covered(const Use& use);

 private:
  std::multimap<std::uintptr_t, Use> uses_;
  std::uintptr_t longest_ = 0;
};

}  // namespace steptape::replayer
