#include "recorder/repeats.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <limits>

#include "live/device_bytes.h"
#include "live/op_digest.h"
#include "live/operators.h"
#include "live/relative_difference.h"

namespace steptape::recorder {
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
