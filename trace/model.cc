#include "trace/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "steptape/error.h"
#include "trace/named.h"

namespace steptape::trace {
namespace {

constexpr std::array kRoles = {
    Named{Role::kParameter, "parameter"}, Named{Role::kModuleBuffer, "module_buffer"},
    Named{Role::kGradient, "gradient"},   Named{Role::kOptimizerState, "optimizer_state"},
    Named{Role::kInput, "input"},         Named{Role::kConstant, "constant"},
    Named{Role::kCarried, "carried"},     Named{Role::kTemporary, "temporary"},
    Named{Role::kResult, "result"},
};

constexpr std::array kStatuses = {
    Named{Status::kWarmUp, "warm_up"},
    Named{Status::kProbe, "probe"},
    Named{Status::kAgreed, "agreed"},
    Named{Status::kTrusted, "trusted"},
};

constexpr std::array kReadUses = {
    Named{ReadUse::kChecked, "checked"},
    Named{ReadUse::kFree, "free"},
    Named{ReadUse::kLookedAt, "looked_at"},
};

constexpr std::array kHeldRules = {
    Named{HeldPlace::Rule::kGiven, "given"},
    Named{HeldPlace::Rule::kCarried, "carried"},
    Named{HeldPlace::Rule::kLost, "lost"},
};

bool equal_blobs(const Blob& a, const Blob& b) {
  if (a == b) return true;
  return a && b && *a == *b;
}

[[noreturn]] void range_overflows(const Tensor& tensor) {
  throw Error(
      ErrorCode::kDataLoss,
      fmt::format("the byte range of sizes [{}], strides [{}] and offset {} overflows",
                  fmt::join(tensor.sizes, ", "), fmt::join(tensor.strides, ", "), tensor.offset));
}

/// First and last element index that the tensor reaches, in elements from the buffer's start.
std::pair<std::int64_t, std::int64_t> element_span(const Tensor& tensor) {
  std::int64_t first = tensor.offset;
  std::int64_t last = tensor.offset;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.sizes[d] - 1, tensor.strides[d], &reach)) {
      range_overflows(tensor);
    }
    std::int64_t& end = reach < 0 ? first : last;
    if (__builtin_add_overflow(end, reach, &end)) range_overflows(tensor);
  }
  return {first, last};
}

}  // namespace

Blob make_blob(const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  return std::make_shared<const std::vector<std::byte>>(begin, begin + bytes);
}

std::string_view name_of(Role role) noexcept { return find_name(kRoles, role); }
std::string_view name_of(Status status) noexcept { return find_name(kStatuses, status); }
std::string_view name_of(ReadUse use) noexcept { return find_name(kReadUses, use); }
std::string_view name_of(HeldPlace::Rule rule) noexcept { return find_name(kHeldRules, rule); }

bool operator==(const Buffer& a, const Buffer& b) {
  return a.bytes == b.bytes && a.device == b.device && a.address_mod_64 == b.address_mod_64 &&
         a.role == b.role && a.path == b.path && a.digest == b.digest &&
         equal_blobs(a.content, b.content);
}

bool operator==(const GeneratorState& a, const GeneratorState& b) {
  return a.path == b.path && a.digest == b.digest && equal_blobs(a.content, b.content);
}

bool operator==(const Saved& a, const Saved& b) {
  return a.path == b.path && a.address_mod_64 == b.address_mod_64 &&
         equal_blobs(a.content, b.content) && a.number == b.number;
}

std::int64_t Tensor::numel() const noexcept {
  if (std::ranges::any_of(sizes, [](std::int64_t size) { return size <= 0; })) return 0;
  std::int64_t count = 1;
  for (std::int64_t size : sizes) {
    if (__builtin_mul_overflow(count, size, &count)) {
      return std::numeric_limits<std::int64_t>::max();
    }
  }
  return count;
}

bool Tensor::is_contiguous() const noexcept {
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (strides[d] != expected) return false;
    expected *= std::max<std::int64_t>(sizes[d], 1);
  }
  return true;
}

std::pair<std::uint64_t, std::uint64_t> Tensor::byte_range() const {
  if (sizes.size() != strides.size()) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("a tensor has {} sizes and {} strides", sizes.size(), strides.size()));
  }
  if (numel() == 0) return {0, 0};
  const auto [first, last] = element_span(*this);
  if (first < 0) {
    throw Error(ErrorCode::kDataLoss,
                fmt::format("a tensor starts at element {}, before its buffer", first));
  }
  const std::uint64_t width = bytes_of(dtype);
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(first), width, &begin) ||
      __builtin_mul_overflow(static_cast<std::uint64_t>(last) + 1, width, &end)) {
    range_overflows(*this);
  }
  return {begin, end};
}

const Step* Trace::find_step(std::string_view name) const noexcept {
  const auto found = std::ranges::find(steps, name, &Step::name);
  return found == steps.end() ? nullptr : &*found;
}

}  // namespace steptape::trace
