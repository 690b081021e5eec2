#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replayer/planner/program.h"

namespace steptape::replayer::cuda {

/// How a replay does an op.
enum class SegmentKind : std::uint8_t {
  /// The dispatcher, before the graph that follows: an op of the host alone, or one that brings
  /// bytes of the host to the device. A graph would leave it out, or hold its bytes for good.
  kAhead,
  kGraph,  ///< as part of a graph
  /// The dispatcher, between two graphs: it waits for the device, or the shape of what it makes
  /// follows from bytes there.
  kBetween,
};

/// Ops that a replay does in one go, in their order.
struct Segment {
  SegmentKind kind = SegmentKind::kGraph;
  std::vector<trace::Index> ops;
  std::string why = {};  ///< of kBetween: what its first op does that no graph can
};

/// An op that is kept out of graphs.
struct KeptOut {
  trace::Index op = 0;
  std::string why;
};

/// The calls of `program` in segments, in the order of a replay: ahead, graph, between, ahead, ...
/// with those that hold nothing left out. What a generator is set back for begins a segment, and
/// what leaves the state that it is set to ends one. `order` has the calls in the order of a run
/// (see calls_of). What is done ahead moves in front of graph ops that came before it only where
/// neither writes what the other uses.
std::vector<Segment> segments_of(const Program& program, const std::vector<trace::Index>& order,
                                 const std::vector<KeptOut>& kept_out = {});

/// Gives the memory of each device buffer that the step makes its place: the graphs' own pool
/// (Placement::kCaptured), or memory of the plan's own that a graph finds again where ops outside
/// graphs put it (Placement::kStaging). Others stay adopted.
void place_buffers(Program& program, const std::vector<Segment>& segments);

}  // namespace steptape::replayer::cuda
