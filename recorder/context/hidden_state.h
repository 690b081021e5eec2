#pragma once

#include <string>
#include <unordered_map>

#include "recorder/context/attribution.h"
#include "trace/model.h"

namespace steptape::recorder {

/// Tensors that no path leads to and that updates alone read: what an optimizer of the program's
/// own keeps to itself. Each belongs to the tracked optimizer that holds the parameter which the
/// update writes next.
class HiddenState {
 public:
  HiddenState(const trace::Recording& recording, const Attribution& attribution);

  /// "optimizer.<unnamed 1>", the next of its optimizer; "" for a buffer that is none of these.
  std::string path_of(trace::BufferId buffer);

 private:
  static constexpr trace::Index kReadElsewhere = trace::kNone;

  const trace::Recording& recording_;
  std::unordered_map<trace::BufferId, trace::Index>
      optimizers_;                                        ///< of the first update to read it
  std::unordered_map<trace::Index, std::size_t> counts_;  ///< by optimizer
};

}  // namespace steptape::recorder
