#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "steptape/stats.h"
#include "trace/model.h"

namespace steptape::replayer::cuda {

/// How a captured graph gets at a bound buffer.
enum class Hold : std::uint8_t {
  kByAddress,  ///< the graph has the address it had at the capture
  kCopiedIn,   ///< into memory of the plan's own, whose address the graph has
  kNone,       ///< not at all: it is empty, no op uses it, or it is on the CPU
};

/// What to do with bound memory before a launch and after it.
struct Decision {
  bool capture = false;
  std::string why;                     ///< of a capture: "model.fc1.weight moved"; empty: the first
  std::vector<std::size_t> copy_in;    ///< positions, before the launch
  std::vector<std::size_t> copy_back;  ///< positions, after it: of these, what the step writes
};

/// Which bound memory a captured graph reads and writes by its address. What the user's objects own
/// (parameters, module buffers, optimizer state, gradients, carried and outside tensors) is held by
/// address: a copy would not be theirs, and when one moves, the graph is captured again. Inputs are
/// new tensors in most programs, so they are copied in, unless one has lain still for three calls
/// when a capture is made, or for sixteen after one; should it move after that, the graph is
/// captured again with it copied in for good. So an input costs two captures more at most. Kept
/// gradients are held by address until one moves, and copied in and back from then on: a program
/// that clears them gets new ones. Addresses are only compared.
class StaticMemory {
 public:
  /// `bound` and `written` are those of an Executor: buffers of `recording`, and positions of those
  /// that a run writes.
  StaticMemory(const trace::Recording& recording, std::span<const trace::BufferId> bound,
               std::span<const std::size_t> written);

  /// To be called once before each run, captured or not, with one address for each bound buffer:
  /// it remembers where inputs lie. A capture that it asks for is asked for until there is one.
  Decision decide(std::span<void* const> addresses);

  /// A capture has been made for these addresses, as the last decision said.
  void captured(std::span<void* const> addresses);

  /// In the captured graph, or in the capture that the last decision asked for.
  Hold hold(std::size_t position) const { return buffers_[position].hold; }

  /// What the last decision copies.
  std::vector<TensorCopy> copies() const;

  /// Of the plan's own memory that inputs are copied into. Each such buffer must have its
  /// recording's address modulo 64, which may take 63 bytes more.
  std::uint64_t static_bytes() const;

 private:
  struct Bound {
    std::string path;
    std::uint64_t bytes = 0;
    bool is_input = false;
    bool is_gradient = false;
    bool is_written = false;
    Hold hold = Hold::kByAddress;
    bool has_moved = false;     ///< an input or gradient, while it was held by address
    bool has_wandered = false;  ///< an input, between any two calls
    const void* captured = nullptr;
    const void* last = nullptr;
    std::uint32_t calls_at_last = 0;
  };

  void look_at(std::span<void* const> addresses);
  /// "model.fc1.weight and 2 more moved"; empty when nothing has that is held by address.
  std::string moved(std::span<void* const> addresses);
  std::string lies_still() const;
  void settle_inputs();

  std::vector<Bound> buffers_;  ///< by position
  bool is_captured_ = false;
  std::string why_;  ///< of the capture that is asked for
};

/// Where gradients that a step makes lie between replays.
enum class Gradients : std::uint8_t {
  kNew,     ///< in new memory each time, as an eager step leaves them
  kStatic,  ///< in the graph's (Options::static_gradients)
};

/// What a replay copies out of the graph's memory, since the user may keep it: results, and
/// gradients unless they are static. A buffer is copied once, under the path that names it first.
std::vector<TensorCopy> copies_out(const trace::Recording& recording, Gradients gradients);

}  // namespace steptape::replayer::cuda
