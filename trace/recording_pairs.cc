#include "trace/recording_pairs.h"

#include <algorithm>
#include <array>

#include "trace/entry.h"
#include "trace/named.h"

namespace steptape::trace {
namespace {

constexpr std::array kPairedBy = {
    Named{PairedBy::kCall, "call"},
    Named{PairedBy::kEntry, "entry"},
    Named{PairedBy::kShapes, "shapes"},
    Named{PairedBy::kPosition, "position"},
};

bool same_shape(const Recording& a, const Input& x, const Recording& b, const Input& y) {
  const auto* s = std::get_if<TensorRef>(&x.value.data);
  const auto* t = std::get_if<TensorRef>(&y.value.data);
  if (x.path != y.path || (s == nullptr) != (t == nullptr)) return false;
  if (s == nullptr) return true;
  if (s->id == kNoTensor || t->id == kNoTensor) return s->id == t->id;
  const Tensor& p = a.tensors[s->id];
  const Tensor& q = b.tensors[t->id];
  return p.dtype == q.dtype && p.sizes == q.sizes;
}

bool fits(PairedBy by, const Recording& a, const Recording& b) {
  if (by == PairedBy::kCall) return a.call != 0 && a.call == b.call;
  if ((a.standing == Standing::kWarmUp) != (b.standing == Standing::kWarmUp)) return false;
  switch (by) {
    case PairedBy::kCall:
      break;
    case PairedBy::kEntry:
      return same_entry(a, b, Numbers::kAny);
    case PairedBy::kShapes:
      return std::ranges::equal(a.inputs, b.inputs, [&](const Input& x, const Input& y) {
        return same_shape(a, x, b, y);
      });
    case PairedBy::kPosition:
      return true;
  }
  return false;
}

}  // namespace

std::string_view name_of(PairedBy paired_by) noexcept { return find_name(kPairedBy, paired_by); }

std::vector<RecordingPair> pair_recordings(const Step& a, const Step& b) {
  std::vector<RecordingPair> pairs;
  std::vector<bool> has_a(a.recordings.size(), false);
  std::vector<bool> has_b(b.recordings.size(), false);
  for (const auto& [by, name] : kPairedBy) {
    for (std::size_t i = 0; i < has_a.size(); ++i) {
      for (std::size_t j = 0; j < has_b.size() && !has_a[i]; ++j) {
        if (has_b[j] || !fits(by, a.recordings[i], b.recordings[j])) continue;
        has_a[i] = has_b[j] = true;
        pairs.push_back({i, j, by});
      }
    }
  }
  std::ranges::sort(pairs, {}, &RecordingPair::a);
  return pairs;
}

}  // namespace steptape::trace
