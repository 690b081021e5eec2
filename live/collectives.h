#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trace/model.h"

/// The operators of `c10d`, by which processes exchange tensors (Effects::is_collective). In a
/// trace a process group is its name, by which LibTorch finds it (c10d/GroupRegistry.hpp), and a
/// reduction its number (c10d/Types.hpp).
namespace steptape::live {

/// Whether values of this type stand for a process group or a reduction: of the types of custom
/// classes the only ones that a trace can hold.
bool is_group_type(const c10::Type& type);
bool is_reduction_type(const c10::Type& type);

/// A process group or a reduction in trace's words; none for objects of other classes, for a group
/// that no name leads to, and for a reduction that is more than its number.
std::optional<trace::Value> value_of_group(const c10::IValue& value);
/// The boxed argument of such a type. Throws c10::Error where no group has the name.
c10::IValue group_of(const std::string& name);
c10::IValue reduction_of(std::int64_t number);

/// The ops of a recording that are collectives, in order.
std::vector<trace::Index> collectives_of(const trace::Recording& recording);
/// The groups that they go through, each once.
std::vector<std::string> groups_of(const trace::Recording& recording);

/// A process group, held by its name and its identity: neither is kept alive.
class NamedGroup {
 public:
  /// As it is now. Throws c10::Error where no group has the name.
  explicit NamedGroup(std::string name);
  const std::string& name() const { return name_; }
  /// Whether the name still leads to the same group.
  bool is_there() const;

 private:
  std::string name_;
  c10::weak_intrusive_ptr<torch::CustomClassHolder> group_;
};

/// By argument of a collective: whether it is only written, so that what it holds before does not
/// matter. Of a broadcast this depends on who is asked: all but its root only write.
std::vector<bool> filled_arguments(const c10::OperatorHandle& op,
                                   c10::ArrayRef<c10::IValue> arguments);

/// The collectives of one call of a step. However often the step or a plan of it runs in a call,
/// each collective is issued once: a run that comes by it again is served what it left the first
/// time, if it asks for the same. So a call whose plan is verified, or undone in mid-run, gives the
/// other processes what the eager step gives them, and they need not know.
///
/// What a collective writes is written while the program goes on: who looks at such memory waits
/// first. Several threads of the call may use it.
class Exchanges {
 public:
  using WithoutLock = std::function<void(const std::function<void()>&)>;

  /// Waits by `without_lock`, where it is given: who brings what is waited for may need a lock that
  /// the waiting thread has, as Python's interpreter.
  explicit Exchanges(WithoutLock without_lock = {});
  ~Exchanges();  ///< waits for nothing
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;

  /// The call's function or a plan begins to run: what it issues is compared with what was issued
  /// in this call before, from the first collective on.
  void begin_run();
  /// Whether the next run is served anything.
  bool has_any() const;

  /// Does the collective `op`, whose arguments are on `stack`: `issue` gives it to the backend, or
  /// it is served. `done` is called when its results are there, or it has failed; always later than
  /// this returns. Throws what `issue` throws, and Error (internal) where a run asks for something
  /// else than the one before it.
  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack,
           const std::function<void()>& issue, std::function<void()> done = {});

  bool is_any_in_flight() const { return flying_ != 0; }
  /// Whether this thread is one of a backend's, which does the ops that a collective is made of:
  /// they are not part of the step.
  bool is_of_backend() const;
  /// Waits for what is in flight over the memory of these. Failures are kept for `rethrow`.
  void wait_for(c10::ArrayRef<c10::IValue> values);
  void wait_for(std::span<const at::Tensor> tensors);
  void wait_for_all();
  /// Waits for all, and then a moment until the threads that did it hold none of their tensors.
  void wait_until_let_go();
  /// The run has ended by an exception: nobody waits for what it has in flight.
  void abandon();
  /// Throws what the first collective of this run that has failed did.
  void rethrow() const;

 private:
  struct Issued;
  struct InFlight;
  class Served;
  class Waiting;

  static Issued asked_by(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
  void without_lock(const std::function<void()>& run) const;
  std::pair<Issued*, bool> next(std::unique_ptr<Issued> asked);
  void issue_now(const std::function<void()>& issue, Issued& issued) const;
  void land_over(const at::Tensor& tensor);
  void land(std::vector<InFlight>::iterator which, std::unique_lock<std::mutex>& lock);

  const WithoutLock without_lock_;
  const std::thread::id caller_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Issued>> issued_;
  std::size_t next_ = 0;  ///< of them, in the run under way
  std::vector<InFlight> in_flight_;
  /// What this run has issued and others may hold: threads of the backend, or the program.
  std::vector<c10::weak_intrusive_ptr<torch::CustomClassHolder>> held_;
  std::atomic<std::size_t> flying_ = 0;  ///< how many those are
  std::atomic<std::size_t> issuing_ = 0;
};

}  // namespace steptape::live
