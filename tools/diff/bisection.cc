#include "tools/diff/bisection.h"

#include <algorithm>

#include "steptape/error.h"

namespace steptape::tools {
namespace {

using Standing = Bisection::Standing;

const diff::StepDiff* find_step(const diff::Diff& diff, const std::string& name) {
  const auto found = std::ranges::find(diff.steps, name, &diff::StepDiff::name);
  return found == diff.steps.end() ? nullptr : &*found;
}

/// What the recordings of its step say about the call.
void add_recordings(const diff::StepDiff* step, Bisection& out) {
  if (step == nullptr) return;
  for (const diff::RecordingDiff& recording : step->recordings) {
    if (recording.call == 0 || recording.call > out.call) continue;
    out.nearest_recorded = std::max(out.nearest_recorded, recording.call);
    if (recording.call == out.call && recording.numerics.is_compared()) out.recording = &recording;
  }
}

Bisection bisect_ledgers(const Comparison& found) {
  const diff::LedgerDiff& ledger = *found.diff.ledger;
  Bisection out;
  if (ledger.first == diff::LedgerDiff::kNoStep) {
    if (ledger.differing() > 0) out.standing = Standing::kLonely;
    return out;
  }
  const diff::StepLedgerDiff& step = ledger.steps[ledger.first];
  out.standing = Standing::kNamed;
  out.step = step.name;
  out.call = step.first->call;
  out.ledger = step.first;
  add_recordings(find_step(found.diff, step.name), out);
  if (out.recording == nullptr) out.record_next = out.call;
  return out;
}

/// A recording that was entered with other bits came after the call where the runs parted.
Bisection bisect_recordings(const Comparison& found) {
  Bisection out;
  const diff::RecordingDiff* first = found.diff.first_numeric();
  if (first == nullptr) return out;
  const auto holds = [first](const diff::StepDiff& step) {
    return std::ranges::any_of(step.recordings,
                               [first](const auto& recording) { return &recording == first; });
  };
  const diff::StepDiff& step = *std::ranges::find_if(found.diff.steps, holds);
  out.standing = Standing::kNamed;
  out.step = step.name;
  out.call = first->call;
  add_recordings(&step, out);
  out.recording = first;
  for (const diff::RecordingDiff& recording : step.recordings) {
    const bool is_equal = recording.numerics.is_compared() && recording.numerics.count() == 0;
    if (is_equal && recording.call < out.call) {
      out.last_equal = std::max(out.last_equal, recording.call);
    }
  }
  const bool came_from_before = std::ranges::any_of(
      first->numerics.entered, [](const diff::EnteredBuffer& buffer) { return !buffer.is_noisy; });
  if (came_from_before && out.last_equal + 1 < out.call) {
    out.standing = Standing::kBracket;
    out.record_next = out.last_equal + (out.call - out.last_equal) / 2;
  }
  return out;
}

bool has_compared_recordings(const diff::Diff& diff) {
  return std::ranges::any_of(diff.steps, [](const diff::StepDiff& step) {
    return std::ranges::any_of(step.recordings, [](const diff::RecordingDiff& recording) {
      return recording.numerics.is_compared();
    });
  });
}

}  // namespace

Bisection bisect(const Comparison& found) {
  const bool has_recordings = has_compared_recordings(found.diff);
  if (!found.diff.ledger && !has_recordings) {
    throw Error(ErrorCode::kFailedPrecondition,
                "there is nothing to find the call by: neither ledgers beside both traces nor "
                "calls that both recorded with digests. Run both with a ledger, or record the same "
                "calls in both with digests (Options::record and Options::digests; in Python "
                "record= and digests=True)");
  }
  const Bisection by_ledgers = found.diff.ledger ? bisect_ledgers(found) : Bisection();
  if (by_ledgers.standing == Standing::kNamed) return by_ledgers;
  const Bisection by_recordings = bisect_recordings(found);
  return by_recordings.standing == Standing::kEqual ? by_ledgers : by_recordings;
}

}  // namespace steptape::tools
