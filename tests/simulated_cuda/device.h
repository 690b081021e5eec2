#pragma once

#include <cstddef>
#include <cstdint>

/// A CUDA device that exists only in this process: a definition of the CUDA runtime (the functions
/// that LibTorch's CUDA libraries import) and of the arithmetic that its kernels would do. What
/// lies between, LibTorch's allocator, streams, events, generators and graphs, is the real code.
///
/// Device memory is host memory. Work on a stream is deferred: it runs, on a thread of its own,
/// when something waits for it, and of several streams the one that the program did *not* wait for
/// runs as late (or as early) as its event waits allow. A missing wait is a wrong value.
namespace steptape::tests::simulated {

/// Which stream goes first where the program left it open.
enum class Order {
  kNeededOnly,   ///< only what a wait asks for; where all is asked for, the newest stream first
  kOthersFirst,  ///< all that can run on the other streams before the awaited one
  kShuffled,     ///< one piece of work at a time from a stream drawn by the seed
};
/// A program that cannot call this sets STEPTAPE_SIMULATED_CUDA_ORDER to `needed_only`,
/// `others_first` or, for a shuffled order, to the seed.
void set_order(Order order, std::uint64_t seed = 0);

/// The bytes that cudaMalloc can hand out in all; 16 GiB at first.
void set_memory_limit(std::size_t bytes);
std::size_t allocated_bytes();

/// Pieces of work that are enqueued and have not run.
std::size_t pending_work();

/// Work that threw (as a failed assertion in a kernel would) and the launch of a compiled kernel
/// leave the device failed: each later call of the runtime returns cudaErrorLaunchFailure.
/// `clear_failure` makes it usable again.
bool has_failed();
void clear_failure();

}  // namespace steptape::tests::simulated
