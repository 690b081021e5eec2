#pragma once

#include <string>

#include "diff/diff.h"
#include "tools/cli/json.h"
#include "tools/diff/diff_text.h"
#include "tools/dump/recording_view.h"

/// What ops left, in `steptape diff` and `steptape bisect`.
namespace steptape::tools {

/// What the ops of a pair of recordings left: every op and buffer that differs, noise too. Where
/// nothing was compared, `compared` is null and `not_compared` says why.
Json numerics_json(const diff::NumericDifferences& found, const diff::OpStream& a,
                   const diff::OpStream& b);

/// One op of them.
Json numeric_op_json(const diff::NumericOp& op, const diff::OpStream& a, const diff::OpStream& b);

/// "train: call 57: origin op 31 aten::addmm in model.fc1@2, train.py:44": what differs first;
/// "12 noisy" where all of it is noise. `a` and `b` are the traces that `diff` is of.
std::string words_of_numerics(const diff::Diff& diff, const trace::Trace& a, const trace::Trace& b);

/// The lines of one pair of recordings, of which something differs.
void put_numerics(Lines& out, const diff::NumericDifferences& found, const diff::OpStream& a,
                  const diff::OpStream& b, Detail detail);

/// Which results were not compared, why, and what to do about it; empty where all were.
std::string note_of_numerics(const diff::Diff& diff);

/// How many differ in any way.
std::size_t noisy_numerics(const diff::Diff& diff);

}  // namespace steptape::tools
