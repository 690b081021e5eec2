#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "guards/tracked_guard.h"
#include "live/values.h"
#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::guards {

/// The address remainders, modulo 64, that the inputs of a plan had together when it was compared
/// with the eager step. Operators pick other kernels by them, so a plan, which calls the same ones
/// on the same addresses, holds for others as well, but not untried.
class Remainders {
 public:
  explicit Remainders(std::size_t inputs) : now_(inputs) {}

  /// Of the check under way.
  void note(std::size_t input, std::uint8_t remainder) { now_[input] = remainder; }
  /// Whether those of the newest check were compared.
  bool are_proved() const;
  /// Whether the plan may be tried at others than those that were compared.
  bool are_open() const { return is_open_ && proved_.size() < kMost; }
  /// Those of the newest check were compared.
  void settle();
  /// From here on the plan holds for those that were compared alone.
  void pin() { is_open_ = false; }

 private:
  static constexpr std::size_t kMost = 256;

  std::vector<std::uint8_t> now_;
  std::vector<std::vector<std::uint8_t>> proved_;
  mutable std::size_t newest_ = 0;  ///< of `proved_`
  bool is_open_ = true;
};

/// Guards the arguments of a step and finds the memory they bring: number, host values, geometry,
/// dtype, device, requires_grad, address remainder, which of them lie in one memory, and which are
/// one tensor.
class InputGuard {
 public:
  /// `position[b]` is where the address of buffer `b` belongs in the memory list of a run, or -1.
  /// The recording must outlive the guard.
  InputGuard(const trace::Recording& recording, std::vector<std::int64_t> position);

  /// Checks all but where the inputs lie. Numbers that formulas read go into `leaves` and may be
  /// any.
  Verdict check(std::span<const live::Argument> arguments, std::span<double> leaves = {}) const;
  /// Checks which of them are tracked tensors, of arguments and tensors that were checked.
  Verdict check_tracked(std::span<const live::Argument> arguments,
                        const TrackedGuard& tracked) const;
  /// Writes the addresses of input buffers into `memory`; arguments are those that were checked. An
  /// entry that is not null is known already (an input that lies in a tracked tensor): the input
  /// must agree with it. With `remainders`, address remainders on the CPU may be others than the
  /// recorded ones where they are open, and are noted there by the position of the input.
  Verdict place(std::span<const live::Argument> arguments, std::span<void*> memory,
                Remainders* remainders = nullptr) const;

 private:
  struct TensorInput {
    std::size_t argument;
    const trace::Tensor* geometry;
    const trace::Buffer* buffer;
    at::ScalarType dtype;
    std::int64_t position;
  };

  Verdict check_tensor(const TensorInput& input, const at::Tensor& tensor) const;
  Verdict place_tensor(const TensorInput& input, const at::Tensor& tensor, std::span<void*> memory,
                       Remainders* remainders) const;

  Verdict check_same(std::span<const live::Argument> arguments) const;
  /// `expected` and `found` are paths, "" for a tensor that stands nowhere else.
  Verdict other_tensor(std::size_t input, std::string_view expected, std::string_view found) const;

  const trace::Recording& recording_;
  std::vector<TensorInput> tensors_;
  struct Same {
    std::size_t argument;
    std::size_t first;  ///< the argument that is this very tensor
  };
  std::vector<Same> same_;
  /// Those of which none is another. Which tensors are one may be asked by any code that runs in a
  /// step (nn.MultiheadAttention: `if k is v`), and such a question leaves no op.
  std::vector<std::size_t> apart_;
  struct Fact {
    std::size_t argument;
    trace::Index leaf;  ///< kNone: it must be the recorded one
  };
  std::vector<Fact> facts_;
};

}  // namespace steptape::guards
