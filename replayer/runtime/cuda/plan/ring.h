#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace steptape::replayer::cuda {

/// A point in a stream's work.
class Fence {
 public:
  Fence() = default;
  virtual ~Fence() = default;
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  /// The point is after all that has been asked of the stream; again, and it is a later one.
  virtual void record() = 0;
  /// Whether the work before the point is done.
  virtual bool is_done() = 0;
  /// Returns when it is.
  virtual void wait() = 0;
};

/// Where a ring gets its memory from, and fences on the stream that uses it.
class RingMemory {
 public:
  RingMemory() = default;
  virtual ~RingMemory() = default;
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  /// Memory that a device can copy from and to while the host goes on. Throws when it is short.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void free(std::byte* memory) noexcept = 0;
  virtual std::unique_ptr<Fence> make_fence() = 0;
};

/// Host memory for transfers that are under way when the host goes on: a few slots, handed out in
/// turn, each only when the transfers of its last turn are done. Not thread-safe.
///
///   std::byte* bytes = ring.take(size);   // waits while the oldest transfer still reads its slot
///   ... fill, and ask the stream to copy ...
///   ring.done();
class Ring {
 public:
  /// Allocates nothing yet. `memory` must outlive it; `slots` is at least 1.
  Ring(RingMemory& memory, std::size_t slots);
  /// Waits for what is under way, and frees all.
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// At least `bytes` bytes, the caller's until `done`; null may stand for none. A `take` after
  /// one that nobody called `done` for, since something threw, does so itself. What `memory` throws
  /// leaves the ring as it was.
  std::byte* take(std::size_t bytes);
  /// All that uses what was taken has been asked of the stream. Nothing where nothing is taken.
  void done();

 private:
  struct Slot {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::unique_ptr<Fence> fence;
    bool is_under_way = false;
  };

  RingMemory& memory_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;   ///< the oldest
  bool is_taken_ = false;  ///< next_
};

}  // namespace steptape::replayer::cuda
