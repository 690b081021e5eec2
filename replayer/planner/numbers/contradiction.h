#pragma once

#include <optional>

#include "trace/compare/compare.h"
#include "trace/model.h"

namespace steptape::replayer {

/// The first number of `proof` that is not what the formulas of `plan` give for the values that
/// numbers have in `proof`, bit for bit: of an op, of a tensor that the host made, or returned.
/// Both have the same stream of ops.
std::optional<trace::Difference> other_number(const trace::Recording& plan,
                                              const trace::Recording& proof);

/// What a plan of `plan` would have done in another way than `proof`, a recording of the same step
/// with other numbers, did: an op, a tensor's geometry, a scalar that no formula covers, a number
/// that a formula does not give. None: it is proved at the numbers of `proof`.
std::optional<trace::Difference> contradiction(const trace::Recording& plan,
                                               const trace::Recording& proof);

/// Whether the program of `proof`, which parts from `plan` there, had decided otherwise by a value
/// that it read, as a run of the plan would have found out. Then it speaks against no formula.
bool took_another_way(const trace::Recording& plan, const trace::Recording& proof,
                      const trace::Difference& parted);

/// The op by which a replay finds out that it is of the other one, of ops before `end`; kNone:
/// there is none.
trace::Index first_other_read(const trace::Recording& a, const trace::Recording& b,
                              trace::Index end);

/// Whether no call can be one that both hold for: the step had decided otherwise by a value that it
/// read before the two part, and the run of a plan finds out.
bool exclude_each_other(const trace::Recording& a, const trace::Recording& b);

/// Lets go of the formulas of `now` that do not give what `before`, of the same stream, had in
/// their places: the numbers there are no such formulas, but were equal to one.
void drop_refuted(const trace::Recording& before, trace::Recording& now);

}  // namespace steptape::replayer
