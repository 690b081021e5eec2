#include "recorder/op_digests.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "live/op_digest.h"
#include "live/operators.h"
#include "recorder/intercept/closing.h"
#include "recorder/operators.h"

namespace steptape::recorder {
namespace {

class Log final : public OpListener {
 public:
  Log(std::vector<OpDigest>& digests, std::span<Repeat> repeats)
      : digests_(digests), repeats_(repeats) {}

  void on_op(const c10::OperatorHandle& op, torch::jit::Stack& stack,
             const std::function<void()>& run) override {
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
    const auto asked = is_open ? std::ranges::find(repeats_, index, &Repeat::op) : repeats_.end();
    std::optional<RepeatedOp> repeated;
    if (asked != repeats_.end()) repeated.emplace(op, stack);
    run();
    if (!is_open) return;
    const std::size_t count = op.schema().returns().size();
    const auto digest = live::op_digest(torch::jit::last(stack, count), written);
    std::optional<Repeat> found;
    if (repeated) {
      found = *asked;
      repeated->repeat(run, *found);
    }
    const std::lock_guard lock(mutex_);
    if (is_closed_) return;
    digests_[index].digest = digest;
    if (found) *asked = *std::move(found);
  }

  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }

 private:
  std::vector<OpDigest>& digests_;
  const std::span<Repeat> repeats_;
  std::vector<trace::Operator> names_;
  OperatorTable operators_{names_};
  std::mutex mutex_;
  bool is_closed_ = false;
};

}  // namespace

Returned run_with_digests(const StepFunction& step, Interceptor& interceptor,
                          std::vector<OpDigest>& digests, std::span<Repeat> repeats) {
  const auto log = std::make_shared<Log>(digests, repeats);
  const Closing closing(*log);
  const auto listening = interceptor.listen(log);
  return step();
}

}  // namespace steptape::recorder
