#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "guards/entry.h"
#include "recorder/recorder.h"
#include "replayer/runtime/executor.h"
#include "session/variant.h"
#include "session/verify/left_behind.h"
#include "steptape/refusal.h"
#include "trace/compare/compare.h"
#include "trace/digest.h"

namespace steptape::session {

struct Verified {
  std::optional<Divergence> divergence;
  bool skipped = false;  ///< there was no memory for the copy: only the eager step ran
  /// The plan was not for this call after all, which it found out in mid-run, or threw; or it may
  /// be for it, but was not proved.
  std::optional<replayer::AssumptionViolated> changed;
  std::optional<replayer::Unproved> unproved;
  /// So early that the eager step did not run: nothing has happened.
  bool is_nothing = false;
  /// An op is taken for one that leaves other bits each time: the next trial says whether it is.
  bool is_open = false;
  /// The plan did ops together, and does each by itself from here on: the next trial judges that.
  bool is_ungrouped = false;
  /// The plan was not proved at numbers that the call had: from here on it holds for those alone at
  /// which it was.
  bool is_pinned = false;
  /// What the eager step did, op by op, where the plan has numbers that move.
  std::optional<trace::Recording> proof;
  /// The plan was proved at the numbers of `proof`, if nothing is wrong.
  bool proves_numbers = false;
  /// Results agree, and yet an op had a scalar that the plan would not have used, or another op.
  std::optional<trace::Difference> mismatch;
  double us = 0;  ///< how long both ways took, with the comparison

  /// The plan is not to be trusted: it left other bits.
  bool is_wrong() const { return !is_pinned && divergence.has_value(); }
  /// The run of the plan threw, and was undone.
  bool threw() const { return changed && changed->code == RefusalCode::kReplayThrew; }
  /// A mismatch is a divergence: nothing else accounts for it.
  void count_mismatch(const trace::Recording& plan);
  /// How it is wrong.
  std::string text() const;
  Refusal refusal(RefusalCode code, const std::string& more = "") const;
};

/// Runs the plan of `variant` and the eager step from the same state, and compares what they leave:
/// results, numbers, written memory, gradients, generators, step counters. What the plan wrote is
/// undone before the eager step runs, so the program goes on from the eager step whatever the
/// outcome. Costs one copy of what the plan writes, while it lasts. An exception of the eager step
/// passes through. With an `interceptor`, the first op in which the two part is named.
///
/// Where the variant has ops that leave other bits each time (Variant::suspects), it is the eager
/// step that runs first. Each of these ops is then run again on the same inputs, and the plan is
/// made to go on from what it left in the eager step. So everything else is compared bit for bit,
/// and the op with what it differs from itself.
/// So it is where the plan exchanges tensors with other processes: what the eager step has issued
/// is served to the plan (live/collectives.h).
/// The eager step is recorded, without its front end's knowledge, where the plan has numbers that
/// move: then scalars are compared as well as bits.
struct CallToVerify {
  const std::vector<live::Argument>& arguments;
  const live::Objects& objects;
  const guards::Entry& entry;
  bool proves_numbers;  ///< Options::verify asks for it
  std::shared_ptr<live::Exchanges> exchanges;
};
Verified verify(Variant& variant, const CallToVerify& call, const recorder::StepFunction& eager,
                recorder::Interceptor* interceptor);

}  // namespace steptape::session
