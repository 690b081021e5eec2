#include <cxxabi.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/simulated_cuda/launches.h"
#include "tests/simulated_cuda/runtime.h"

// Kernels that LibTorch compiled. None can run here. A launch is refused by the kernel's name, or,
// where launches are kept, becomes work that does nothing: a kernel node with the parameters that
// LibTorch's host code handed over, as far as their layout follows from the kernel's name.

namespace simulated = steptape::tests::simulated;
using simulated::finish;

namespace steptape::tests::simulated {

bool keeps_launches() {
  static const bool keeps = std::getenv("STEPTAPE_SIMULATED_CUDA_LAUNCHES") != nullptr;
  return keeps;
}

namespace {

/// By the address of its host stub the name of each kernel. Filled while LibTorch's libraries are
/// loaded: some ten thousand entries, so nothing more is done with them then.
std::unordered_map<const void*, const char*>& compiled_kernels() {
  static auto& kernels = *new std::unordered_map<const void*, const char*>;
  return kernels;
}

const char* name_of(const void* stub) {
  const auto found = compiled_kernels().find(stub);
  return found == compiled_kernels().end() ? "unknown" : found->second;
}

/// Leaves the device failed: not every launch in LibTorch is checked for an error.
cudaError_t refuse_launch(const void* stub) {
  const std::lock_guard lock(runtime().mutex);
  runtime().scheduler.fail();
  return not_simulated((std::string("the launch of kernel ") + name_of(stub)).c_str());
}

}  // namespace

// Structs that LibTorch does not fill show what CUDA's own functions leave on the stack: the same
// for some calls, and then other bytes.
[[gnu::noinline]] void leave_residue() {
  if (!keeps_launches()) return;
  static thread_local std::minstd_rand random(7);
  static thread_local std::uint64_t left = 0;
  constexpr unsigned kCallsWithTheSame = 300;
  if (random() % kCallsWithTheSame == 0) left = random() * 0x9e3779b97f4a7c15U;
  volatile std::uint64_t bytes[1024];  // NOLINT(modernize-avoid-c-arrays): on the stack
  for (volatile std::uint64_t& word : bytes) word = left;
}

namespace {

// The structs of ATen/native/cuda/MultiTensorApply.cuh that hold lists of tensors.

constexpr std::size_t kTensors[] = {110, 64, 48, 36, 30};            // by how many lists
constexpr std::size_t kTensorsWithNumbers[] = {96, 64, 48, 36, 30};  // likewise
constexpr std::size_t kBlocks = 320;
constexpr std::size_t kBlockBytes = kBlocks * (1 + sizeof(int));  // to a tensor, and to a chunk

std::size_t rounded_up(std::size_t bytes) { return (bytes + 7) / 8 * 8; }

std::size_t bytes_of_lists(std::size_t lists) {
  return rounded_up(kTensors[lists - 1] * 8 * (lists + 1) + kBlockBytes + sizeof(int));
}
std::size_t bytes_of_lists_with_numbers(std::size_t lists, std::size_t number) {
  return rounded_up(kTensorsWithNumbers[lists - 1] * (8 * (lists + 1) + number) + kBlockBytes);
}
std::size_t bytes_of_lists_with_steps(std::size_t lists) {
  return rounded_up(kTensors[lists - 1] * 8 * (lists + 1) + kTensorsWithNumbers[lists - 1] * 8 +
                    kBlockBytes + sizeof(int));
}

/// The arguments of a template or a function, `text` being what stands between its brackets.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t depth = 0, first = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      std::string_view part = text.substr(first, i - first);
      while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
      if (!part.empty()) parts.push_back(part);
      first = i + 1;
    } else if (std::string_view("<({[").find(text[i]) != std::string_view::npos) {
      ++depth;
    } else if (std::string_view(">)}]").find(text[i]) != std::string_view::npos) {
      --depth;
    }
  }
  return parts;
}

std::size_t bytes_of_number(std::string_view type) {
  if (type == "double" || type == "long" || type == "unsigned long") return 8;
  if (type == "float" || type == "int" || type == "unsigned int") return 4;
  if (type == "short" || type == "c10::Half" || type == "c10::BFloat16") return 2;
  if (type == "bool" || type == "signed char" || type == "unsigned char") return 1;
  return 0;
}

/// Of a kernel's parameter; 0: unknown.
std::size_t bytes_of(std::string_view type) {
  if (const std::size_t bytes = bytes_of_number(type)) return bytes;
  if (type.ends_with("*")) return 8;
  const auto arguments_of =
      [&](std::string_view name) -> std::optional<std::vector<std::string_view>> {
    const std::size_t at = type.find(name);
    if (at == std::string_view::npos || !type.ends_with(">")) return std::nullopt;
    const std::size_t first = at + name.size();
    return split(type.substr(first, type.size() - first - 1));
  };
  const auto number = [](std::string_view text) { return std::stoul(std::string(text)); };
  if (const auto of = arguments_of("::FusedOptimizerTensorListMetadata<")) {
    return bytes_of_lists_with_steps(number(of->at(0)));
  }
  if (const auto of = arguments_of("::TensorListScalarListMetadata<")) {
    return bytes_of_lists_with_numbers(number(of->at(1)), bytes_of_number(of->at(0)));
  }
  if (const auto of = arguments_of("::TensorListMetadata<"))
    return bytes_of_lists(number(of->at(0)));
  return 1;  // a function object of no members
}

/// Of the parameters of a kernel for lists of tensors, whose name tells their types; none for
/// others.
std::vector<std::size_t> layout_of(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), &std::free);
  if (!text) return {};
  std::string_view name = text.get();
  if (name.find("multi_tensor_apply_kernel<") == std::string_view::npos) return {};
  const std::size_t end = name.rfind(')');
  std::size_t first = end, depth = 0;
  do {
    if (name[first] == ')') ++depth;
    if (name[first] == '(') --depth;
    --first;
  } while (depth != 0);
  std::vector<std::size_t> sizes;
  for (const std::string_view type : split(name.substr(first + 2, end - first - 2))) {
    sizes.push_back(bytes_of(type));
    if (sizes.back() == 0) return {};
  }
  return sizes;
}

const Function* function_of_stub(const void* stub) {
  static auto& functions = *new std::unordered_map<const void*, const Function*>;
  const auto [entry, is_new] = functions.try_emplace(stub, nullptr);
  if (is_new) {
    const std::vector<std::size_t> sizes = layout_of(name_of(stub));
    if (!sizes.empty()) entry->second = function_of(name_of(stub), sizes);
  }
  return entry->second;
}

cudaError_t launch(const void* stub, dim3 grid, dim3 block, void** arguments, cudaStream_t stream) {
  if (!keeps_launches()) return refuse_launch(stub);
  leave_residue();
  const std::lock_guard lock(runtime().mutex);
  Work work;
  work.type = cudaGraphNodeTypeKernel;
  work.grid = grid;
  work.block = block;
  work.function = function_of_stub(stub);
  auto parameters = std::make_shared<Parameters>();
  if (work.function != nullptr) {
    for (std::size_t i = 0; i < work.function->sizes.size(); ++i) {
      parameters->resize(work.function->offsets[i] + rounded_up(work.function->sizes[i]));
      std::memcpy(parameters->data() + work.function->offsets[i], arguments[i],
                  work.function->sizes[i]);
    }
  }
  work.parameters = std::move(parameters);
  work.body = [](std::span<const std::byte>) {};
  return finish(runtime().submit(runtime().stream_of(stream), std::move(work)));
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  void* stream;
};
std::vector<Configuration>& configurations() {
  static thread_local std::vector<Configuration> pushed;
  return pushed;
}

}  // namespace
}  // namespace steptape::tests::simulated

using simulated::configurations;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  simulated::compiled_kernels().emplace(stub, name);
}

// A launch is refused where it names its kernel; up to there it must look as if it went well.
unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t bytes, void* stream) {
  configurations().push_back({grid, block, bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* bytes, void* stream) {
  const auto configuration = configurations().back();
  configurations().pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *bytes = configuration.shared_bytes;
  *static_cast<void**>(stream) = configuration.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t, cudaStream_t stream) {
  return simulated::launch(kernel, grid, block, arguments, stream);
}
cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, std::size_t,
                             cudaStream_t stream) {
  return simulated::launch(stub, grid, block, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* stub,
                                void** arguments) {
  return simulated::launch(stub, configuration->gridDim, configuration->blockDim, arguments,
                           configuration->stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  return finish(cudaSuccess);
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return finish(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned int) {
  *blocks = 2;
  return finish(cudaSuccess);
}

}  // extern "C"
