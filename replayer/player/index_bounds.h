#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/values.h"
#include "steptape/verdict.h"
#include "trace/model.h"

namespace steptape::replayer {

/// What the indices that a step is given must lie within: rows of an embedding, classes of a loss.
/// An op would throw for others in mid-run; here it is said before. Indices that the step computes
/// are left to the ops.
class IndexBounds {
 public:
  explicit IndexBounds(const trace::Recording& recording);

  /// `arguments` have the recorded geometry.
  Verdict check(std::span<const live::Argument> arguments) const;

 private:
  struct Bound {
    std::size_t argument;
    std::int64_t low, high;               ///< low ≤ index < high
    std::optional<std::int64_t> ignored;  ///< allowed too: of losses
    std::string path;
  };
  void look_at(const trace::Recording& recording, const trace::Op& op);
  void add(const trace::Recording& recording, trace::TensorId indices, std::int64_t low,
           std::int64_t high, std::optional<std::int64_t> ignored = {});

  std::vector<bool> is_written_;  ///< by buffer
  std::vector<Bound> bounds_;
};

}  // namespace steptape::replayer
