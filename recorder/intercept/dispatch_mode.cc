#include <ATen/core/Tensor.h>
#include <c10/core/SafePyObject.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PyInterpreter.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <vector>

#include "recorder/intercept/interceptor.h"

namespace steptape::recorder {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::impl::PyObject_TorchDispatchMode;
using c10::impl::TorchDispatchModeTLS;
using Stack = torch::jit::Stack;

constexpr DispatchKeySet kBelow{DispatchKeySet::FULL_AFTER, DispatchKey::Python};

/// Takes the top mode off the stack and puts it back: what is below it sees the op next.
class WithoutTopMode {
 public:
  WithoutTopMode() : mode_(TorchDispatchModeTLS::pop_stack()) {}
  ~WithoutTopMode() { TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode_); }
  WithoutTopMode(const WithoutTopMode&) = delete;
  WithoutTopMode& operator=(const WithoutTopMode&) = delete;

 private:
  std::shared_ptr<PyObject_TorchDispatchMode> mode_;
};

DispatchKeySet keys_of(const c10::IValue& value) {
  if (value.isTensor()) return value.unsafeToTensorImpl()->key_set();
  DispatchKeySet keys;
  if (!value.isList()) return keys;
  for (const c10::IValue& item : value.toListRef()) {
    if (item.isTensor()) keys = keys | item.unsafeToTensorImpl()->key_set();
  }
  return keys;
}

/// One call that reached the mode. Calling the operator anew would announce it to RecordFunction a
/// second time, so the keys it has left are worked out here and it is only redispatched.
class ModeCall {
 public:
  ModeCall(const c10::OperatorHandle& op, Stack& stack) : op_(op), stack_(stack) {
    DispatchKeySet arguments;
    for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
      arguments = arguments | keys_of(value);
    }
    const auto local = c10::impl::tls_local_dispatch_key_set();
    below_ = ((arguments | local.included_) - local.excluded_) & kBelow;
    if (falls_through_backend_select()) below_ = below_.remove(DispatchKey::BackendSelect);
    is_for_others_ = arguments.has(DispatchKey::Python) || TorchDispatchModeTLS::stack_len() > 1;
  }

  bool is_composite() const { return !is_for_others_ && runs_composite(op_, below_); }

  void run() const {
    if (is_for_others_) {
      WithoutTopMode without;
      op_.redispatchBoxed(below_.add(DispatchKey::Python), &stack_);
      return;
    }
    c10::impl::ExcludeDispatchKeyGuard once(DispatchKeySet(DispatchKey::Python) |
                                            DispatchKeySet(DispatchKey::PythonTLSSnapshot));
    op_.redispatchBoxed(below_, &stack_);
  }

  void run_inside_seen() const { op_.redispatchBoxed(below_, &stack_); }

 private:
  // Below Python this key alone has a fallback that falls through; factories have kernels on it.
  bool falls_through_backend_select() const {
    return !op_.hasKernelForDispatchKey(DispatchKey::BackendSelect) ||
           op_.isKernelFallthroughKernel(DispatchKey::BackendSelect);
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  DispatchKeySet below_;
  bool is_for_others_ = false;  ///< a tensor subclass or a mode below ours has to see the op
};

/// The interpreter that LibTorch asks what to do for a mode. It interprets nothing: there is no
/// Python here, and only `dispatch` is ever reached for a mode without tensors of its own.
class Interpreter final : public c10::impl::PyInterpreterVTable {
 public:
  std::string name() const override { return "steptape"; }
  void dispatch(const c10::OperatorHandle& op, Stack* stack) const override {
    const ModeCall call(op, *stack);
    if (call.is_composite()) return call.run_inside_seen();
    OpListener* listener = active_listener();
    if (listener == nullptr) return call.run();
    listener->on_op(op, *stack, [&call] { call.run(); });
  }

  void incref(PyObject*) const override {}
  void decref(PyObject*) const override {}
  bool try_incref(const c10::impl::PyObjectSlot&) const override { return false; }
  std::size_t refcnt(PyObject*) const override { return 1; }
  // Null tells LibTorch to make the plain copy.
  c10::intrusive_ptr<c10::TensorImpl> detach(const c10::TensorImpl*) const override { return {}; }
  void reset_backward_hooks(const c10::TensorImpl*) const override {}

  void reportErrorCallback(PyObject*, DispatchKey) const override { refuse(); }
  void python_op_registration_trampoline(const c10::OperatorHandle&, DispatchKey, DispatchKeySet,
                                         Stack*, bool, bool) const override {
    refuse();
  }
  void throw_abstract_impl_not_imported_error(std::string, const char*,
                                              const char*) const override {
    refuse();
  }
  void python_dispatcher(const c10::OperatorHandle&, DispatchKeySet, Stack*) const override {
    refuse();
  }
  bool is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override { refuse(); }
  c10::SymBool sym_is_contiguous(const c10::TensorImpl*, at::MemoryFormat) const override {
    refuse();
  }
  bool is_strides_like(const c10::TensorImpl*, at::MemoryFormat) const override { refuse(); }
  bool is_non_overlapping_and_dense(const c10::TensorImpl*) const override { refuse(); }
  c10::Device device(const c10::TensorImpl*) const override { refuse(); }
  std::int64_t dim(const c10::TensorImpl*) const override { refuse(); }
  c10::IntArrayRef strides(const c10::TensorImpl*) const override { refuse(); }
  c10::IntArrayRef sizes(const c10::TensorImpl*) const override { refuse(); }
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl*) const override { refuse(); }
  c10::Layout layout(const c10::TensorImpl*) const override { refuse(); }
  std::int64_t numel(const c10::TensorImpl*) const override { refuse(); }
  c10::SymInt sym_numel(const c10::TensorImpl*) const override { refuse(); }
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl*) const override { refuse(); }
  c10::SymInt sym_storage_offset(const c10::TensorImpl*) const override { refuse(); }

  void trace_gpu_event_creation(at::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_event_deletion(at::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_event_record(at::DeviceType, std::uintptr_t, std::uintptr_t) const override {}
  void trace_gpu_event_wait(at::DeviceType, std::uintptr_t, std::uintptr_t) const override {}
  void trace_gpu_memory_allocation(at::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_memory_deallocation(at::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_stream_creation(at::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_device_synchronization(at::DeviceType) const override {}
  void trace_gpu_stream_synchronization(at::DeviceType, std::uintptr_t) const override {}
  void trace_gpu_event_synchronization(at::DeviceType, std::uintptr_t) const override {}

 private:
  [[noreturn]] static void refuse() {
    TORCH_CHECK(false, "steptape's dispatch mode makes no tensors of its own");
  }
};

c10::impl::PyInterpreter& interpreter() {
  // Never destroyed: a thread that ends after main may still hold a mode.
  static auto* table = new Interpreter();
  static auto* interpreter = new c10::impl::PyInterpreter(table);
  return *interpreter;
}

std::shared_ptr<PyObject_TorchDispatchMode> make_mode() {
  return std::make_shared<PyObject_TorchDispatchMode>(nullptr, &interpreter());
}

/// Takes the topmost mode that `is_it` holds for off this thread's stack; those above it stay.
template <typename IsIt>
void take_off(IsIt is_it) {
  std::vector<std::shared_ptr<PyObject_TorchDispatchMode>> above;
  while (TorchDispatchModeTLS::stack_len() > 0) {
    auto top = TorchDispatchModeTLS::pop_stack();
    if (is_it(*top)) break;
    above.push_back(std::move(top));
  }
  for (auto mode = above.rbegin(); mode != above.rend(); ++mode) {
    TorchDispatchModeTLS::push_non_infra_mode_onto_stack(*mode);
  }
}

class DispatchModeScope final : public Interceptor::Scope {
 public:
  explicit DispatchModeScope(std::shared_ptr<OpListener> listener)
      : active_(std::move(listener)), mode_(make_mode()) {
    TorchDispatchModeTLS::push_non_infra_mode_onto_stack(mode_);
  }

  // A step that left a mode of its own on the stack keeps it.
  ~DispatchModeScope() override {
    take_off([this](const PyObject_TorchDispatchMode& mode) { return &mode == mode_.get(); });
  }

 private:
  ActiveListener active_;
  std::shared_ptr<PyObject_TorchDispatchMode> mode_;
};

class DispatchMode final : public Interceptor {
 public:
  std::string_view name() const noexcept override { return "dispatch_mode"; }
  std::unique_ptr<Scope> listen(std::shared_ptr<OpListener> listener) override {
    return std::make_unique<DispatchModeScope>(std::move(listener));
  }
  void suspend() override {
    take_off([](const PyObject_TorchDispatchMode& mode) {
      return &mode.pyinterpreter() == &interpreter();
    });
  }
};

}  // namespace

Interceptor& dispatch_mode() {
  static DispatchMode interceptor;
  return interceptor;
}

}  // namespace steptape::recorder
