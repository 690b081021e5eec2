#include "session/probing.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "live/operators.h"
#include "replayer/planner/numbers/contradiction.h"
#include "session/verify/told_apart.h"
#include "trace/compare/compare.h"
#include "trace/numbers.h"
#include "trace/refusals.h"
#include "trace/text/text.h"

namespace steptape::session {
namespace {

constexpr std::uint32_t kAttempts = 8;
/// In any way, in a row; and what one counts for in which something is refused, which says more.
constexpr std::uint32_t kAttemptsInAll = 64, kRefused = 4;
constexpr std::uint32_t kMostWarmUps = 16;
constexpr std::size_t kMostKept = 64, kMostKeptOfOne = 8;
constexpr std::size_t kMostWays = 256;
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

/// Of a buffer that no path of the program leads to: the first op that takes it says where it is.
std::optional<Refusal> refusal_for_content(const trace::Difference& difference, RefusalCode code,
                                           const trace::Recording& recording) {
  const bool is_of_host = difference.kind == trace::DifferenceKind::kHostTensor;
  if (!is_of_host && difference.kind != trace::DifferenceKind::kOutsideTensor) return std::nullopt;
  constexpr std::string_view kBuffer = "buffers[";
  if (!difference.path.starts_with(kBuffer)) return std::nullopt;
  const std::size_t buffer = std::strtoull(difference.path.c_str() + kBuffer.size(), nullptr, 10);
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    bool takes = false;
    trace::for_each_buffer(recording, recording.ops[i].inputs,
                           [&](trace::BufferId id) { takes |= id == buffer; });
    if (!takes) continue;
    const std::string what = is_of_host ? "a number or tensor that the host made"
                                        : "a tensor that the step reads and nobody tracked";
    return trace::refusal_at(recording, i, code,
                             "`" + recording.operator_of(recording.ops[i]).name + "` takes " +
                                 what + ", which held something else in the probe before");
  }
  return std::nullopt;
}

/// The number in "tensors[17].sizes", or nothing of a path that begins otherwise.
std::optional<std::size_t> index_in(const std::string& path, std::string_view list) {
  if (!path.starts_with(list)) return std::nullopt;
  return std::strtoull(path.c_str() + list.size(), nullptr, 10);
}

/// What the path of a difference stands for: `x`, or what an op gives, and that op.
struct Named {
  std::string words;
  std::size_t op;
};

Named named(const trace::Difference& difference, const trace::Recording& recording) {
  const std::size_t field = difference.path.rfind('.');
  const auto tensor = index_in(difference.path, "tensors[");
  auto buffer = index_in(difference.path, "buffers[");
  if (tensor && *tensor < recording.tensors.size()) buffer = recording.tensors[*tensor].buffer;
  if (field == std::string::npos || !buffer || *buffer >= recording.buffers.size()) {
    return {difference.path, difference.op};
  }
  const std::string what = difference.path.substr(field + 1) + " of ";
  if (const std::string& path = recording.buffers[*buffer].path; !path.empty()) {
    return {what + path, difference.op};
  }
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    bool gives = false;
    trace::for_each_tensor(recording.ops[i].outputs, [&](trace::TensorId id) {
      gives |= id != trace::kNoTensor &&
               (tensor ? id == *tensor : recording.tensors[id].buffer == *buffer);
    });
    if (!gives) continue;
    return {what + "what `" + recording.operator_of(recording.ops[i]).name + "` gives", i};
  }
  return {difference.path, difference.op};
}

/// Where the step uses a number that it has read, and nobody follows what it makes of it; or "".
std::string use_of_read(const trace::Difference& difference, const recorder::FrontendHints& hints) {
  if (difference.kind != trace::DifferenceKind::kHostRead || difference.op == trace::kNone)
    return "";
  for (const auto& [leaf, place] : hints.held()) {
    const trace::Leaf& read = hints.leaves()[leaf];
    const bool is_it = read.kind == trace::LeafKind::kHostRead &&
                       read.path == trace::read_path(difference.op) && !place.empty();
    if (is_it) return ", and what the step makes of it at " + place + " is not followed";
  }
  return "";
}

Refusal refusal_for(const trace::Difference& difference, const trace::Recording& recording,
                    const recorder::FrontendHints& hints) {
  const bool is_dynamic =
      difference.kind == trace::DifferenceKind::kGeometry && has_dynamic_shapes(recording);
  const RefusalCode code =
      is_dynamic ? RefusalCode::kDataDependentShape : code_for(difference.kind);
  if (auto refusal = refusal_for_content(difference, code, recording)) return *std::move(refusal);
  const auto [words, op] = named(difference, recording);
  std::string message = "between two probes " + words + " went " + difference.expected + " → " +
                        difference.found + use_of_read(difference, hints);
  return op < recording.ops.size() ? trace::refusal_at(recording, op, code, std::move(message))
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
  return recorded.hints.said.follows_numbers ? &recorded.hints.internal_reads() : nullptr;
}

bool same_codes(const std::vector<Refusal>& a, const std::vector<Refusal>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Refusal& x, const Refusal& y) {
    return x.code == y.code && x.op == y.op;
  });
}

/// Whether a place that both hold to what they found there held something else.
bool told_apart_by_places(const recorder::FrontendHints& a, const recorder::FrontendHints& b) {
  return std::ranges::any_of(a.said.guarded, [&b](const auto& place) {
    const auto other = b.said.guarded.find(place.first);
    return other != b.said.guarded.end() && other->second != place.second;
  });
}

}  // namespace

bool Probing::Patience::is_over() {
  if (calls_to_skip == 0) return false;
  return --calls_to_skip != 0;
}

void Probing::Patience::give_up(std::vector<Refusal> why) {
  refusals = std::move(why);
  attempts = 0;
  calls_to_skip = pause;
  pause = std::min(pause * 10, kLongestPause);
}

bool Probing::wants_recording(const std::string& way) {
  if (is_stopped_) return false;
  const bool is_over = with_all_.is_over();
  return !patience_with(way).is_over() && !is_over;
}

Probing::Patience& Probing::patience_with(const std::string& way) {
  Patience& patience = patience_[way];
  patience.last_use = ++uses_;
  if (patience_.size() > kMostWays) {
    patience_.erase(std::ranges::min_element(
        patience_, {}, [](const auto& entry) { return entry.second.last_use; }));
  }
  return patience;
}

const std::vector<Refusal>& Probing::refusals(const std::string& way) const {
  const auto found = patience_.find(way);
  return found == patience_.end() || found->second.refusals.empty() ? with_all_.refusals
                                                                    : found->second.refusals;
}

std::optional<Probing::Parted> Probing::difference_from(const recorder::Recorded& previous,
                                                        recorder::Recorded& recorded) const {
  trace::Recording explained = recorded.recording;
  explain(previous.recording, recorded, explained);
  const auto parted = [&](Refusal refusal, const trace::Difference& difference) {
    return Parted{std::move(refusal),
                  !other_outside_tensor(previous, recorded) &&
                      told_apart_by_reads(previous.recording, explained, difference)};
  };
  if (const auto difference = trace::first_difference(previous.recording, explained)) {
    return parted(difference->kind == trace::DifferenceKind::kEffect
                      ? refusal_for_effect(previous.recording, explained)
                      : refusal_for(*difference, explained, recorded.hints),
                  *difference);
  }
  if (const auto other = replayer::other_number(explained, previous.recording)) {
    return parted(refusal_for(*other, explained, recorded.hints), *other);
  }
  if (auto refusal = other_outside_tensor(previous, recorded)) {
    return Parted{*std::move(refusal), false};
  }
  if (auto refusal =
          unexplained_number(previous.recording, explained, recorded.hints.said.follows_numbers)) {
    return Parted{*std::move(refusal), false};
  }
  recorded.recording = std::move(explained);
  return std::nullopt;
}

/// What the numbers of `now` follow from, as far as `before` speaks for it.
void Probing::explain(const trace::Recording& before, const recorder::Recorded& recorded,
                      trace::Recording& now) const {
  if (!trace::same_op_stream(before, now)) return;
  replayer::drop_refuted(before, now);
  replayer::infer_bindings(before, now, reads_, only_reads(recorded));
}

std::optional<Probing::Repeated> Probing::repeats(const trace::Recording& known,
                                                  recorder::Recorded& recorded) const {
  if (!recorded.outside.empty()) return std::nullopt;
  if (!trace::same_op_stream(known, recorded.recording)) return std::nullopt;
  const bool sees_all = recorded.hints.said.follows_numbers;
  // the same shape: its numbers alone can be new
  const bool is_same_entry = trace::same_entry(known, recorded.recording, trace::Numbers::kAny);
  trace::Recording explained = recorded.recording;
  trace::Recording upheld;
  if (is_same_entry) {
    explain(known, recorded, explained);
    upheld = known;
    replayer::drop_refuted(explained, upheld);
  }
  const std::vector<trace::HostRead> reads = explained.reads;
  const trace::Recording& from = is_same_entry ? upheld : known;
  if (!replayer::take_over_numbers(from, explained)) return std::nullopt;
  // what the program did with what it read is known of each recording: another branch may do more
  if (sees_all) explained.reads = reads;
  Repeated repeated;
  if (is_same_entry) {
    if (trace::first_difference(known, explained) || replayer::other_number(explained, known)) {
      return std::nullopt;
    }
    repeated.proved = replayer::numbers_at(known);
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
  recorded.recording.status = trace::Status::kAgreed;
  return {std::move(recorded), with_earlier_run, std::move(proved)};
}

std::optional<Probing::Agreed> Probing::take(const std::string& way, recorder::Recorded recorded,
                                             Plans known, Plans earlier) {
  if (recorded.is_warm_up()) {
    kept_.clear();
    note_warm_up(recorded);
    return std::nullopt;
  }
  warm_ups_ = 0;
  const bool is_clean = recorded.recording.refusals.empty();
  bool is_earlier = false;
  std::optional<Repeated> repeated;
  if (is_clean) {
    repeated = repeats_one_of(known, recorded);
    if (!repeated && (repeated = repeats_one_of(earlier, recorded))) is_earlier = true;
  }
  if (repeated) {
    note_agreed(way);
    return agreed(std::move(recorded), std::move(repeated->proved), is_earlier);
  }
  Compared compared = compare(recorded);
  if (compared.agreed) {
    note_agreed(way);
    return std::move(compared.agreed);
  }
  std::vector<Refusal> found = recorded.recording.refusals;
  if (compared.refusal) found.push_back(*std::move(compared.refusal));
  keep(way, std::move(recorded));
  note_nothing(way, is_clean, compared.repeats_refusals, std::move(found));
  return std::nullopt;
}

/// What was refused before says nothing of calls to come.
void Probing::note_agreed(const std::string& way) {
  Patience& patience = patience_with(way);
  patience.attempts = 0;
  patience.refusals.clear();
  std::erase_if(kept_, [&way](const Kept& kept) {
    return kept.way == way && !kept.recorded.recording.refusals.empty();
  });
  with_all_.refusals.clear();
}

void Probing::note_warm_up(const recorder::Recorded& recorded) {
  if (++warm_ups_ < kMostWarmUps) return;
  std::vector<Refusal> found = recorded.recording.refusals;
  if (found.empty()) {
    found.push_back(trace::make_refusal(
        RefusalCode::kUnstableOpStream,
        std::to_string(warm_ups_) +
            " calls in a row left tensors where there were none, the last one in `" +
            recorded.created_state + "`"));
  }
  pause_all(std::move(found));
  warm_ups_ = 0;
}

/// With those that were entered in the same way, the newest first; where none was with the same
/// numbers, with those that had others.
Probing::Compared Probing::compare(recorder::Recorded& recorded) {
  Compared compared;
  const bool is_clean = recorded.recording.refusals.empty();
  for (const trace::Numbers numbers : {trace::Numbers::kEqual, trace::Numbers::kAny}) {
    bool has_one = false;
    bool has_passed =
        false;  // one that a place tells apart: only the same there is of interest then
    for (std::size_t i = kept_.size(); i-- > 0;) {
      const recorder::Recorded& other = kept_[i].recorded;
      if (!trace::same_entry(other.recording, recorded.recording, numbers)) continue;
      has_one = true;
      if (!is_clean) {
        compared.repeats_refusals =
            same_codes(other.recording.refusals, recorded.recording.refusals);
        if (numbers == trace::Numbers::kEqual)
          kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
        return compared;
      }
      if (!other.recording.refusals.empty()) continue;
      const bool is_apart = told_apart_by_places(other.hints, recorded.hints);
      if (is_apart && has_passed) continue;
      auto parted = difference_from(other, recorded);
      if (!parted) {
        replayer::Numbers proved = replayer::numbers_at(other.recording);
        kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
        compared.agreed = agreed(std::move(recorded), std::move(proved));
        return compared;
      }
      if (!compared.refusal) compared.refusal = std::move(parted->refusal);
      // one that was entered with another number may still agree with one to come
      has_passed |= is_apart;
      if (numbers == trace::Numbers::kAny || parted->is_by_reads || is_apart) continue;
      // nothing that a replay looks at tells the two apart: what agrees with one before this might
      // be either
      kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
      return compared;
    }
    if (has_one) return compared;
  }
  if (is_clean && !kept_.empty() && kept_.back().recorded.recording.refusals.empty()) {
    // entered in another way each time: what differed last is what a person can change
    if (auto parted = difference_from(kept_.back().recorded, recorded)) {
      compared.refusal = std::move(parted->refusal);
    }
  }
  return compared;
}

/// The oldest leave first: of this way, then of all.
void Probing::keep(const std::string& way, recorder::Recorded recorded) {
  const auto is_of_way = [&way](const Kept& kept) { return kept.way == way; };
  if (std::ranges::count_if(kept_, is_of_way) >= static_cast<std::ptrdiff_t>(kMostKeptOfOne)) {
    kept_.erase(std::ranges::find_if(kept_, is_of_way));
  }
  if (kept_.size() >= kMostKept) kept_.erase(kept_.begin());
  kept_.push_back({way, std::move(recorded)});
}

void Probing::forget(const std::string& way) {
  std::erase_if(kept_, [&way](const Kept& kept) { return kept.way == way; });
}

void Probing::note_nothing(const std::string& way, bool is_clean, bool is_refused_again,
                           std::vector<Refusal> found) {
  if (is_refused_again || ++patience_with(way).attempts >= kAttempts) {
    pause(way, std::move(found));
    return;
  }
  with_all_.attempts += is_clean ? 1 : kRefused;
  if (with_all_.attempts >= kAttemptsInAll) pause_all(std::move(found));
}

void Probing::pause(const std::string& way, std::vector<Refusal> refusals) {
  forget(way);
  with_all_.attempts += kRefused;
  if (with_all_.attempts >= kAttemptsInAll) return pause_all(std::move(refusals));
  patience_with(way).give_up(std::move(refusals));
}

void Probing::pause_all(std::vector<Refusal> refusals) {
  kept_.clear();
  for (auto& [way, patience] : patience_) patience.attempts = 0;
  with_all_.give_up(std::move(refusals));
  // when the pause is over, as many as one way has
  with_all_.attempts = kAttemptsInAll - kAttempts;
}

void Probing::stop(std::vector<Refusal> refusals) {
  is_stopped_ = true;
  patience_.clear();
  pause_all(std::move(refusals));
}

void Probing::restart() {
  if (!is_stopped_) *this = Probing(reads_);
}

void Probing::succeed(const std::string& way) {
  for (Patience* patience : {&patience_with(way), &with_all_}) {
    patience->attempts = 0;
    patience->pause = Patience().pause;
  }
}

}  // namespace steptape::session
