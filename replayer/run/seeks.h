#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "replayer/run/call.h"
#include "trace/model.h"

namespace steptape::replayer {

/// Sets generators back in the middle of a run to states that they had earlier in it, as gradient
/// checkpointing does: states are kept where the recording says that they come from.
class Seeks {
 public:
  Seeks(const trace::Recording& recording, const std::vector<Call>& calls,
        const std::function<at::Generator(const std::string&)>& generator);

  bool empty() const { return kept_.empty(); }
  void begin();
  /// Around each call, by its position.
  void before(std::size_t call);
  void after(std::size_t call);
  void end();

 private:
  struct Kept {
    at::Generator generator;
    std::size_t from;  ///< position of the call behind which it is kept, or kBegin
    std::size_t to;    ///< of the call before which it is set, or the number of calls
    at::Tensor state = {};
  };
  static constexpr std::size_t kBegin = static_cast<std::size_t>(-1);
  void keep(std::size_t from);
  void set(std::size_t to);

  std::vector<Kept> kept_;
  std::size_t calls_;
};

}  // namespace steptape::replayer
