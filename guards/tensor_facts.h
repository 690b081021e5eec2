#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "live/hooks.h"
#include "trace/model.h"

namespace steptape::guards {

/// What the tracked tensors of a plan must be, packed so that looking at one takes few loads. Only
/// says whether all is as expected: TrackedGuard finds the words for what is not.
class TensorFacts {
 public:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  /// A tensor that lives, by its owner: the tensor itself, or of a gradient its parameter.
  struct Fact {
    Weak owner;
    std::uint64_t keys = 0;  ///< dispatch keys of a tensor that passed: they give device and layout
    std::int64_t offset = 0;
    std::size_t bytes = 0;  ///< of the buffer
    std::uint32_t shape = 0, hooks = 0;
    std::int32_t position = -1;  ///< of the buffer's memory; -1: the plan does not use it
    std::uint8_t dtype = 0, address_mod_64 = 0;
    bool is_gradient : 1 = false;
    bool is_none : 1 = false;
    bool requires_grad : 1 = false;
    bool is_wrapped_number : 1 = false;
  };

  /// `geometry` and `buffer` null: a gradient that is None. `position` as in Fact.
  void add(Weak owner, bool is_gradient, bool requires_grad, const live::Hooks& hooks,
           const trace::Tensor* geometry, const trace::Buffer* buffer, std::int64_t position);
  /// Notes the dispatch keys of the tensor of fact `k`, which was found as it must be.
  void renew(std::size_t k, const at::Tensor& tensor) {
    if (tensor.defined()) facts_[k].keys = tensor.key_set().raw_repr();
  }

  /// Looks at all in order and writes where their memory is; the first that is not as expected, or
  /// size(). Two that lie on one position must lie in one memory.
  std::size_t first_broken(std::size_t from, std::span<void*> memory) const;
  std::size_t size() const { return facts_.size(); }

 private:
  bool holds(const Fact& fact, std::span<void*> memory) const;
  bool has_shape(const c10::TensorImpl& tensor, std::uint32_t shape) const;

  std::vector<Fact> facts_;
  std::vector<std::int64_t> shapes_;  ///< of each: dimensions, sizes, strides
  std::map<std::vector<std::int64_t>, std::uint32_t> shape_at_;
  std::vector<live::Hooks> hooks_;
};

}  // namespace steptape::guards
