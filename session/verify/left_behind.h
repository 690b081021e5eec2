#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "recorder/op_digests.h"
#include "trace/digest.h"
#include "trace/model.h"

namespace steptape::session {

/// The first thing that a plan and the eager step left with other bits.
struct Divergence {
  std::string path;  ///< "results[0]", "model.fc1.weight", "generator.default"
  std::string text;  ///< both digests
  /// The first op that gave another result, or that the other way did not take; -1: none was found.
  std::int64_t op_index = -1;
  std::string op = {};
  /// The op leaves other bits each time the plan runs: it may do so in the eager step, too.
  bool is_by_chance = false;
};

/// What one way of running a step left behind; nothing stands for what is compared elsewhere.
struct LeftBehind {
  std::vector<std::optional<trace::Digest>> results;
  std::vector<double> numbers;
  std::vector<std::optional<trace::Digest>> gradients;
  std::vector<trace::Digest> written;
  std::vector<trace::Digest> generators;
};

/// Where the two differ first. `written` looks at the written buffer of this position.
std::optional<Divergence> first_difference(
    const LeftBehind& plan, const LeftBehind& eager, const trace::Recording& recording,
    const std::function<std::optional<Divergence>(std::size_t)>& written);

/// A divergence of two digests.
Divergence digests_differ(std::string path, const std::optional<trace::Digest>& plan,
                          const std::optional<trace::Digest>& eager);

/// What each op of a recording left in a run of its plan, where that is known.
using PlanDigests = std::vector<std::optional<trace::Digest>>;

/// The first op in which a plan and the eager step part.
struct DifferingOp {
  trace::Index op;
  bool is_by_chance = false;  ///< it did not leave the same in all runs of the plan
  std::string instead = {};   ///< what the eager step did in its place; empty: the same op
};

/// `runs` are of one plan, from one state.
std::optional<DifferingOp> first_differing_op(const trace::Recording& recording,
                                              std::span<const recorder::OpDigest> eager,
                                              std::span<const PlanDigests> runs);

}  // namespace steptape::session
