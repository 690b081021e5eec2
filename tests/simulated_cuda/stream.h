#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_set>
#include <variant>
#include <vector>

#include "tests/simulated_cuda/graph.h"

namespace steptape::tests::simulated {

struct Stream;

/// A capture under way. Streams join it by waiting for an event of a stream that is in it.
struct Capture {
  std::uint64_t id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  std::unordered_set<Stream*> streams;
  bool is_invalidated = false;
};

/// A point in a stream: reached when the stream has done `count` pieces of work.
struct Point {
  std::shared_ptr<Stream> stream;
  std::uint64_t count = 0;
};

struct Stream {
  std::uint64_t id = 0;
  bool is_blocking = true;  ///< towards the legacy default stream
  int priority = 0;
  std::deque<std::variant<Work, Point>> queue;  ///< a point: wait until it is reached
  std::uint64_t enqueued = 0;
  std::uint64_t completed = 0;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> tail;  ///< in a capture: what the next node depends on
};

/// What an event was recorded at last.
struct Event {
  bool has_timing = true;
  bool is_recorded = false;
  Point point;
  std::shared_ptr<std::chrono::steady_clock::time_point> reached;
  std::shared_ptr<Capture> capture;  ///< of an event recorded in a capture
  std::vector<Node*> tail;
};

}  // namespace steptape::tests::simulated
