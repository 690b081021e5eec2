#include "live/collectives.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "live/contents.h"
#include "live/effects.h"
#include "live/op_digest.h"
#include "live/operators.h"
#include "live/tensors.h"
#include "live/values.h"
#include "steptape/error.h"

namespace steptape::live {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
using Handle = c10::intrusive_ptr<c10d::Work>;

Group find_group(const std::string& name) {
  try {
    return c10d::resolve_process_group(name);
  } catch (const c10::Error&) {
    return {};
  }
}

bool is_class(const c10::Type& type, std::string_view name) {
  if (type.kind() != c10::TypeKind::ClassType) return false;
  const auto& full = type.expectRef<c10::ClassType>().name();
  return full && full->name() == name && full->prefix().ends_with("c10d");
}

}  // namespace

bool is_group_type(const c10::Type& type) { return is_class(type, "ProcessGroup"); }
bool is_reduction_type(const c10::Type& type) { return is_class(type, "ReduceOp"); }

std::optional<trace::Value> value_of_group(const c10::IValue& value) {
  const auto type = value.type();
  if (is_group_type(*type)) {
    const Group group = value.toCustomClass<c10d::ProcessGroup>();
    const std::string& name = group->getGroupName();
    if (find_group(name) != group) return std::nullopt;
    return trace::Value{name};
  }
  if (!is_reduction_type(*type)) return std::nullopt;
  const auto reduction = value.toCustomClass<c10d::ReduceOp>();
  if (reduction->supplement_) return std::nullopt;
  return trace::Value{std::int64_t{reduction->op_}};
}

c10::IValue group_of(const std::string& name) { return c10d::resolve_process_group(name); }

c10::IValue reduction_of(std::int64_t number) {
  if (number < 0 || number >= c10d::ReduceOp::PREMUL_SUM) {
    throw Error(ErrorCode::kDataLoss, "no reduction has the number " + std::to_string(number));
  }
  return c10::make_intrusive<c10d::ReduceOp>(static_cast<c10d::ReduceOp::RedOpType>(number));
}

std::vector<trace::Index> collectives_of(const trace::Recording& recording) {
  // of the few operators, not of the many ops
  std::vector<bool> exchanges;
  for (const trace::Operator& each : recording.operators)
    exchanges.push_back(find_exception(each.name, ExceptionKind::kExchanges) != nullptr);
  std::vector<trace::Index> found;
  if (std::ranges::find(exchanges, true) == exchanges.end()) return found;
  for (std::size_t i = 0; i < recording.ops.size(); ++i) {
    if (exchanges[recording.ops[i].op]) found.push_back(static_cast<trace::Index>(i));
  }
  return found;
}

std::vector<std::string> groups_of(const trace::Recording& recording) {
  std::vector<std::string> groups;
  for (const trace::Index position : collectives_of(recording)) {
    const trace::Op& op = recording.ops[position];
    const auto schema = find_operator(recording.operator_of(op))->schema();
    for (std::size_t a = 0; a < op.inputs.size(); ++a) {
      if (!is_group_type(*schema.arguments()[a].type())) continue;
      const std::string& name = std::get<std::string>(op.inputs[a].data);
      if (std::ranges::find(groups, name) == groups.end()) groups.push_back(name);
    }
  }
  return groups;
}

NamedGroup::NamedGroup(std::string name)
    : name_(std::move(name)), group_(c10d::resolve_process_group(name_)) {}

bool NamedGroup::is_there() const {
  const auto held = group_.lock();
  return held && find_group(name_).get() == held.get();
}

std::vector<bool> filled_arguments(const c10::OperatorHandle& op,
                                   c10::ArrayRef<c10::IValue> arguments) {
  const c10::FunctionSchema& schema = op.schema();
  std::vector<bool> filled(arguments.size(), false);
  const Exception* row = find_exception(schema.name(), ExceptionKind::kExchanges);
  if (row == nullptr || row->arguments.empty()) return filled;
  const auto position = schema.argumentIndexWithName(std::string(row->arguments));
  if (!position) return filled;
  bool is_filled = true;
  if (schema.name() == "c10d::broadcast_") {
    const auto group = schema.argumentIndexWithName("process_group");
    const auto root = schema.argumentIndexWithName("root_rank");
    is_filled = group && root &&
                arguments[static_cast<std::size_t>(*root)].toInt() !=
                    arguments[static_cast<std::size_t>(*group)]
                        .toCustomClass<c10d::ProcessGroup>()
                        ->getRank();
  }
  filled[static_cast<std::size_t>(*position)] = is_filled;
  return filled;
}

/// One collective: what was asked for, and what came of it.
struct Exchanges::Issued {
  std::string op;
  std::vector<trace::Value> values;    ///< tensors as references to nothing
  std::vector<trace::Tensor> tensors;  ///< their geometry
  std::vector<trace::Digest> given;    ///< of those that it reads
  std::vector<at::Tensor> left = {};   ///< copies of those that it wrote
  std::exception_ptr failure = {};
  bool failed_at_once = false;  ///< before it was in flight
  bool is_opaque = false;       ///< it has a tensor of another kind: nobody can be served

  bool asks_as(const Issued& other) const {
    return op == other.op && values == other.values && tensors == other.tensors &&
           given == other.given;
  }
  void serve(const std::vector<at::Tensor>& written, const c10::OperatorHandle& op,
             torch::jit::Stack& stack) const;
};

/// What a program waits for. That of some of Gloo's collectives is more than waiting: whoever waits
/// does the last of their ops (LambdaWork in c10d/ProcessGroupGloo.cpp), in each wait again. Here
/// they are done once, and no recorder sees them.
class Exchanges::Waiting final : public c10d::Work {
 public:
  explicit Waiting(Handle of) : of_(std::move(of)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    const std::lock_guard lock(once_);
    if (failure_) std::rethrow_exception(failure_);
    if (!is_over_) {
      const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
      try {
        of_->wait(timeout);
      } catch (...) {
        failure_ = std::current_exception();
        throw;
      }
      is_over_ = true;
    }
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  bool isCompleted() override { return of_->isCompleted(); }
  bool isSuccess() const override { return of_->isSuccess(); }
  std::exception_ptr exception() const override { return of_->exception(); }
  int sourceRank() const override { return of_->sourceRank(); }
  std::vector<at::Tensor> result() override { return of_->result(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return of_->getFuture(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    return of_->getFutureResult();
  }
  void abort() override { of_->abort(); }

  const Handle& of() const { return of_; }

 private:
  const Handle of_;
  std::mutex once_;
  bool is_over_ = false;
  std::exception_ptr failure_;
};

struct Exchanges::InFlight {
  Issued* issued = nullptr;  ///< null: it was served
  c10::intrusive_ptr<Waiting> work;
  std::vector<at::Tensor> written;
  std::function<void()> done;

  bool is_over(const at::Tensor& tensor) const {
    if (!tensor.defined() || !tensor.has_storage()) return false;
    const auto range = [](const at::Tensor& of) {
      const auto* begin = static_cast<const std::byte*>(of.storage().data());
      return std::pair(begin, begin + of.storage().nbytes());
    };
    const auto asked = range(tensor);
    return std::ranges::any_of(written, [&](const at::Tensor& other) {
      const auto own = range(other);
      return asked.first < own.second && own.first < asked.second;
    });
  }
};

/// What a program waits for where its collective was served.
class Exchanges::Served final : public c10d::Work {
 public:
  Served(std::vector<at::Tensor> left, const std::exception_ptr& failure) : left_(std::move(left)) {
    finish(failure);
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    exception_ ? future->setError(exception_) : future->markCompleted(c10::List<at::Tensor>(left_));
    return future;
  }
  std::vector<at::Tensor> result() override { return left_; }

 private:
  std::vector<at::Tensor> left_;
};

Exchanges::Exchanges(WithoutLock without_lock) : without_lock_(std::move(without_lock)) {}
Exchanges::~Exchanges() = default;

void Exchanges::without_lock(const std::function<void()>& run) const {
  without_lock_ ? without_lock_(run) : run();
}

void Exchanges::begin_run() {
  wait_for_all();
  const std::lock_guard lock(mutex_);
  next_ = 0;
}

bool Exchanges::has_any() const {
  const std::lock_guard lock(mutex_);
  return !issued_.empty();
}

namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && !unplannable_kind(tensor) && tensor.is_cpu();
}

}  // namespace

void Exchanges::run(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                    const std::function<void()>& issue, std::function<void()> done) {
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size()).vec();
  wait_for(arguments);
  InFlight flying;
  flying.done = std::move(done);
  flying.written = written_tensors(op, arguments);
  std::erase_if(flying.written, [](const at::Tensor& tensor) { return !is_plain(tensor); });
  const auto [issued, is_new] = next(std::make_unique<Issued>(asked_by(op, arguments)));
  ++issuing_;
  const auto is_in_flight = c10::make_scope_exit([this] { --issuing_; });
  if (is_new) {
    issue_now(issue, *issued);
    flying.issued = issued;
  } else {
    issued->serve(flying.written, op, stack);
  }
  flying.work = c10::make_intrusive<Waiting>(stack.back().toCustomClass<c10d::Work>());
  stack.back() = Handle(flying.work);
  const std::lock_guard lock(mutex_);
  held_.emplace_back(c10::intrusive_ptr<torch::CustomClassHolder>(flying.work->of()));
  in_flight_.push_back(std::move(flying));
  flying_ = in_flight_.size();
}

/// The next collective of the run, and whether it is the first run that comes so far.
std::pair<Exchanges::Issued*, bool> Exchanges::next(std::unique_ptr<Issued> asked) {
  const std::lock_guard lock(mutex_);
  const std::size_t position = next_++;
  if (position >= issued_.size()) return {issued_.emplace_back(std::move(asked)).get(), true};
  Issued* before = issued_[position].get();
  if (!before->is_opaque && before->asks_as(*asked)) return {before, false};
  throw Error(ErrorCode::kInternal, c10::str("collective ", position, " of the call, `", asked->op,
                                             "`, asks for something else than `", before->op,
                                             "` did when it was issued"));
}

bool Exchanges::is_of_backend() const {
  return (flying_ != 0 || issuing_ != 0) && std::this_thread::get_id() != caller_ &&
         torch::autograd::get_current_node() == nullptr;
}

void Exchanges::issue_now(const std::function<void()>& issue, Issued& issued) const {
  try {
    // a thread of Gloo's that waits for the lock may stand in the way of this one
    without_lock(issue);
  } catch (...) {
    issued.failure = std::current_exception();
    issued.failed_at_once = true;
    throw;
  }
}

/// What the call of a collective asks for.
Exchanges::Issued Exchanges::asked_by(const c10::OperatorHandle& op,
                                      c10::ArrayRef<c10::IValue> arguments) {
  Issued asked;
  asked.op = describe(op).full_name();
  const std::vector<bool> filled = filled_arguments(op, arguments);
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    const auto note = [&](const at::Tensor& tensor) -> trace::TensorId {
      if (!tensor.defined()) return trace::kNoTensor;
      if (!is_plain(tensor)) {
        asked.is_opaque = true;
        return trace::kNoTensor;
      }
      asked.tensors.push_back(geometry_of(tensor, 0));
      asked.tensors.back().offset = 0;
      if (!filled[a]) asked.given.push_back(digest_of(tensor));
      return 0;
    };
    asked.values.push_back(value_of(arguments[a], note, [](const at::Generator&) { return ""; }));
  }
  return asked;
}

/// Leaves what was left when it was issued.
void Exchanges::Issued::serve(const std::vector<at::Tensor>& written, const c10::OperatorHandle& op,
                              torch::jit::Stack& stack) const {
  if (failed_at_once) std::rethrow_exception(failure);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const Unseen unseen;
    written[i].copy_(left[i]);
  }
  const std::size_t count = op.schema().arguments().size();
  const c10::IValue first = stack[stack.size() - count];
  torch::jit::drop(stack, count);
  // those that return tensors return their first argument
  if (op.schema().returns().size() > 1) stack.push_back(first);
  stack.emplace_back(Handle(c10::make_intrusive<Served>(written, failure)));
}

void Exchanges::wait_for(c10::ArrayRef<c10::IValue> values) {
  if (!is_any_in_flight()) return;
  for (const c10::IValue& value : values) {
    for_each_tensor(value, [this](const at::Tensor& tensor) { land_over(tensor); });
  }
}

void Exchanges::wait_for(std::span<const at::Tensor> tensors) {
  for (const at::Tensor& tensor : tensors) land_over(tensor);
}

void Exchanges::land_over(const at::Tensor& tensor) {
  while (is_any_in_flight()) {
    std::unique_lock lock(mutex_);
    const auto found = std::ranges::find_if(
        in_flight_, [&](const InFlight& flying) { return flying.is_over(tensor); });
    if (found == in_flight_.end()) return;
    land(found, lock);
  }
}

void Exchanges::wait_for_all() {
  while (is_any_in_flight()) {
    std::unique_lock lock(mutex_);
    if (!in_flight_.empty()) land(in_flight_.begin(), lock);
  }
}

/// Lets go of `lock` before it waits.
void Exchanges::land(std::vector<InFlight>::iterator which, std::unique_lock<std::mutex>& lock) {
  const InFlight flying = std::move(*which);
  in_flight_.erase(which);
  flying_ = in_flight_.size();
  lock.unlock();
  std::exception_ptr failure;
  try {
    without_lock([&] { flying.work->wait(kNoTimeout); });
  } catch (...) {
    failure = std::current_exception();
  }
  if (flying.issued != nullptr) {
    const Unseen unseen;
    flying.issued->failure = failure;
    for (const at::Tensor& tensor : flying.written) flying.issued->left.push_back(tensor.clone());
  }
  if (flying.done) flying.done();
}

void Exchanges::wait_until_let_go() {
  wait_for_all();
  constexpr std::chrono::milliseconds kMost{200};
  const auto is_held = [](const auto& work) { return work.use_count() != 0; };
  without_lock([&] {
    const auto end = std::chrono::steady_clock::now() + kMost;
    while (std::ranges::any_of(held_, is_held) && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
  });
  held_.clear();
}

void Exchanges::abandon() {
  std::vector<InFlight> dropped;
  const std::lock_guard lock(mutex_);
  std::swap(dropped, in_flight_);
  flying_ = 0;
}

void Exchanges::rethrow() const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < std::min(next_, issued_.size()); ++i) {
    if (issued_[i]->failure) std::rethrow_exception(issued_[i]->failure);
  }
}

}  // namespace steptape::live
