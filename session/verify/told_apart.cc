#include "session/verify/told_apart.h"

#include <algorithm>

#include "live/operators.h"
#include "replayer/planner/numbers/contradiction.h"
#include "trace/numbers.h"

namespace steptape::session {
namespace {

using trace::Index;
using trace::Recording;

/// Whether `holds(id)` for each tensor of the value, or of the lists in it.
template <typename Holds>
bool all_tensors(const trace::Value& value, Holds&& holds) {
  bool all = true;
  trace::for_each_tensor(value, [&](trace::TensorId id) {
    if (id != trace::kNoTensor) all = all && holds(id);
  });
  return all;
}

/// The first op that leaves a tensor of another geometry.
Index first_other_geometry(const Recording& a, const Recording& b) {
  for (Index op = 0; op < std::min(a.ops.size(), b.ops.size()); ++op) {
    for (const trace::Value& output : a.ops[op].outputs) {
      const bool is_same = all_tensors(output, [&](trace::TensorId id) {
        return id < b.tensors.size() && a.tensors[id] == b.tensors[id] &&
               a.buffers[a.tensors[id].buffer].bytes == b.buffers[b.tensors[id].buffer].bytes;
      });
      if (!is_same) return op;
    }
  }
  return trace::kNone;
}

bool is_dynamic(const Recording& recording, Index op) {
  const auto handle = live::find_operator(recording.operator_of(recording.ops[op]));
  return handle && live::effects_of(*handle).is_dynamic_shape;
}

bool is_bound(const Recording& recording, Index op, Index argument) {
  return std::ranges::any_of(recording.scalars, [&](const trace::ScalarSite& site) {
    return site.op == op && site.argument == argument;
  });
}

bool is_bound(const Recording& recording, trace::BufferId buffer) {
  return std::ranges::any_of(recording.scalars, [&](const trace::ScalarSite& site) {
    return site.op == trace::kNone && site.buffer == buffer;
  });
}

bool same_bytes(const trace::Buffer& a, const trace::Buffer& b) {
  if (a.digest && b.digest) return *a.digest == *b.digest;
  return a.content && b.content && *a.content == *b.content;
}

/// No tensor of the value lies on bytes that are the trace's and differ.
bool same_constants(const Recording& a, const Recording& b, const trace::Value& value) {
  return all_tensors(value, [&](trace::TensorId id) {
    const trace::BufferId buffer = a.tensors[id].buffer;
    if (a.buffers[buffer].role != trace::Role::kConstant) return true;
    return (is_bound(a, buffer) && is_bound(b, buffer)) ||
           same_bytes(a.buffers[buffer], b.buffers[b.tensors[id].buffer]);
  });
}

/// Whether nothing that a plan fixes differs in this op's arguments.
bool takes_the_same(const Recording& a, const Recording& b, Index op) {
  const auto& inputs = a.ops[op].inputs;
  for (Index k = 0; k < inputs.size(); ++k) {
    const bool is_same =
        inputs[k] == b.ops[op].inputs[k] || (is_bound(a, op, k) && is_bound(b, op, k));
    if (!is_same || !same_constants(a, b, inputs[k])) return false;
  }
  return true;
}

}  // namespace

bool told_apart_by_reads(const Recording& a, const Recording& b, const trace::Difference& parted) {
  using enum trace::DifferenceKind;
  Index end = parted.op;
  if (parted.kind == kGeometry) end = first_other_geometry(a, b);
  if (end == trace::kNone || a.seeks != b.seeks) return false;
  // the read in which they part is one itself
  Index teller = replayer::first_other_read(a, b, parted.kind == kHostRead ? end + 1 : end);
  if (parted.kind == kGeometry && is_dynamic(b, end)) teller = std::min(teller, end);
  if (teller == trace::kNone) return false;
  for (Index op = 0; op <= teller; ++op) {
    if (!takes_the_same(a, b, op)) return false;
  }
  return true;
}

}  // namespace steptape::session
