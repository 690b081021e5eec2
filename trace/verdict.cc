#include "steptape/verdict.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "steptape/guard_kind.h"

namespace steptape {

namespace {

/// By number.
constexpr std::array<std::string_view, 35> kNames = {
    "none",           "argument_count",  "argument",     "presence",
    "tensor_kind",    "device",          "dtype",        "shape",
    "stride",         "offset",          "tensor_flags", "requires_grad",
    "inference",      "alignment",       "memory",       "overlap",
    "alive",          "hooks",           "training",     "module_option",
    "parameters",     "module_buffers",  "sub_modules",  "parameter_groups",
    "hyperparameter", "optimizer_state", "host_value",   "fact",
    "predicate",      "ambient",         "host_state",   "host_read",
    "run_shape",      "process_group",   "exception"};

constexpr std::array kKinds = [] {
  std::array<GuardKind, kNames.size() - 1> kinds{};
  for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<GuardKind>(i + 1);
  return kinds;
}();
static_assert(kKinds.back() == GuardKind::kException);

}  // namespace

std::string_view name_of(GuardKind kind) noexcept {
  const auto number = static_cast<std::size_t>(kind);
  return number < kNames.size() ? kNames[number] : "unknown";
}

std::span<const GuardKind> guard_kinds() noexcept { return kKinds; }

std::string Verdict::text() const {
  if (path.empty()) return "all guards hold";
  return fmt::format("{}: {} → {}", path, expected, found);
}

}  // namespace steptape
