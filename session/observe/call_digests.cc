#include "session/observe/call_digests.h"

#include <algorithm>
#include <bit>
#include <string>
#include <variant>

#include "live/generator_state.h"
#include "live/tensors.h"

namespace steptape::session {
namespace {

/// In the order in which things are added.
class Sum {
 public:
  void add(std::uint64_t bits) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
    sum_ = (std::rotl(sum_, 23) ^ bits) * kOdd + 1;
  }
  void add(const trace::Digest& digest) {
    add(digest.low);
    add(digest.high);
  }
  void add(const at::Tensor& tensor) {
    constexpr std::uint64_t kUndefined = 1;
    constexpr std::uint64_t kNotLookedAt = 2;
    if (!tensor.defined()) return add(kUndefined);
    if (live::unplannable_kind(tensor) || !tensor.is_cpu()) return add(kNotLookedAt);
    add(live::digest_with_shape(tensor));
  }
  void add(bool value) { add(static_cast<std::uint64_t>(value)); }
  void add(std::int64_t value) { add(static_cast<std::uint64_t>(value)); }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  void add(const std::string& text) { add(trace::digest_of(std::as_bytes(std::span(text)))); }
  void add(const pack::Number& number) {
    add(std::uint64_t{number.index()});
    std::visit([this](auto value) { add(value); }, number);
  }

  std::uint64_t take() const { return sum_ == 0 ? 1 : sum_; }

 private:
  std::uint64_t sum_ = 0;
};

}  // namespace

std::uint64_t digest_of(const pack::Results& results) {
  Sum sum;
  for (const at::Tensor& tensor : results.tensors) sum.add(tensor);
  for (const pack::Number& number : results.numbers) sum.add(number);
  return sum.take();
}

std::uint64_t digest_of(std::span<const pack::Leaf> arguments) {
  Sum sum;
  for (const pack::Leaf& argument : arguments) {
    sum.add(std::uint64_t{argument.index()});
    std::visit([&sum](const auto& value) { sum.add(value); }, argument);
  }
  return sum.take();
}

StateDigests StateDigests::take(const live::Objects& objects) {
  Sum gradients;
  Sum parameters;
  for (const live::TensorAt& at : objects.snapshot().tensors) {
    const bool is_kept =
        at.role == trace::Role::kParameter || at.role == trace::Role::kModuleBuffer;
    if (at.role == trace::Role::kGradient) gradients.add(at.tensor);
    if (is_kept) parameters.add(at.tensor);
  }
  Sum generators;
  for (const auto& [path, generator] : objects.generators()) {
    generators.add(live::digest_of(live::state_of(generator)));
  }
  constexpr unsigned kHalf = 32;
  const std::uint64_t state = generators.take();
  return {gradients.take(), parameters.take(),
          std::max<std::uint32_t>(1, static_cast<std::uint32_t>(state ^ state >> kHalf))};
}

}  // namespace steptape::session
