#include "replayer/runtime/cuda/plan/segments.h"

#include <algorithm>
#include <unordered_set>

#include "live/operators.h"
#include "replayer/planner/analysis/writes.h"

namespace steptape::replayer::cuda {
namespace {

using Buffers = std::unordered_set<trace::BufferId>;

bool meet(const Buffers& some, const Buffers& others) {
  return std::ranges::any_of(some, [&](trace::BufferId id) { return others.contains(id); });
}

/// What an op has to do with memory.
struct Touch {
  Buffers reads;                  ///< all that it is given
  Buffers writes;                 ///< what it makes, too
  bool is_on_host = false;        ///< of the tensors it is given, some lie on the host
  bool is_on_device = false;      ///< likewise on the device
  bool takes_host_array = false;  ///< of more than one element
  bool writes_host = false;
  bool writes_device = false;
};

class Classification {
 public:
  explicit Classification(const Program& program) : program_(program) {}

  Touch touch_of(trace::Index op) const {
    Touch touch;
    const trace::Op& recorded = recording().ops[op];
    for_each_tensor(recorded.inputs, [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      const trace::Tensor& tensor = recording().tensors[id];
      touch.reads.insert(tensor.buffer);
      const bool host = is_on_host(tensor.buffer);
      touch.is_on_host |= host;
      touch.is_on_device |= !host;
      touch.takes_host_array |= host && tensor.numel() > 1;
    });
    for (const trace::BufferId id : written_by(recording(), recorded)) note_write(touch, id);
    for_each_made(program_, op, [&](trace::BufferId id) { note_write(touch, id); });
    return touch;
  }

  /// Why no graph can hold the op, for one that uses the device; empty: one can.
  std::string why_between(trace::Index op, const Touch& touch) const {
    const live::Effects& effects = live::effects_of(program_.instructions[op].callee);
    if (effects.is_host_read) return "it gives the host a value";
    if (effects.is_dynamic_shape) return "the shape of its result follows from bytes on the device";
    if (touch.is_on_device && touch.writes_host && !only_small_writes_on_host(op)) {
      return "it copies from the device to the host";
    }
    if (touch.is_on_device && touch.takes_host_array && !is_copy_from_host(op, touch)) {
      return "it takes an array from the host";
    }
    return {};
  }

  /// Bytes of the host come to the device, and the op needs nothing of the device for it.
  bool is_transfer(trace::Index op, const Touch& touch) const {
    if (!touch.is_on_host || !touch.writes_device || touch.writes_host) return false;
    return !touch.is_on_device || is_copy_from_host(op, touch);
  }

 private:
  const trace::Recording& recording() const { return *program_.recording; }
  bool is_on_host(trace::BufferId id) const {
    return recording().buffers[id].device.kind == trace::DeviceKind::kCpu;
  }
  void note_write(Touch& touch, trace::BufferId id) const {
    touch.writes.insert(id);
    (is_on_host(id) ? touch.writes_host : touch.writes_device) = true;
  }
  /// `copy_` and its kin: what is on the device is overwritten, not read.
  bool is_copy_from_host(trace::Index op, const Touch& touch) const {
    return touch.is_on_host && live::effects_of(program_.instructions[op].callee).overwrites;
  }
  /// Seeds and offsets that attention returns beside its result lie on the host in eager mode, and
  /// on the device under capture. Nobody but its backward looks at them.
  bool only_small_writes_on_host(trace::Index op) const {
    if (!live::effects_of(program_.instructions[op].callee).is_random) return false;
    for (const trace::Value& value : recording().ops[op].outputs) {
      bool small = true;
      for_each_tensor(value, [&](trace::TensorId id) {
        if (id == trace::kNoTensor) return;
        const trace::Tensor& tensor = recording().tensors[id];
        small &= !is_on_host(tensor.buffer) || tensor.numel() <= 2;
      });
      if (!small) return false;
    }
    return true;
  }

  const Program& program_;
};

/// Segments as they grow: what is done ahead of a graph, the graph, and what is done after it.
class Growing {
 public:
  void ahead(trace::Index op, const Touch& touch) {
    // it would come before graph ops that read what it writes, or write what it reads
    if (meet(touch.writes, graph_reads_) || meet(touch.writes, graph_writes_) ||
        meet(touch.reads, graph_writes_)) {
      end();
    }
    ahead_.ops.push_back(op);
  }
  void graph(trace::Index op, const Touch& touch) {
    graph_.ops.push_back(op);
    graph_reads_.insert(touch.reads.begin(), touch.reads.end());
    graph_writes_.insert(touch.writes.begin(), touch.writes.end());
  }
  void between(trace::Index op, std::string why) {
    end();
    segments_.push_back({SegmentKind::kBetween, {op}, std::move(why)});
  }
  std::vector<Segment> take() {
    end();
    return std::move(segments_);
  }
  /// What comes now is in other segments than what came before.
  void end() {
    for (Segment* segment : {&ahead_, &graph_}) {
      const SegmentKind kind = segment->kind;
      if (!segment->ops.empty()) segments_.push_back(std::move(*segment));
      *segment = {kind, {}};
    }
    graph_reads_.clear();
    graph_writes_.clear();
  }

 private:
  std::vector<Segment> segments_;
  Segment ahead_{SegmentKind::kAhead, {}};
  Segment graph_{SegmentKind::kGraph, {}};
  Buffers graph_reads_, graph_writes_;
};

void place(trace::Index op, const Classification& classification,
           const std::vector<KeptOut>& kept_out, Growing& growing) {
  const Touch touch = classification.touch_of(op);
  const bool is_of_host = !touch.is_on_device && !touch.writes_device;
  const auto kept = std::ranges::find(kept_out, op, &KeptOut::op);
  if (!is_of_host && kept != kept_out.end()) {
    growing.between(op, kept->why);
  } else if (is_of_host || classification.is_transfer(op, touch)) {
    growing.ahead(op, touch);
  } else if (std::string why = classification.why_between(op, touch); !why.empty()) {
    growing.between(op, std::move(why));
  } else {
    growing.graph(op, touch);
  }
}

}  // namespace

std::vector<Segment> segments_of(const Program& program, const std::vector<trace::Index>& order,
                                 const std::vector<KeptOut>& kept_out) {
  const Classification classification(program);
  // a generator is set back by the host, between segments
  std::unordered_set<trace::Index> first, last;
  for (const trace::Seek& seek : program.recording->seeks) {
    first.insert(seek.before_op);
    if (seek.after_op != trace::kNone) last.insert(seek.after_op);
  }
  Growing growing;
  for (const trace::Index op : order) {
    if (first.contains(op)) growing.end();
    place(op, classification, kept_out, growing);
    if (last.contains(op)) growing.end();
  }
  return growing.take();
}

void place_buffers(Program& program, const std::vector<Segment>& segments) {
  const trace::Recording& recording = *program.recording;
  std::vector<bool> in_graph(recording.ops.size(), false);
  for (const Segment& segment : segments) {
    if (segment.kind != SegmentKind::kGraph) continue;
    for (const trace::Index op : segment.ops) in_graph[op] = true;
  }
  std::vector<bool> is_met(program.buffers.size(), false);  // by an op of a graph
  for (std::size_t op = 0; op < recording.ops.size(); ++op) {
    if (!in_graph[op]) continue;
    for_each_buffer(recording, recording.ops[op].inputs,
                    [&](trace::BufferId id) { is_met[id] = true; });
  }
  for (trace::BufferId id = 0; id < program.buffers.size(); ++id) {
    BufferPlan& plan = program.buffers[id];
    if (plan.placement != Placement::kAdopted || plan.defined < 0) continue;
    if (in_graph[static_cast<std::size_t>(plan.defined)]) {
      plan.placement = Placement::kCaptured;
    } else if (is_met[id] && recording.buffers[id].device.kind == trace::DeviceKind::kCuda) {
      plan.placement = Placement::kStaging;
    }
  }
}

}  // namespace steptape::replayer::cuda
