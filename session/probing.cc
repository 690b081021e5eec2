#include "session/probing.h"

#include <algorithm>
#include <set>
#include <string>

#include "live/operators.h"
#include "replayer/numbers/contradiction.h"
#include "trace/compare.h"
#include "trace/entry.h"
#include "trace/refusals.h"
#include "trace/text.h"

namespace steptape::session {
namespace {

constexpr std::uint32_t kAttempts = 8;
constexpr std::uint32_t kMostWarmUps = 16;
constexpr std::uint64_t kLongestPause = 1'000'000;

bool has_dynamic_shapes(const trace::Recording& recording) {
  return std::ranges::any_of(recording.operators, [](const trace::Operator& op) {
    const auto handle = live::find_operator(op);
    return handle && live::effects_of(*handle).is_dynamic_shape;
  });
}

RefusalCode code_for(trace::DifferenceKind kind) {
  switch (kind) {
    case trace::DifferenceKind::kScalar:
      return RefusalCode::kScalarVaries;
    case trace::DifferenceKind::kHostTensor:
      return RefusalCode::kHostTensorVaries;
    case trace::DifferenceKind::kOutsideTensor:
      return RefusalCode::kOutsideTensorVaries;
    case trace::DifferenceKind::kHostRead:
      return RefusalCode::kHostRead;
    case trace::DifferenceKind::kSeek:
      return RefusalCode::kGeneratorSeek;
    case trace::DifferenceKind::kEffect:
      return RefusalCode::kHostEffect;
    default:
      return RefusalCode::kUnstableOpStream;
  }
}

/// The first effect that differs between two recordings that agree in everything before.
Refusal refusal_for_effect(const trace::Recording& before, const trace::Recording& now) {
  for (std::size_t i = 0; i < std::max(before.effects.size(), now.effects.size()); ++i) {
    const trace::Effect none;
    const trace::Effect& a = i < before.effects.size() ? before.effects[i] : none;
    const trace::Effect& b = i < now.effects.size() ? now.effects[i] : none;
    if (a == b) continue;
    const trace::Effect& told = b.name.empty() ? a : b;
    const std::string what =
        told.name == "results" ? "what the step returns" : "host state `" + told.name + "`";
    Refusal refusal = trace::make_refusal(
        RefusalCode::kHostEffect,
        a.name == b.name
            ? what + " went " + a.value + " → " + b.value + " from one probe to the next"
            : what + " went to " + told.value + " in one of two probes");
    refusal.place = told.place;
    return refusal;
  }
  return trace::make_refusal(RefusalCode::kHostEffect, "the effects on the host differ");
}

Refusal refusal_for(const trace::Difference& difference, const trace::Recording& recording) {
  const bool is_dynamic =
      difference.kind == trace::DifferenceKind::kGeometry && has_dynamic_shapes(recording);
  const RefusalCode code =
      is_dynamic ? RefusalCode::kDataDependentShape : code_for(difference.kind);
  std::string message = "between two probes " + difference.path + " went " + difference.expected +
                        " → " + difference.found;
  return difference.op < recording.ops.size()
             ? trace::refusal_at(recording, difference.op, code, std::move(message))
             : trace::make_refusal(code, std::move(message));
}

std::optional<Refusal> other_outside_tensor(const recorder::Recorded& a,
                                            const recorder::Recorded& b) {
  for (std::size_t i = 0; i < std::min(a.outside.size(), b.outside.size()); ++i) {
    if (a.outside[i].storage._unsafe_get_target() == b.outside[i].storage._unsafe_get_target())
      continue;
    return trace::make_refusal(
        RefusalCode::kOutsideTensorVaries,
        "between two probes " + b.outside[i].path +
            ", a tensor that the step reads and nobody tracked, became another tensor");
  }
  return std::nullopt;
}

/// A number that the step returned and read from no tensor: a replay could not work it out. Where a
/// front end sees what the step depends on, one that was the same before as well is a constant.
std::optional<Refusal> unexplained_number(const trace::Recording& before,
                                          const trace::Recording& recording, bool sees_all) {
  for (std::size_t i = 0; i < recording.numbers.size(); ++i) {
    if (recording.numbers[i].op != trace::kNone || recording.numbers[i].formula != trace::kNone) {
      continue;
    }
    if (sees_all && i < before.numbers.size() &&
        before.numbers[i].value == recording.numbers[i].value) {
      continue;
    }
    return trace::make_refusal(RefusalCode::kHostRead,
                               "numbers[" + std::to_string(i) + "], which the step returned, is " +
                                   trace::print_value(recording.numbers[i].value) +
                                   ": no value that it read from a tensor");
  }
  return std::nullopt;
}

/// Where numbers are followed, the reads that ops made for themselves alone are matched by their
/// bits.
const std::set<trace::Index>* only_reads(const recorder::Recorded& recorded) {
  return recorded.notes.follows_numbers() ? &recorded.notes.internal_reads() : nullptr;
}

bool same_codes(const std::vector<Refusal>& a, const std::vector<Refusal>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Refusal& x, const Refusal& y) {
    return x.code == y.code && x.op == y.op;
  });
}

}  // namespace

bool Probing::wants_recording() {
  if (is_stopped_) return false;
  if (calls_to_skip_ == 0) return true;
  return --calls_to_skip_ == 0;
}

std::optional<Refusal> Probing::difference_from(const recorder::Recorded& previous,
                                                recorder::Recorded& recorded) const {
  trace::Recording explained = recorded.recording;
  explain(previous.recording, recorded, explained);
  if (const auto difference = trace::first_difference(previous.recording, explained)) {
    if (difference->kind == trace::DifferenceKind::kEffect) {
      return refusal_for_effect(previous.recording, explained);
    }
    return refusal_for(*difference, explained);
  }
  if (const auto other = replayer::other_number(explained, previous.recording)) {
    return refusal_for(*other, explained);
  }
  if (auto refusal = other_outside_tensor(previous, recorded)) return refusal;
  if (auto refusal =
          unexplained_number(previous.recording, explained, recorded.notes.follows_numbers())) {
    return refusal;
  }
  recorded.recording = std::move(explained);
  return std::nullopt;
}

/// What the numbers of `now` follow from, as far as `before` speaks for it.
void Probing::explain(const trace::Recording& before, const recorder::Recorded& recorded,
                      trace::Recording& now) const {
  if (!trace::same_op_stream(before, now)) return;
  replayer::drop_refuted(before, now);
  replayer::explain_numbers(before, now, reads_, only_reads(recorded));
}

std::optional<Probing::Repeated> Probing::repeats(const trace::Recording& known,
                                                  recorder::Recorded& recorded) const {
  if (!recorded.outside.empty()) return std::nullopt;
  if (!trace::same_op_stream(known, recorded.recording)) return std::nullopt;
  const bool sees_all = recorded.notes.follows_numbers();
  trace::Recording explained = recorded.recording;
  Repeated repeated;
  if (trace::same_entry(known, recorded.recording, trace::Numbers::kAny)) {
    // the same shape: its numbers alone can be new
    explain(known, recorded, explained);
    trace::Recording upheld = known;
    replayer::drop_refuted(explained, upheld);
    const std::vector<trace::HostRead> reads = explained.reads;
    if (!replayer::take_over_numbers(upheld, explained)) return std::nullopt;
    // what the program did with what it read is known of each recording
    if (sees_all) explained.reads = reads;
    if (trace::first_difference(known, explained) || replayer::other_number(explained, known)) {
      return std::nullopt;
    }
    repeated.proved = replayer::numbers_at(known);
  } else if (!replayer::take_over_numbers(known, explained)) {
    return std::nullopt;
  }
  if (unexplained_number(known, explained, sees_all)) return std::nullopt;
  recorded.recording = std::move(explained);
  return repeated;
}

std::optional<Probing::Repeated> Probing::repeats_one_of(Plans plans,
                                                         recorder::Recorded& recorded) const {
  for (const trace::Recording* plan : plans) {
    if (auto repeated = repeats(*plan, recorded)) return repeated;
  }
  return std::nullopt;
}

Probing::Agreed Probing::agreed(recorder::Recorded recorded,
                                std::optional<replayer::Numbers> proved, bool with_earlier_run) {
  refusals_.clear();
  attempts_ = 0;
  recorded.recording.standing = trace::Standing::kAgreed;
  return {std::move(recorded), with_earlier_run, std::move(proved)};
}

std::optional<Probing::Agreed> Probing::take(recorder::Recorded recorded, Plans known,
                                             Plans earlier) {
  if (recorded.created_state) {
    previous_.clear();
    if (++warm_ups_ >= kMostWarmUps) {
      std::vector<Refusal> found = recorded.recording.refusals;
      if (found.empty()) {
        found.push_back(trace::make_refusal(
            RefusalCode::kUnstableOpStream,
            std::to_string(warm_ups_) + " calls in a row created optimizer state"));
      }
      pause(std::move(found));
      warm_ups_ = 0;
    }
    return std::nullopt;
  }
  warm_ups_ = 0;
  const bool clean = recorded.recording.refusals.empty();
  if (clean) {
    if (auto repeated = repeats_one_of(known, recorded)) {
      return agreed(std::move(recorded), std::move(repeated->proved));
    }
    if (auto repeated = repeats_one_of(earlier, recorded)) {
      return agreed(std::move(recorded), std::move(repeated->proved), true);
    }
  }
  const auto find = [&](trace::Numbers numbers) {
    return std::ranges::find_if(previous_, [&](const recorder::Recorded& other) {
      return trace::same_entry(other.recording, recorded.recording, numbers);
    });
  };
  auto match = find(trace::Numbers::kEqual);
  const bool is_equal = match != previous_.end();
  if (!is_equal) match = find(trace::Numbers::kAny);
  std::vector<Refusal> found = recorded.recording.refusals;
  bool seen_before = false;
  if (match != previous_.end()) {
    seen_before = !clean && same_codes(match->recording.refusals, recorded.recording.refusals);
    if (clean && match->recording.refusals.empty()) {
      if (auto refusal = difference_from(*match, recorded)) {
        found.push_back(*std::move(refusal));
      } else {
        replayer::Numbers proved = replayer::numbers_at(match->recording);
        previous_.erase(match);
        return agreed(std::move(recorded), std::move(proved));
      }
    }
    // one that was entered with another number may still agree with one to come
    if (is_equal) previous_.erase(match);
  } else if (clean && !previous_.empty() && previous_.back().recording.refusals.empty()) {
    // entered in another way each time: what differed last is what a person can change
    if (auto refusal = difference_from(previous_.back(), recorded))
      found.push_back(*std::move(refusal));
  }
  previous_.push_back(std::move(recorded));
  if (seen_before || ++attempts_ >= kAttempts) {
    refusals_ = std::move(found);
    give_up();
  }
  return std::nullopt;
}

void Probing::pause(std::vector<Refusal> refusals) {
  refusals_ = std::move(refusals);
  give_up();
}

void Probing::stop(std::vector<Refusal> refusals) {
  is_stopped_ = true;
  pause(std::move(refusals));
}

void Probing::give_up() {
  previous_.clear();
  attempts_ = 0;
  calls_to_skip_ = pause_;
  pause_ = std::min(pause_ * 10, kLongestPause);
}

void Probing::restart() {
  if (!is_stopped_) *this = Probing(reads_);
}

void Probing::succeed() { pause_ = 100; }

}  // namespace steptape::session
