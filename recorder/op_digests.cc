#include "recorder/op_digests.h"

#include "live/operators.h"
#include "recorder/closing.h"

namespace steptape::recorder {
namespace {

class Log final : public OpListener {
 public:
  explicit Log(std::vector<OpDigest>& digests) : digests_(digests) {}

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
    run();
    if (!is_open) return;
    const std::size_t count = op.schema().returns().size();
    const auto digest = live::op_digest(torch::jit::last(stack, count), written);
    const std::lock_guard lock(mutex_);
    if (!is_closed_) digests_[index].digest = digest;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  }

 private:
  std::vector<OpDigest>& digests_;
  std::vector<trace::Operator> names_;
  OperatorTable operators_{names_};
  std::mutex mutex_;
  bool is_closed_ = false;
};

}  // namespace

Returned run_with_digests(const StepFunction& step, Interceptor& interceptor,
                          std::vector<OpDigest>& digests) {
  const auto log = std::make_shared<Log>(digests);
  const Closing closing(*log);
  const auto listening = interceptor.listen(log);
  return step();
}

}  // namespace steptape::recorder
