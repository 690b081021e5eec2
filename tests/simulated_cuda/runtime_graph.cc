#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/simulated_cuda/runtime.h"

namespace simulated = steptape::tests::simulated;
using simulated::Executable;
using simulated::finish;
using simulated::Graph;
using simulated::Node;
using simulated::runtime;

namespace {

/// A graph of ours, also one whose capture is under way.
Graph* graph_of(cudaGraph_t handle) {
  auto* const graph = reinterpret_cast<Graph*>(handle);
  if (runtime().graphs.count(graph)) return graph;
  for (const auto& capture : runtime().captures)
    if (capture->graph.get() == graph) return graph;
  return nullptr;
}

Executable* executable_of(cudaGraphExec_t handle) {
  auto* const executable = reinterpret_cast<Executable*>(handle);
  return runtime().executables.count(executable) ? executable : nullptr;
}

Node* node_of(cudaGraphNode_t handle) {
  auto* const node = reinterpret_cast<Node*>(handle);
  return simulated::is_live(node) ? node : nullptr;
}

cudaGraphNode_t handle_of(const Node* node) {
  return reinterpret_cast<cudaGraphNode_t>(const_cast<Node*>(node));
}

/// CUDA's way of returning a list: only its size into `count` where there is no array, else as many
/// as `count` has room for, the rest of the array cleared.
template <class List>
void copy_out(const List& list, cudaGraphNode_t* array, std::size_t* count) {
  if (!array) {
    *count = list.size();
    return;
  }
  for (std::size_t i = 0; i < *count; ++i)
    array[i] = i < list.size() ? handle_of(&*list[i]) : nullptr;
  *count = std::min(*count, list.size());
}

}  // namespace

extern "C" {

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, std::size_t* count) {
  const std::lock_guard lock(runtime().mutex);
  const Graph* const graph = graph_of(handle);
  if (!graph) return finish(cudaErrorInvalidValue);
  copy_out(graph->nodes(), nodes, count);
  return finish(cudaSuccess);
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* type) {
  const std::lock_guard lock(runtime().mutex);
  const Node* const node = node_of(handle);
  if (!node) return finish(cudaErrorInvalidValue);
  *type = node->work.type;
  return finish(cudaSuccess);
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t* dependencies,
                                         cudaGraphEdgeData* edges, std::size_t* count) {
  const std::lock_guard lock(runtime().mutex);
  const Node* const node = node_of(handle);
  if (!node) return finish(cudaErrorInvalidValue);
  copy_out(node->dependencies, dependencies, count);
  if (edges && dependencies) std::fill_n(edges, *count, cudaGraphEdgeData{});
  return finish(cudaSuccess);
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t handle, cudaKernelNodeParams* parameters) {
  const std::lock_guard lock(runtime().mutex);
  Node* const node = node_of(handle);
  if (!node || !node->work.function) return finish(cudaErrorInvalidValue);
  *parameters = {};
  parameters->func = const_cast<simulated::Function*>(node->work.function);
  parameters->gridDim = node->work.grid;
  parameters->blockDim = node->work.block;
  parameters->kernelParams = node->parameter_addresses.data();
  return finish(cudaSuccess);
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t handle, cudaMemcpy3DParms* parameters) {
  const std::lock_guard lock(runtime().mutex);
  const Node* const node = node_of(handle);
  if (!node || node->work.type != cudaGraphNodeTypeMemcpy) return finish(cudaErrorInvalidValue);
  *parameters = {};
  parameters->srcPtr.ptr = const_cast<void*>(node->work.copies_from);
  parameters->dstPtr.ptr = node->work.copies_to;
  return finish(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t handle,
                                 unsigned long long) {
  const std::lock_guard lock(runtime().mutex);
  const Graph* const graph = graph_of(handle);
  if (!graph) return finish(cudaErrorInvalidValue);
  auto* const made = new Executable(*graph);
  runtime().executables.insert(made);
  *executable = reinterpret_cast<cudaGraphExec_t>(made);
  return finish(cudaSuccess);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t handle, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
  const std::lock_guard lock(runtime().mutex);
  Executable* const executable = executable_of(handle);
  // a driver that says it did and did not: replays must not go by it
  if (std::getenv("STEPTAPE_SIMULATED_CUDA_LOSES_UPDATES") != nullptr) return finish(cudaSuccess);
  const bool is_set = executable && node_of(node) && parameters &&
                      executable->set_parameters(node_of(node), *parameters);
  return finish(is_set ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t handle, cudaGraph_t graph_handle,
                                cudaGraphExecUpdateResultInfo* info) {
  const std::lock_guard lock(runtime().mutex);
  Executable* const executable = executable_of(handle);
  const Graph* const graph = graph_of(graph_handle);
  if (!executable || !graph) return finish(cudaErrorInvalidValue);
  bool is_same_shape = false;
  const Node* const different = executable->update(*graph, is_same_shape);
  *info = {};
  info->errorNode = handle_of(different);
  info->result = !is_same_shape ? cudaGraphExecUpdateErrorTopologyChanged
                 : different    ? cudaGraphExecUpdateErrorParametersChanged
                                : cudaGraphExecUpdateSuccess;
  return finish(info->result == cudaGraphExecUpdateSuccess ? cudaSuccess
                                                           : cudaErrorGraphExecUpdateFailure);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t) {
  const std::lock_guard lock(runtime().mutex);
  return finish(executable_of(handle) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  const std::lock_guard lock(runtime().mutex);
  const Executable* const executable = executable_of(handle);
  const auto stream = runtime().stream_of(stream_handle);
  if (!executable || !stream) return finish(cudaErrorInvalidValue);
  if (stream->capture) return simulated::not_simulated("cudaGraphLaunch in a capture");
  for (simulated::Work& work : executable->launch(runtime().scheduler.draw()))
    if (const auto error = runtime().submit(stream, std::move(work))) return finish(error);
  return finish(cudaSuccess);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  const std::lock_guard lock(runtime().mutex);
  Executable* const executable = executable_of(handle);
  if (!executable) return finish(cudaErrorInvalidValue);
  runtime().executables.erase(executable);
  delete executable;
  return finish(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  const std::lock_guard lock(runtime().mutex);
  auto* const graph = reinterpret_cast<Graph*>(handle);
  if (!runtime().graphs.erase(graph)) return finish(cudaErrorInvalidValue);
  delete graph;
  return finish(cudaSuccess);
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t handle, const char* path, unsigned int) {
  const std::lock_guard lock(runtime().mutex);
  const Graph* const graph = graph_of(handle);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "w"), &std::fclose);
  if (!graph || !file) return finish(cudaErrorInvalidValue);
  std::fprintf(file.get(), "digraph {\n");
  for (const auto& node : graph->nodes()) {
    std::fprintf(file.get(), "  n%p [label=\"%s\"];\n", static_cast<const void*>(node.get()),
                 node->work.function ? node->work.function->name.c_str() : "work");
    for (const Node* dependency : node->dependencies)
      std::fprintf(file.get(), "  n%p -> n%p;\n", static_cast<const void*>(dependency),
                   static_cast<const void*>(node.get()));
  }
  std::fprintf(file.get(), "}\n");
  return finish(cudaSuccess);
}

cudaError_t cudaFuncGetName(const char** name, const void* address) {
  const auto* const function = simulated::find_function(address);
  if (!function) return finish(cudaErrorInvalidDeviceFunction);
  *name = function->name.c_str();
  return finish(cudaSuccess);
}

cudaError_t cudaFuncGetParamInfo(const void* address, std::size_t index, std::size_t* offset,
                                 std::size_t* size) {
  const auto* const function = simulated::find_function(address);
  if (!function) return finish(cudaErrorInvalidDeviceFunction);
  if (index >= function->sizes.size()) return finish(cudaErrorInvalidValue);
  *offset = function->offsets[index];
  if (size) *size = function->sizes[index];
  return finish(cudaSuccess);
}

}  // extern "C"
