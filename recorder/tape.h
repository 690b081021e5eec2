#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "recorder/context/graphs.h"
#include "recorder/recording_state.h"

namespace steptape::recorder {

/// Writes down each op of one step: its arguments before it runs, its results after. Several
/// threads of one step may call it. What goes wrong inside becomes a refusal, never an exception.
class Tape final : public OpListener, public std::enable_shared_from_this<Tape> {
 public:
  Tape(const live::Objects& objects, const Detail& detail);

  void on_op(const c10::OperatorHandle& op, torch::jit::Stack& stack,
             const std::function<void()>& run) override;

  RecordingState& state() { return state_; }
  /// The step begins: what lies on a device at entry tells which streams there are.
  void note_streams();
  /// The step is over: waits for what it has in flight.
  void end() { exchanges_->wait_until_let_go(); }
  /// Ops of threads that outlive the step are let through unseen from here on.
  void close();

  /// Runs `write` under the lock; what it throws becomes a refusal and ends the recording.
  template <typename Write>
  void guarded(Write&& write) noexcept;

 private:
  struct Tensor {
    trace::TensorId id;
    std::uint32_t argument;
  };
  using Tensors = c10::SmallVector<Tensor, 8>;  ///< of one op: most have few

  /// One op between its start and its end.
  struct Running {
    const KnownOperator* known = nullptr;
    std::string place;  ///< of the program
    trace::Index index = trace::kNone;
    trace::Op op;
    Tensors arguments;
    c10::SmallVector<std::pair<std::size_t, trace::Digest>, 4>
        measured;  ///< positions in `arguments`
    std::optional<std::string> generator;
    std::vector<at::Tensor> written;   ///< by what its schema says, where digests are taken
    bool is_measured = true;           ///< its writes are compared with what its schema says
    bool is_training = true;           ///< no argument of the call says otherwise
    std::vector<bool> filled;          ///< arguments at which it does not look, where it has any
    std::optional<ByteRanges> copied;  ///< of the source of a copy that nobody wrote as a whole
    std::chrono::steady_clock::duration time{};  ///< that it took, where times are asked for
  };

  std::optional<std::vector<c10::IValue>> as_view(const c10::OperatorHandle& op,
                                                  c10::ArrayRef<c10::IValue> arguments);
  std::vector<bool> arguments_that_may_follow(const c10::OperatorHandle& op,
                                              c10::ArrayRef<c10::IValue> arguments,
                                              const Running& running) const;
  void before(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> stack, Running& running);
  void after(c10::ArrayRef<c10::IValue> stack, Running& running);
  void threw(Running& running);
  static bool is_exchange(const Running& running) {
    return running.known != nullptr && running.known->effects->is_collective();
  }
  void exchange(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                const std::function<void()>& run, trace::Index index);
  void arrived(trace::Index op, const std::vector<at::Tensor>& left);
  bool writes(const Running& running, std::size_t argument) const;
  void failed(const char* what) noexcept;
  /// Whether a call of a module has begun, by what a front end told, that the node of autograd's
  /// which runs now is a part of.
  bool is_in_told_call() const;
  /// Notes a tensor that an op is given, if nobody has announced its memory.
  void note_foreign(trace::TensorId id, const at::Tensor& tensor);
  bool is_owner() const { return std::this_thread::get_id() == owner_; }

  void name_arguments(c10::ArrayRef<c10::IValue> arguments, Running& running);
  void name_context(Running& running);
  void name_forward(Running& running, std::uint64_t sequence);
  void name_backward(Running& running, const torch::autograd::Node& node);
  void check_operator(const Running& running);
  void check_modes();
  trace::Device device_of(c10::ArrayRef<c10::IValue> arguments, const Running& running) const;
  void check_stream(const trace::Device& device);
  void check_draw(c10::ArrayRef<c10::IValue> arguments, Running& running);
  bool is_first_unread(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                       const Running& running) const;
  bool fills_first(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                   const Running& running) const;
  void note_each_index(const Running& running);
  void check_reads(Running& running);
  void check_written(const trace::Tensor& tensor);
  /// Whether it copies bytes that nobody wrote to where the step may write over them.
  bool copies_unwritten(const Running& running) const;
  void note_copy(const Running& running);
  std::optional<trace::Digest> check_content(trace::BufferId buffer);
  void name_outputs(c10::ArrayRef<c10::IValue> outputs, Running& running);
  void compare_measured(Running& running);
  void note_writes(Running& running);
  void note_write(trace::TensorId id, trace::Index op);
  void note_read(const Running& running);
  void note_content(trace::BufferId buffer);
  /// What a collective writes is exchanged, and unknown until it has arrived.
  void note_exchange(const Running& running);
  trace::Index scope_index(const std::string& place);

  const Detail detail_;
  const std::shared_ptr<live::Exchanges> exchanges_;
  RecordingState state_;
  std::mutex mutex_;
  bool is_closed_ = false;  ///< or has failed
  const std::thread::id owner_ = std::this_thread::get_id();
  std::map<c10::DeviceIndex, c10::Stream> streams_;  ///< of CUDA devices, when the step began
  NodeCounts nodes_;
  std::uint64_t next_sequence_;  ///< autograd's counter at the op before
  std::int64_t modes_ = -1;      ///< on the stack at the first op
  std::unordered_map<std::string, trace::Index> scopes_;
  std::unordered_map<std::int64_t, trace::Index> scope_of_sequence_;

  // Of the op that is being named, under the lock.
  Site site_;
  Origin origin_ = Origin::kForeign;
  std::uint32_t argument_ = 0;
  Tensors named_;
  const std::function<trace::TensorId(const at::Tensor&)> name_tensor_;
  const std::function<std::string(const at::Generator&)> name_generator_;
};

template <typename Write>
void Tape::guarded(Write&& write) noexcept {
  try {
    std::lock_guard lock(mutex_);
    if (is_closed_) return;
    try {
      write();
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {
      failed("an unknown exception");
    }
  } catch (...) {
    // The lock itself failed; the step goes on and what this call had to say is lost.
    is_closed_ = true;
  }
}

}  // namespace steptape::recorder
