#pragma once

#include <ATen/core/Generator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "replayer/runtime/cuda/plan/parameter_slots.h"
#include "steptape/error.h"

namespace steptape::replayer::cuda {

/// A stretch of a step that was captured from a stream, ready to be launched.
class Graph {
 public:
  /// Its temporaries come from `pool`; ops in it may draw from `generators`, and from the device's
  /// default one.
  Graph(c10::MempoolId_t pool, std::span<const at::Generator> generators);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  /// Begins to capture what this thread gives the current stream, in thread-local mode: what other
  /// threads do goes on beside it.
  void begin();
  /// Whether what was given to the stream since has left the capture whole.
  bool is_whole() const;
  /// The nodes that came since the last call, or since `begin`, each after what it waits for.
  std::vector<cudaGraphNode_t> take_new_nodes();
  /// Ends the capture, and makes it ready to be launched.
  void end();
  /// Ends a capture that cannot be used, whatever state it is in. at::cuda::CUDAGraph stops at the
  /// first thing that fails, and leaves the allocator and the generators as if the capture went on
  /// (pytorch#180395, pytorch#190348): it is given an empty capture to end in its place.
  void abandon() noexcept;

  /// On the current stream.
  void launch();
  std::size_t node_count() const;

  /// Whether the node needs memory or a function of the host when it runs.
  static bool needs_host(cudaGraphNode_t node);
  /// What a kernel's node holds; nothing, with the reason in `why`, for what is not a kernel or
  /// hides its parameters.
  static std::optional<KernelImage> image_of(cudaGraphNode_t node, std::string& why);
  /// Gives the node's kernel other parameters from the next launch on.
  void set(cudaGraphNode_t node, KernelImage& image);

  /// Writes the graph in the language of Graphviz.
  void write_dot(const std::string& path);

 private:
  std::vector<cudaGraphNode_t> last_nodes() const;
  void or_leak(const std::function<void()>& work);

  std::unique_ptr<at::cuda::CUDAGraph> graph_ =
      std::make_unique<at::cuda::CUDAGraph>(/*keep_graph=*/true);
  c10::MempoolId_t pool_;
  c10::DeviceIndex device_;
  bool is_capturing_ = false;
  std::optional<c10::cuda::CUDAStream> stream_;
  std::unordered_set<cudaGraphNode_t> seen_;
};

/// Throws Error (internal) with CUDA's own words where a call of its runtime failed. An error that
/// the next call would find again is taken back.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error(ErrorCode::kInternal, std::string(what) + ": " + cudaGetErrorName(status) + ", " +
                                        cudaGetErrorString(status));
}

}  // namespace steptape::replayer::cuda
