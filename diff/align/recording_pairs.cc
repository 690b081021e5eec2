#include "diff/align/recording_pairs.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trace/compare/compare.h"
#include "trace/named.h"

namespace steptape::diff {
namespace {

constexpr std::array kPairedBy = {
    trace::Named{PairedBy::kCall, "call"},
    trace::Named{PairedBy::kEntry, "entry"},
    trace::Named{PairedBy::kShapes, "shapes"},
    trace::Named{PairedBy::kPosition, "position"},
};

bool same_shape(const trace::Recording& a, const trace::Input& x, const trace::Recording& b,
                const trace::Input& y) {
  const auto* s = std::get_if<trace::TensorRef>(&x.value.data);
  const auto* t = std::get_if<trace::TensorRef>(&y.value.data);
  if (x.path != y.path || (s == nullptr) != (t == nullptr)) return false;
  if (s == nullptr) return true;
  if (s->id == trace::kNoTensor || t->id == trace::kNoTensor) return s->id == t->id;
  const trace::Tensor& p = a.tensors[s->id];
  const trace::Tensor& q = b.tensors[t->id];
  return p.dtype == q.dtype && p.sizes == q.sizes;
}

bool fits(PairedBy by, const trace::Recording& a, const trace::Recording& b) {
  if (by == PairedBy::kCall) return a.call != 0 && a.call == b.call;
  if ((a.status == trace::Status::kWarmUp) != (b.status == trace::Status::kWarmUp)) return false;
  switch (by) {
    case PairedBy::kCall:
      break;
    case PairedBy::kEntry:
      return same_entry(a, b, trace::Numbers::kAny);
    case PairedBy::kShapes:
      return std::ranges::equal(
          a.inputs, b.inputs,
          [&](const trace::Input& x, const trace::Input& y) { return same_shape(a, x, b, y); });
    case PairedBy::kPosition:
      return true;
  }
  return false;
}

/// Recordings that found a partner, and those that did not.
class Pairing {
 public:
  Pairing(const trace::Step& a, const trace::Step& b)
      : a_(a.recordings), b_(b.recordings), has_a_(a_.size(), false), has_b_(b_.size(), false) {}

  template <typename Fits>
  void pair(PairedBy by, Fits&& fits) {
    for (std::size_t i = 0; i < a_.size(); ++i) {
      for (std::size_t j = 0; j < b_.size() && !has_a_[i]; ++j) {
        if (has_b_[j] || !fits(a_[i], b_[j])) continue;
        has_a_[i] = has_b_[j] = true;
        pairs_.push_back({i, j, by});
      }
    }
  }

  bool has_variant() const {
    return std::ranges::any_of(pairs_, [this](const RecordingPair& pair) {
      return a_[pair.a].status != trace::Status::kWarmUp;
    });
  }

  std::vector<RecordingPair> take() {
    std::ranges::sort(pairs_, {}, &RecordingPair::a);
    return std::move(pairs_);
  }

 private:
  const std::vector<trace::Recording>& a_;
  const std::vector<trace::Recording>& b_;
  std::vector<bool> has_a_, has_b_;
  std::vector<RecordingPair> pairs_;
};

}  // namespace

bool is_besides(const trace::Recording& recording) {
  return recording.status == trace::Status::kProbe && recording.call != 0;
}

std::string_view name_of(PairedBy paired_by) noexcept { return find_name(kPairedBy, paired_by); }

std::vector<RecordingPair> pair_recordings(const trace::Step& a, const trace::Step& b) {
  Pairing pairing(a, b);
  for (const auto& row : kPairedBy) {
    pairing.pair(row.value, [&row](const trace::Recording& x, const trace::Recording& y) {
      const bool is_by_call = row.value == PairedBy::kCall;
      return fits(row.value, x, y) && (is_by_call || (!is_besides(x) && !is_besides(y)));
    });
  }
  if (pairing.has_variant()) return pairing.take();
  for (const auto& row : kPairedBy) {
    pairing.pair(row.value, [&row](const trace::Recording& x, const trace::Recording& y) {
      return fits(row.value, x, y);
    });
  }
  return pairing.take();
}

}  // namespace steptape::diff
