#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "replayer/runtime/cuda/graph.h"
#include "replayer/runtime/cuda/plan/conversion.h"
#include "replayer/runtime/cuda/plan/device_plan.h"
#include "replayer/runtime/cuda/plan/parameter_slots.h"

namespace steptape::replayer::cuda {

/// A host number that a captured call takes and that may be another in the next run: an argument,
/// or the element of a tensor on the host.
struct CallNumber {
  std::size_t argument = 0;
  std::optional<std::size_t> item = {};  ///< of an argument that is a list
  bool is_tensor = false;
  Domain domain = Domain::kReal;
  bool can_vary = true;  ///< other values of it can be made up
};

/// Those of a call of a graph, in the order of its arguments.
std::vector<CallNumber> numbers_of(const DevicePlan& plan, const Call& call);
std::vector<CallNumber> numbers_of(const DevicePlan& plan, const GroupedCall& group);

/// A call with made-up numbers; its own are put back when this goes.
class MadeUp {
 public:
  explicit MadeUp(Call& call) : call_(call), own_(call.arguments) {}
  ~MadeUp() { call_.arguments = own_; }
  MadeUp(const MadeUp&) = delete;
  MadeUp& operator=(const MadeUp&) = delete;

  void set(const std::vector<CallNumber>& numbers, const std::vector<double>& values);

 private:
  void set(const CallNumber& number, double value);

  Call& call_;
  std::vector<c10::IValue> own_;
};

/// Keeps the numbers in a captured call's kernels what they would be in an eager call.
class NumberUpdates {
 public:
  /// Others than those that the call has now, to capture it with; none where there are none to be
  /// had.
  static std::vector<double> other_numbers(const Call& call,
                                           const std::vector<CallNumber>& numbers);

  /// `nodes` are those that the call left in its graph with the numbers `captured_with`, or where
  /// these are none with its own. `capture(call)` makes the call in a capture that is thrown away,
  /// and gives its nodes' images, or nothing with the reason. Returns why the numbers cannot be
  /// kept so; empty: they can.
  using Capture =
      std::function<std::optional<std::vector<KernelImage>>(const Call& call, std::string& why)>;
  std::string learn(Call& call, std::vector<CallNumber> numbers,
                    const std::vector<double>& captured_with,
                    const std::vector<cudaGraphNode_t>& nodes, const Capture& capture);

  /// The first call whose numbers, as they are now, need another capture, and why. Tensors of the
  /// host that the run has yet to make are not looked at.
  std::optional<KeptOut> objection() const;
  /// Puts them into the graph. There must be no objection.
  void put(Graph& graph);

  /// Kernels that it may change.
  std::size_t kernels() const;

 private:
  struct Updated {
    const Call* call = nullptr;
    std::vector<CallNumber> numbers = {};
    std::vector<double> last = {};
    std::vector<cudaGraphNode_t> nodes = {};
    std::vector<KernelImage> images = {};
    ParameterSlots slots = {};
  };
  std::vector<Updated> updated_;
};

}  // namespace steptape::replayer::cuda
