#include "session/probing.h"

#include <algorithm>
#include <string>

#include "trace/compare.h"

namespace steptape::session {
namespace {

constexpr std::uint32_t kAttempts = 8;
constexpr std::uint64_t kLongestPause = 1'000'000;

RefusalCode code_for(trace::DifferenceKind kind) {
  switch (kind) {
    case trace::DifferenceKind::kScalar:
      return RefusalCode::kScalarVaries;
    case trace::DifferenceKind::kHostTensor:
      return RefusalCode::kHostTensorVaries;
    case trace::DifferenceKind::kOutsideTensor:
      return RefusalCode::kOutsideTensorVaries;
    case trace::DifferenceKind::kSeek:
      return RefusalCode::kGeneratorSeek;
    default:
      return RefusalCode::kUnstableOpStream;
  }
}

Refusal refusal_for(const trace::Difference& difference, const trace::Recording& recording) {
  Refusal refusal;
  refusal.code = code_for(difference.kind);
  refusal.message = "between two probes " + difference.path + " went " + difference.expected +
                    " → " + difference.found;
  if (difference.op != trace::kNone && difference.op < recording.ops.size()) {
    const trace::Op& op = recording.ops[difference.op];
    refusal.op = recording.operator_of(op).full_name();
    refusal.op_index = difference.op;
    if (op.module != trace::kNone) refusal.module = recording.modules[op.module].path;
    if (op.scope != trace::kNone) refusal.place = recording.scopes[op.scope];
  }
  return refusal;
}

std::optional<Refusal> other_outside_tensor(const recorder::Recorded& a,
                                            const recorder::Recorded& b) {
  for (std::size_t i = 0; i < std::min(a.outside.size(), b.outside.size()); ++i) {
    if (a.outside[i].storage._unsafe_get_target() == b.outside[i].storage._unsafe_get_target())
      continue;
    Refusal refusal;
    refusal.code = RefusalCode::kOutsideTensorVaries;
    refusal.message = "between two probes " + b.outside[i].path +
                      ", a tensor that the step reads and nobody tracked, became another tensor";
    return refusal;
  }
  return std::nullopt;
}

bool same_codes(const std::vector<Refusal>& a, const std::vector<Refusal>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Refusal& x, const Refusal& y) {
    return x.code == y.code && x.op == y.op;
  });
}

}  // namespace

bool Probing::wants_recording() {
  if (calls_to_skip_ == 0) return true;
  return --calls_to_skip_ == 0;
}

std::optional<recorder::Recorded> Probing::take(recorder::Recorded recorded) {
  if (recorded.created_state) {
    previous_.reset();
    return std::nullopt;
  }
  ++attempts_;
  std::vector<Refusal> found = recorded.recording.refusals;
  if (found.empty() && previous_ && previous_->recording.refusals.empty()) {
    if (const auto difference = trace::first_difference(previous_->recording, recorded.recording)) {
      found.push_back(refusal_for(*difference, recorded.recording));
    } else if (auto refusal = other_outside_tensor(*previous_, recorded)) {
      found.push_back(*std::move(refusal));
    } else {
      previous_.reset();
      refusals_.clear();
      attempts_ = 0;
      recorded.recording.standing = trace::Standing::kAgreed;
      return recorded;
    }
  }
  const bool seen_before = !recorded.recording.refusals.empty() && previous_ &&
                           same_codes(previous_->recording.refusals, recorded.recording.refusals);
  previous_ = std::move(recorded);
  if (seen_before || attempts_ >= kAttempts) {
    refusals_ = std::move(found);
    give_up();
  }
  return std::nullopt;
}

void Probing::pause(std::vector<Refusal> refusals) {
  refusals_ = std::move(refusals);
  give_up();
}

void Probing::give_up() {
  previous_.reset();
  attempts_ = 0;
  calls_to_skip_ = pause_;
  pause_ = std::min(pause_ * 10, kLongestPause);
}

void Probing::restart() { *this = Probing(); }

void Probing::succeed() { pause_ = 100; }

}  // namespace steptape::session
