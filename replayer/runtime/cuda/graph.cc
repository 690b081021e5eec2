#include "replayer/runtime/cuda/graph.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <utility>

namespace steptape::replayer::cuda {
namespace {

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "looking at a graph");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count != 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "looking at a graph");
  return nodes;
}

std::vector<cudaGraphNode_t> dependencies_of(cudaGraphNode_t node) {
  std::size_t count = 0;
  check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &count), "looking at a node");
  std::vector<cudaGraphNode_t> nodes(count);
  std::vector<cudaGraphEdgeData> edges(count);
  if (count != 0) {
    check(cudaGraphNodeGetDependencies(node, nodes.data(), edges.data(), &count),
          "looking at a node");
  }
  return nodes;
}

bool is_of_host(const void* address) {
  if (address == nullptr) return false;
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    cudaGetLastError();
    return true;
  }
  return attributes.type == cudaMemoryTypeHost || attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

Graph::Graph(c10::MempoolId_t pool, std::span<const at::Generator> generators)
    : pool_(pool), device_(c10::cuda::current_device()) {
  or_leak([&] {
    for (const at::Generator& generator : generators) {
      if (generator.device().is_cuda()) graph_->register_generator_state(generator);
    }
  });
}

Graph::~Graph() { abandon(); }

// Where LibTorch cannot register a generator for want of memory, the graph's destructor throws.
void Graph::or_leak(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    static_cast<void>(graph_.release());
    is_capturing_ = false;
    throw;
  }
}

void Graph::begin() {
  seen_.clear();
  stream_ = c10::cuda::getCurrentCUDAStream(device_);
  is_capturing_ = true;
  or_leak([&] { graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal); });
}

bool Graph::is_whole() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(*stream_, &status) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return status == cudaStreamCaptureStatusActive;
}

std::vector<cudaGraphNode_t> Graph::last_nodes() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;  // asked for, since some have them
  std::size_t count = 0;
  check(cudaStreamGetCaptureInfo(*stream_, &status, nullptr, nullptr, &nodes, &edges, &count),
        "looking at a capture");
  return {nodes, nodes + count};
}

std::vector<cudaGraphNode_t> Graph::take_new_nodes() {
  std::vector<cudaGraphNode_t> added;
  std::vector<std::pair<cudaGraphNode_t, bool>> left;  // and whether all that it waits for is in
  for (const cudaGraphNode_t node : last_nodes()) left.emplace_back(node, false);
  while (!left.empty()) {
    const auto [node, is_done] = left.back();
    left.pop_back();
    if (is_done) {
      added.push_back(node);
    } else if (seen_.insert(node).second) {
      left.emplace_back(node, true);
      for (const cudaGraphNode_t before : dependencies_of(node)) left.emplace_back(before, false);
    }
  }
  return added;
}

void Graph::end() {
  graph_->capture_end();
  is_capturing_ = false;
  graph_->instantiate();
}

void Graph::abandon() noexcept {
  if (!is_capturing_) return;
  is_capturing_ = false;
  cudaGraph_t left = nullptr;
  cudaStreamEndCapture(*stream_, &left);
  if (left != nullptr) cudaGraphDestroy(left);
  cudaGetLastError();
  try {
    const c10::cuda::CUDAStreamGuard on_stream(*stream_);
    check(cudaStreamBeginCapture(*stream_, cudaStreamCaptureModeThreadLocal), "an empty capture");
    check(cudaLaunchHostFunc(
              *stream_, [](void*) {}, nullptr),
          "an empty capture");
    graph_->capture_end();
  } catch (const std::exception&) {
    cudaGetLastError();
  }
}

void Graph::launch() { graph_->replay(); }

std::size_t Graph::node_count() const { return nodes_of(graph_->raw_cuda_graph()).size(); }

bool Graph::needs_host(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(node, &type), "looking at a node");
  if (type == cudaGraphNodeTypeHost) return true;
  if (type != cudaGraphNodeTypeMemcpy) return false;
  cudaMemcpy3DParms copy{};
  check(cudaGraphMemcpyNodeGetParams(node, &copy), "looking at a node");
  return is_of_host(copy.srcPtr.ptr) || is_of_host(copy.dstPtr.ptr);
}

std::optional<KernelImage> Graph::image_of(cudaGraphNode_t node, std::string& why) {
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(node, &type), "looking at a node");
  if (type != cudaGraphNodeTypeKernel) {
    why = "it does more than launch kernels";
    return std::nullopt;
  }
  cudaKernelNodeParams found{};
  if (cudaGraphKernelNodeGetParams(node, &found) != cudaSuccess || found.kernelParams == nullptr) {
    cudaGetLastError();
    why = "CUDA does not show the parameters of its kernel";
    return std::nullopt;
  }
  KernelImage image;
  image.function = found.func;
  image.grid = {found.gridDim.x, found.gridDim.y, found.gridDim.z};
  image.block = {found.blockDim.x, found.blockDim.y, found.blockDim.z};
  image.shared_bytes = found.sharedMemBytes;
  for (std::size_t i = 0;; ++i) {
    std::size_t offset = 0;
    std::size_t bytes = 0;
    const cudaError_t answer = cudaFuncGetParamInfo(found.func, i, &offset, &bytes);
    if (answer != cudaSuccess) {
      cudaGetLastError();
      if (answer == cudaErrorInvalidValue) break;  // that was the last one
      why = "CUDA does not show the parameters of its kernel";
      return std::nullopt;
    }
    const auto* first = static_cast<const std::byte*>(found.kernelParams[i]);
    image.parameters.emplace_back(first, first + bytes);
  }
  if (image.parameters.empty()) {
    why = "CUDA does not show the parameters of its kernel";
    return std::nullopt;
  }
  return image;
}

void Graph::set(cudaGraphNode_t node, KernelImage& image) {
  std::vector<void*> parameters;
  for (std::vector<std::byte>& parameter : image.parameters) parameters.push_back(parameter.data());
  cudaKernelNodeParams params{};
  params.func = const_cast<void*>(image.function);
  params.gridDim = dim3(image.grid[0], image.grid[1], image.grid[2]);
  params.blockDim = dim3(image.block[0], image.block[1], image.block[2]);
  params.sharedMemBytes = image.shared_bytes;
  params.kernelParams = parameters.data();
  check(cudaGraphExecKernelNodeSetParams(graph_->raw_cuda_graph_exec(), node, &params),
        "giving a kernel other numbers");
}

void Graph::write_dot(const std::string& path) {
  check(
      cudaGraphDebugDotPrint(graph_->raw_cuda_graph(), path.c_str(), cudaGraphDebugDotFlagsVerbose),
      "writing a graph");
}

}  // namespace steptape::replayer::cuda
