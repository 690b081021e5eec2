#include "replayer/runtime/backends.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "replayer/planner/passes/passes.h"
#include "replayer/runtime/cpu/executor.h"

namespace steptape::replayer {
namespace {

constexpr const char* kLibrary = "libsteptape_cuda.so";
constexpr const char* kEntry = "steptape_cuda_backend_0_1";

class Cpu final : public Backend {
 public:
  std::unique_ptr<Executor> make(std::shared_ptr<const trace::Recording> recording,
                                 const GeneratorOf& generator,
                                 const ExecutorOptions&) const override {
    return cpu::make_executor(cpu::plan(std::move(recording)), generator);
  }
};

std::vector<std::string> candidates() {
  if (const char* path = std::getenv("STEPTAPE_CUDA_BACKEND")) return {path};
  std::vector<std::string> paths;
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&candidates), &here) != 0 && here.dli_fname != nullptr) {
    const std::string file = here.dli_fname;
    if (const auto slash = file.rfind('/'); slash != std::string::npos) {
      paths.push_back(file.substr(0, slash + 1) + kLibrary);
    }
  }
  paths.emplace_back(kLibrary);
  return paths;
}

struct Loaded {
  const Backend* backend = nullptr;
  std::string why;
};

/// Never closed: its plans live as long as they like.
Loaded load() {
  Loaded loaded;
  for (const std::string& path : candidates()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      loaded.why = dlerror();
      continue;
    }
    using Entry = const Backend* (*)(std::uint64_t);
    const auto entry = reinterpret_cast<Entry>(dlsym(library, kEntry));
    const Backend* backend = entry == nullptr ? nullptr : entry(interface_mark());
    if (backend != nullptr) return {backend, {}};
    loaded.why = path + " was built from another version of Steptape";
  }
  return loaded;
}

const Loaded& cuda() {
  static const Loaded loaded = load();
  return loaded;
}

}  // namespace

const Backend* backend_of(trace::DeviceKind kind) {
  static const Cpu cpu;
  if (kind == trace::DeviceKind::kCpu) return &cpu;
  return kind == trace::DeviceKind::kCuda ? cuda().backend : nullptr;
}

std::string why_no_backend(trace::DeviceKind kind) {
  if (backend_of(kind) != nullptr) return "";
  return kind == trace::DeviceKind::kCuda ? cuda().why : "there is none for this kind of device";
}

std::unique_ptr<Executor> make_executor(std::shared_ptr<const trace::Recording> recording,
                                        const GeneratorOf& generator,
                                        const ExecutorOptions& options) {
  const trace::Device device = device_of(*recording);
  const Backend* backend = backend_of(device.kind);
  if (backend == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                "no backend for " + text_of(device) + ": " + why_no_backend(device.kind));
  }
  return backend->make(std::move(recording), generator, options);
}

trace::Device device_of(const trace::Recording& recording) {
  std::optional<trace::Device> device;
  for (const trace::Buffer& buffer : recording.buffers) {
    if (buffer.device.kind == trace::DeviceKind::kCpu) continue;
    if (device && *device != buffer.device) {
      throw Error(ErrorCode::kUnsupported, "the step uses " + text_of(*device) + " and " +
                                               text_of(buffer.device) +
                                               "; a plan runs on one device");
    }
    device = buffer.device;
  }
  return device.value_or(trace::Device{});
}

}  // namespace steptape::replayer
