#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "diff/op_stream.h"
#include "diff/sections.h"
#include "perfetto.pb.h"
#include "tools/cli/output.h"
#include "tools/dump/module_tree.h"
#include "tools/dump/summary.h"
#include "tools/export/exports.h"
#include "trace/path.h"

namespace steptape::tools {
namespace {

constexpr std::uint64_t kStepTrack = 1;
constexpr std::uint64_t kMemoryTrack = 2;
constexpr std::uint64_t kFirstPartTrack = 10;
constexpr std::array kParts = {StepPart::kForward, StepPart::kBackward, StepPart::kUpdate};

std::uint64_t track_of(StepPart part) { return kFirstPartTrack + static_cast<std::uint64_t>(part); }

/// When each op begins, in nanoseconds from the start of the first, and when the last one ends.
/// What lies between ops was not recorded.
std::vector<std::uint64_t> starts_of(const trace::Recording& recording) {
  std::vector<std::uint64_t> starts = {0};
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    starts.push_back(starts.back() +
                     (recording.op_ns.empty() ? kNanosecondsAnOp : recording.op_ns[i]));
  }
  return starts;
}

std::string words_of_times(const trace::Recording& recording) {
  if (!recording.op_ns.empty()) return "each op is as long as it took, without what lies between";
  return fmt::format("each op is drawn as {} us, the trace holds no times",
                     kNanosecondsAnOp / 1000);
}

/// By how many bytes the temporaries that are alive grow when an op begins; one for each op, and
/// one for the end of the step.
std::vector<std::int64_t> growth_of_temporaries(const trace::Recording& recording) {
  std::vector<std::int64_t> growth(recording.ops.size() + 1);
  const std::vector<diff::Lifetime> lifetimes = diff::lifetimes_of(recording);
  for (std::size_t b = 0; b < lifetimes.size(); ++b) {
    const trace::Buffer& buffer = recording.buffers[b];
    if (buffer.role != trace::Role::kTemporary || lifetimes[b].first == trace::kNone) continue;
    growth[lifetimes[b].first] += static_cast<std::int64_t>(buffer.bytes);
    growth[lifetimes[b].last + 1] -= static_cast<std::int64_t>(buffer.bytes);
  }
  return growth;
}

class Timeline {
 public:
  explicit Timeline(const ChosenRecording& chosen)
      : recording_(chosen.recording()),
        stream_(recording_),
        parts_(parts_of(recording_)),
        modules_(module_tree(recording_)),
        growth_(growth_of_temporaries(recording_)),
        starts_(starts_of(recording_)) {
    add_track(kStepTrack, 0,
              fmt::format("{}, recording {}: {}", shown(chosen.step->name), chosen.position,
                          words_of_times(recording_)));
    for (const StepPart part : kParts) {
      add_track(track_of(part), kStepTrack, std::string(name_of(part)));
    }
    add_track(kMemoryTrack, kStepTrack, "bytes of temporaries")
        ->mutable_counter()
        ->set_unit(perfetto::CounterDescriptor::UNIT_SIZE_BYTES);
  }

  /// Packets in the order of their times; where a slice ends and another begins, the end first.
  std::string take() {
    for (trace::Index i = 0; i < recording_.ops.size(); ++i) {
      enter(i);
      add_memory(i);
      add_op(i);
    }
    leave(0, recording_.ops.size());
    add_memory(recording_.ops.size());
    return trace_.SerializeAsString();
  }

 private:
  struct Call {
    trace::Index module = trace::kNone;
    std::uint32_t number = 1;
  };

  perfetto::TrackDescriptor* add_track(std::uint64_t uuid, std::uint64_t parent, std::string name) {
    perfetto::TrackDescriptor* track = trace_.add_packet()->mutable_track_descriptor();
    track->set_uuid(uuid);
    track->set_name(std::move(name));
    if (parent != 0) track->set_parent_uuid(parent);
    return track;
  }

  perfetto::TrackEvent* add_event(std::uint64_t track, std::size_t op,
                                  perfetto::TrackEvent::Type type) {
    perfetto::TracePacket* packet = trace_.add_packet();
    packet->set_timestamp(starts_[op]);
    packet->set_trusted_packet_sequence_id(1);
    perfetto::TrackEvent* event = packet->mutable_track_event();
    event->set_type(type);
    event->set_track_uuid(track);
    return event;
  }

  perfetto::TrackEvent* begin(std::size_t op, const std::string& name, const char* category) {
    perfetto::TrackEvent* event =
        add_event(track_of(parts_[op]), op, perfetto::TrackEvent::TYPE_SLICE_BEGIN);
    event->set_name(shown(name));
    event->add_categories(category);
    return event;
  }

  static void annotate(perfetto::TrackEvent* event, const char* name, const std::string& text) {
    if (text.empty()) return;
    perfetto::DebugAnnotation* annotation = event->add_debug_annotations();
    annotation->set_name(name);
    annotation->set_string_value(shown(text));
  }

  /// The calls that `op` stands in, outermost first. A trace does not say which calls of the outer
  /// modules they are.
  std::vector<Call> calls_of(const trace::Op& op) const {
    std::vector<Call> calls;
    for (trace::Index i = op.module; i != trace::kNone; i = modules_[i].parent) {
      calls.push_back({i, i == op.module ? op.call : 1});
    }
    std::ranges::reverse(calls);
    return calls;
  }

  /// Ends the slices of calls from `keep` on; the last op before `op` has them open.
  void leave(std::size_t keep, std::size_t op) {
    for (; open_.size() > keep; open_.pop_back()) {
      add_event(track_of(parts_[op - 1]), op, perfetto::TrackEvent::TYPE_SLICE_END);
    }
  }

  /// Ends and begins slices so that those of the calls of `op` are open.
  void enter(trace::Index op) {
    const std::vector<Call> calls = calls_of(recording_.ops[op]);
    const bool is_other_track = op > 0 && parts_[op] != parts_[op - 1];
    const auto differs = std::ranges::mismatch(open_, calls, [&](const Call& a, const Call& b) {
      return a.module == b.module && (&b != &calls.back() || a.number == b.number);
    });
    leave(is_other_track ? 0 : static_cast<std::size_t>(differs.in1 - open_.begin()), op);
    for (std::size_t depth = open_.size(); depth < calls.size(); ++depth) {
      const Call& call = calls[depth];
      begin(op, trace::call_path(recording_.modules[call.module].path, call.number), "module");
      open_.push_back(call);
    }
  }

  void add_op(trace::Index position) {
    const trace::Op& op = recording_.ops[position];
    perfetto::TrackEvent* event = begin(position, recording_.operator_of(op).full_name(), "op");
    perfetto::DebugAnnotation* number = event->add_debug_annotations();
    number->set_name("op");
    number->set_uint_value(position);
    annotate(event, "call", stream_.op(position).text);
    annotate(event, "module", stream_.call_of(op));
    if (op.scope != trace::kNone) annotate(event, "where", recording_.scopes[op.scope]);
    add_event(track_of(parts_[position]), position + std::size_t{1},
              perfetto::TrackEvent::TYPE_SLICE_END);
  }

  void add_memory(std::size_t op) {
    if (growth_[op] == 0 && op > 0) return;
    live_bytes_ += growth_[op];
    add_event(kMemoryTrack, op, perfetto::TrackEvent::TYPE_COUNTER)->set_counter_value(live_bytes_);
  }

  const trace::Recording& recording_;
  diff::OpStream stream_;
  std::vector<StepPart> parts_;
  std::vector<ModuleNode> modules_;
  std::vector<std::int64_t> growth_;
  std::vector<std::uint64_t> starts_;
  std::int64_t live_bytes_ = 0;
  std::vector<Call> open_;  ///< the slices of calls that are open, outermost first
  perfetto::Trace trace_;
};

}  // namespace

std::string export_perfetto(const ChosenRecording& chosen) { return Timeline(chosen).take(); }

}  // namespace steptape::tools
