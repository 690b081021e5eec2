#include "recorder/op_digests.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>

#include "live/contents.h"
#include "live/op_digest.h"
#include "live/operators.h"
#include "recorder/operators.h"

namespace steptape::recorder {
namespace {

/// Closes a listener when the step ends, by return or by exception: a thread of the step that goes
/// on must not write to objects that may be gone.
template <typename Listener>
class Closing {
 public:
  explicit Closing(Listener& listener) : listener_(listener) {}
  ~Closing() { listener_.close(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  Listener& listener_;
};

class Log final : public OpListener, public std::enable_shared_from_this<Log> {
 public:
  Log(std::vector<OpDigest>& digests, std::shared_ptr<live::Exchanges> exchanges,
      std::span<Repeat> repeats)
      : digests_(digests), exchanges_(std::move(exchanges)), repeats_(repeats) {}

  void on_op(const c10::OperatorHandle& op, torch::jit::Stack& stack,
             const std::function<void()>& run) override {
    if (exchanges_->is_of_backend()) return run();
    exchanges_->wait_for(torch::jit::last(stack, op.schema().arguments().size()));
    std::size_t index = 0;
    std::vector<at::Tensor> written;
    bool is_open = false;
    {
      const std::lock_guard lock(mutex_);
      is_open = !is_closed_ && !operators_.get(op).is_ignored;
      if (is_open) {
        index = digests_.size();
        digests_.push_back({live::describe(op).full_name(), {}});
        const std::size_t count = op.schema().arguments().size();
        written = live::written_tensors(op, torch::jit::last(stack, count));
      }
    }
    if (!is_open) return run();
    if (live::effects_of(op).is_collective()) {
      return exchanges_->run(op, stack, run, [log = shared_from_this(), index, written] {
        log->note(index, live::op_digest({}, written));
      });
    }
    const auto asked = std::ranges::find(repeats_, index, &Repeat::op);
    std::optional<RepeatedOp> repeated;
    if (asked != repeats_.end()) repeated.emplace(op, stack);
    run();
    const std::size_t count = op.schema().returns().size();
    const auto digest = live::op_digest(torch::jit::last(stack, count), written);
    std::optional<Repeat> found;
    if (repeated) {
      found = *asked;
      repeated->repeat(run, *found);
    }
    note(index, digest);
    const std::lock_guard lock(mutex_);
    if (found && !is_closed_) *asked = *std::move(found);
  }

  void close() {
    exchanges_->abandon();
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }

 private:
  void note(std::size_t index, const trace::Digest& digest) {
    const std::lock_guard lock(mutex_);
    if (!is_closed_) digests_[index].digest = digest;
  }

  std::vector<OpDigest>& digests_;
  const std::shared_ptr<live::Exchanges> exchanges_;
  const std::span<Repeat> repeats_;
  std::vector<trace::Operator> names_;
  OperatorTable operators_{names_};
  std::mutex mutex_;
  bool is_closed_ = false;
};

}  // namespace

Returned run_with_digests(const StepFunction& step, Interceptor& interceptor,
                          std::vector<OpDigest>& digests,
                          const std::shared_ptr<live::Exchanges>& exchanges,
                          std::span<Repeat> repeats) {
  const auto log = std::make_shared<Log>(digests, exchanges, repeats);
  const Closing closing(*log);
  const auto listening = interceptor.listen(log);
  Returned returned = step();
  exchanges->wait_for_all();
  return returned;
}

namespace {

/// Lets all through but collectives.
class Serving final : public OpListener {
 public:
  explicit Serving(std::shared_ptr<live::Exchanges> exchanges) : exchanges_(std::move(exchanges)) {}

  void on_op(const c10::OperatorHandle& op, torch::jit::Stack& stack,
             const std::function<void()>& run) override {
    live::effects_of(op).is_collective() ? exchanges_->run(op, stack, run) : run();
  }

 private:
  const std::shared_ptr<live::Exchanges> exchanges_;
};

}  // namespace

Returned run_served(const StepFunction& step, Interceptor& interceptor,
                    const std::shared_ptr<live::Exchanges>& exchanges) {
  const auto listening = interceptor.listen(std::make_shared<Serving>(exchanges));
  Returned returned = step();
  exchanges->wait_for_all();
  return returned;
}

namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  const live::Unseen unseen;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

double largest_difference(const std::vector<at::Tensor>& some,
                          const std::vector<at::Tensor>& others) {
  if (some.size() != others.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < some.size(); ++i) {
    largest = std::max(largest, live::relative_difference(some[i], others[i]));
  }
  return largest;
}

}  // namespace

/// A copy of the memory behind some tensors.
struct RepeatedOp::Written {
  struct Memory {
    c10::Storage storage;
    const void* address;
    at::DataPtr copy;
    std::size_t bytes;
  };
  std::vector<Memory> memory;

  explicit Written(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      const c10::Storage& storage = tensor.storage();
      const auto is_same = [&](const Memory& other) { return other.storage.is_alias_of(storage); };
      if (std::ranges::any_of(memory, is_same)) continue;
      const c10::DeviceGuard on_device(storage.device());
      const std::size_t bytes = storage.nbytes();
      at::DataPtr copy = c10::GetAllocator(storage.device_type())->allocate(bytes);
      live::copy_bytes(copy.get(), storage.device(), storage.data(), storage.device(), bytes);
      memory.push_back({storage, storage.data(), std::move(copy), bytes});
    }
  }

  bool is_moved() const {
    return std::ranges::any_of(memory, [](const Memory& each) {
      return each.storage.data() != each.address || each.storage.nbytes() != each.bytes;
    });
  }

  void put_back() const {
    for (const Memory& each : memory) {
      live::copy_bytes(each.storage.mutable_data(), each.storage.device(), each.copy.get(),
                       each.storage.device(), each.bytes);
    }
  }
};

RepeatedOp::RepeatedOp(const c10::OperatorHandle& op, torch::jit::Stack& stack)
    : op_(op),
      stack_(stack),
      arguments_(torch::jit::last(stack, op.schema().arguments().size()).vec()) {
  written_ = live::left_tensors({}, live::written_tensors(op, arguments_));
  before_ = std::make_unique<Written>(written_);
}

RepeatedOp::~RepeatedOp() = default;

void RepeatedOp::repeat(const std::function<void()>& run, Repeat& asked) {
  const std::size_t count = op_.schema().returns().size();
  const std::size_t below = stack_.size() - count;
  const std::vector<c10::IValue> returns = torch::jit::last(stack_, count).vec();
  asked.left = copies_of(live::left_tensors(returns, written_));
  const trace::Digest digest = live::digest_of(asked.left);
  const live::Effects& effects = live::effects_of(op_);
  if (!effects.is_replayable() || effects.is_random || effects.is_host_read ||
      effects.makes_unwritten || before_->is_moved()) {
    return;
  }
  const Written after(written_);
  const auto end_with = [&](const std::vector<c10::IValue>& values) {
    stack_.resize(below);
    stack_.insert(stack_.end(), values.begin(), values.end());
  };
  try {
    for (unsigned n = 0; n < (asked.differs ? asked.times : asked.most); ++n) {
      before_->put_back();
      end_with(arguments_);
      run();
      const auto again = torch::jit::last(stack_, count);
      if (live::op_digest(again, written_) == digest) continue;
      asked.differs = true;
      asked.spread = std::max(asked.spread,
                              largest_difference(asked.left, live::left_tensors(again, written_)));
    }
  } catch (const std::exception&) {
    // the step goes on from the run that did not throw
  }
  after.put_back();
  end_with(returns);
}

}  // namespace steptape::recorder
