#pragma once

#include <vector>

#include "diff/stream_diff.h"
#include "trace/compare/finding.h"
#include "trace/model.h"

namespace steptape::diff {

/// Tensors that both steps read, that nobody tracks, and whose bytes differ: by their place among
/// those that no path leads to, "outside[0]", or by the op that reads them first. Single numbers
/// that the host made are scalars of their ops and not told here.
std::vector<trace::Finding> constant_differences(const OpStream& a, const OpStream& b,
                                                 const Alignment& alignment);

/// Scalars of paired ops that one side alone has a formula for, or another one; conditions under
/// which a step issues its ops; numbers of optimizers' state that it advances otherwise. Formulas
/// of the second recording name ops by their partners in the first. "op 17 aten::add_.Tensor alpha:
/// -lr → -0.1"
std::vector<trace::Finding> formula_differences(const OpStream& a, const OpStream& b,
                                                const Alignment& alignment);

/// In which modules the memory that ops make differs: its bytes, and the most of them that live at
/// once. A buffer belongs to the module whose op made it, and lives from there to the last op that
/// uses it, or, where it outlives the step, to its end. Alignment is left out. The first stands for
/// the whole step.
std::vector<trace::Finding> memory_differences(const trace::Recording& a,
                                               const trace::Recording& b);

/// In what the modules of two recordings differ: which there are, their types, training flags,
/// options and other paths, which of their calls issued ops, and the order of those. Both must be
/// valid.
std::vector<trace::Finding> module_differences(const trace::Recording& a,
                                               const trace::Recording& b);

/// In what two steps differ beside their ops: results, gradients at exit, values that they read or
/// return, where generators were set, effects on the host, optimizers stepped after, and what
/// buffers that a path leads to are to the step. Both recordings must be valid.
std::vector<trace::Finding> outcome_differences(const trace::Recording& a,
                                                const trace::Recording& b);

/// First and last op that takes or gives a tensor in a buffer; kNone where none does.
struct Lifetime {
  trace::Index first = trace::kNone;
  trace::Index last = trace::kNone;
};

/// One for each of Recording::buffers.
std::vector<Lifetime> lifetimes_of(const trace::Recording& recording);

}  // namespace steptape::diff
