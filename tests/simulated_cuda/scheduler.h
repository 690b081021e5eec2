#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/simulated_cuda/device.h"
#include "tests/simulated_cuda/stream.h"

namespace steptape::tests::simulated {

/// Holds the streams and runs their work, as late as it can and in the order of `Order` where the
/// program left one open. Not thread safe; the work runs on a thread of the device's own.
class Scheduler {
 public:
  /// The legacy default stream is the first.
  Scheduler();

  std::shared_ptr<Stream> make_stream(bool is_blocking, int priority);
  /// Lets the stream's work run first.
  void remove_stream(Stream* stream);
  /// nullptr for an address that is not a stream.
  std::shared_ptr<Stream> find(const void* address) const;
  const std::vector<std::shared_ptr<Stream>>& streams() const { return streams_; }

  void enqueue(const std::shared_ptr<Stream>& stream, Work work);
  void wait(Stream& stream, Point point);
  static bool is_reached(const Point& point) { return point.stream->completed >= point.count; }

  void run_until(const Point& point);
  void run_all();
  /// Runs one piece of the work that `point` needs.
  void run_one_towards(const Point& point);

  void set_order(Order order, std::uint64_t seed);
  std::uint64_t draw();
  std::size_t pending() const;

  bool has_failed() const { return has_failed_; }
  void fail() { has_failed_ = true; }
  void clear_failure() { has_failed_ = false; }

 private:
  bool can_run(const Stream& stream) const;
  void run_head(Stream& stream);
  void run_needed(const Point& point);
  Stream* draw_runnable(const Stream* except);

  std::vector<std::shared_ptr<Stream>> streams_;
  std::uint64_t next_id_ = 0;
  Order order_ = Order::kNeededOnly;
  std::mt19937_64 random_;
  bool has_failed_ = false;
};

}  // namespace steptape::tests::simulated
