#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "recorder/op_digests.h"
#include "trace/digest.h"
#include "trace/model.h"

namespace steptape::session {

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
