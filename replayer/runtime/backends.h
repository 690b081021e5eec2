#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "replayer/runtime/executor.h"

namespace steptape::replayer {

/// What plans of one session share on a device: the pool of memory that their graphs take their
/// temporaries from. Each backend keeps what it will in it.
struct SharedPool {
  virtual ~SharedPool() = default;
  /// Gradients that lie in the pool's memory and that the user holds are moved to memory of their
  /// own.
  virtual void settle_gradients() {}
};
/// By the index of the device.
using SharedPools = std::map<std::int8_t, std::shared_ptr<SharedPool>>;

struct ExecutorOptions {
  /// Gradients stay in the memory that a graph writes (Options::static_gradients).
  bool static_gradients = false;
  /// Those of all plans of a session that run on its thread; null: the plan has its own.
  std::shared_ptr<SharedPools> pools = {};
  /// What no run did before, such as a new capture, is done only by a run that is compared
  /// (Inspection::is_compared).
  bool is_compared = false;
};

/// What runs plans on one kind of device.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<Executor> make(std::shared_ptr<const trace::Recording> recording,
                                         const GeneratorOf& generator,
                                         const ExecutorOptions& options) const = 0;
  /// Whether somebody captures what this thread gives to the device: nothing may wait for it now.
  virtual bool is_capturing() const { return false; }
};

/// Of what passes between a program and a backend that was loaded: both must have been built with
/// the same.
constexpr std::uint64_t interface_mark() {
  std::uint64_t mark = 0;
  for (const std::size_t size :
       {sizeof(trace::Recording), sizeof(trace::Op), sizeof(trace::Buffer), sizeof(trace::Tensor),
        sizeof(Program), sizeof(BufferPlan), sizeof(Outcome), sizeof(PlanStats),
        sizeof(DeviceStats), sizeof(ExecutorOptions), sizeof(Verdict)}) {
    mark = mark * 1'000'003 + size;
  }
  return mark;
}

/// The backend of a kind of device; null: this process has none. The one for CUDA is a library of
/// its own, libsteptape_cuda.so: it is loaded when it is first asked for, from the path in the
/// environment variable STEPTAPE_CUDA_BACKEND, from beside the file that this code is in, or as the
/// dynamic linker finds it.
const Backend* backend_of(trace::DeviceKind kind);
/// Why this process has none; empty where it has one.
std::string why_no_backend(trace::DeviceKind kind);

/// Plans `recording` for the device that it was recorded on. Throws c10::Error or std::bad_alloc
/// when memory is short, Error (data_loss) when a value does not fit its operator, Error
/// (unsupported) where this process has no backend for the device.
std::unique_ptr<Executor> make_executor(std::shared_ptr<const trace::Recording> recording,
                                        const GeneratorOf& generator,
                                        const ExecutorOptions& options = {});

/// The device of a recording's tensors that do not lie on the CPU, else the CPU. Throws Error
/// (unsupported) where there are several.
trace::Device device_of(const trace::Recording& recording);

}  // namespace steptape::replayer
