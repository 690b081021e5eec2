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

  /// What one tensor must be.
  struct Expectation {
    bool is_gradient = false;  ///< of the owner, which is its parameter
    bool requires_grad = false;
    live::Hooks hooks;                        ///< of the owner
    int gradient_type = -1;                   ///< of the owner, see live::gradient_type_of
    const trace::Tensor* geometry = nullptr;  ///< null: a gradient that is None
    const trace::Buffer* buffer = nullptr;
    std::int64_t position = -1;  ///< of the buffer's memory; -1: the plan does not use it
    bool is_written = false;     ///< by the plan
  };
  /// `tensor` is the live one, where there is one. A gradient comes right after its parameter, or
  /// anywhere, which is slower.
  void add(Weak owner, const Expectation& expectation, const at::Tensor& tensor);
  /// Notes the dispatch keys of the tensor of fact `k`, which was found as it must be.
  void renew(std::size_t k, const at::Tensor& tensor);

  /// Looks at all from `from` on and writes where their memory is; the first that is not as
  /// expected, or size(). Two that lie on one position must lie in one memory.
  std::size_t first_broken(std::size_t from, std::span<void*> memory) const;
  std::size_t size() const { return facts_.size(); }

  /// A tensor other than a gradient whose memory moved since `forget_moves`, or -1.
  std::int64_t moved() const { return moved_; }
  void forget_moves() const { moved_ = -1; }
  /// Grows whenever memory is elsewhere than in the check before, that of gradients too.
  std::uint64_t moves() const { return moves_; }

 private:
  /// Of most tensors, equal: so a fact stays small.
  struct Kind {
    std::uint64_t keys = 0;  ///< dispatch keys of a tensor that passed: they give device and layout
    std::int64_t offset = 0;
    std::size_t bytes = 0;  ///< of the buffer
    std::uint32_t shape = 0, hooks = 0;
    std::uint8_t dtype = 0, address_mod_64 = 0;
    std::int16_t gradient_type = -1;
    bool is_gradient = false;
    bool is_none = false;
    bool requires_grad = false;
    bool is_wrapped_number = false;
    bool is_written = false;
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  struct Fact {
    Weak owner;
    const void* address;  ///< of its memory, when it was looked at last
    std::uint32_t kind;
    std::int32_t position;
    /// Where to fetch from ahead: the tensor and the storage that were there last, alive or not.
    const void* tensor;
    const void* storage;
  };

  std::uint32_t number_of(const Kind& kind);
  std::uint32_t number_of_shape(const trace::Tensor& geometry);
  bool holds(const c10::TensorImpl& tensor, const Kind& kind) const;
  bool has_shape(const c10::TensorImpl& tensor, const std::int64_t* expected) const;
  static bool place(const c10::TensorImpl& tensor, const Kind& kind, void*& slot);
  void note_move(std::size_t k, const void* address) const;

  mutable std::vector<Fact> facts_;
  std::vector<Kind> kinds_;
  std::vector<std::int64_t> shapes_;  ///< of each: dimensions, sizes, strides
  std::map<std::vector<std::int64_t>, std::uint32_t> shape_at_;
  std::vector<live::Hooks> hooks_{live::Hooks()};  ///< none come first
  mutable std::int64_t moved_ = -1;
  mutable std::uint64_t moves_ = 0;
};

}  // namespace steptape::guards
