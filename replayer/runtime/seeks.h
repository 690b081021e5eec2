#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// Sets generators back in the middle of a run to states that they had earlier in it, as gradient
/// checkpointing does: states are kept where the recording says that they come from.
class Seeks {
 public:
  /// A run does `count` pieces of work one after the other; `piece_of` has the position of the one
  /// that an op is in. An op that a generator is set back for is the first one of its piece that
  /// draws from it, and one whose state is kept the last.
  Seeks(const trace::Recording& recording, std::size_t count,
        const std::function<std::size_t(trace::Index op)>& piece_of,
        const std::function<at::Generator(const std::string&)>& generator);

  bool empty() const { return kept_.empty(); }
  void begin() { keep(kBegin); }
  /// Around each piece, by its position.
  void before(std::size_t piece) { set(piece); }
  void after(std::size_t piece) { keep(piece); }
  void end() { set(count_); }

 private:
  struct Kept {
    at::Generator generator;
    std::size_t from;  ///< position of the piece after which it is kept, or kBegin
    std::size_t to;    ///< of the piece before which it is set
    at::Tensor state = {};
  };
  static constexpr std::size_t kBegin = static_cast<std::size_t>(-1);
  void keep(std::size_t from);
  void set(std::size_t to);

  std::vector<Kept> kept_;
  std::size_t count_;
};

}  // namespace steptape::replayer
