#include "tools/export/python_ambient.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace steptape::tools {
namespace {

struct Switch {
  std::string_view fact, value;
  std::string_view statement;
};
constexpr std::array kSwitches = {
    // an op that knows no deterministic way did run when it was recorded
    Switch{"deterministic", "on", "torch.use_deterministic_algorithms(True, warn_only=True)"},
    Switch{"mkldnn", "off", "torch.backends.mkldnn.set_flags(False)"},
    Switch{"cudnn", "off", "torch.backends.cudnn.enabled = False"},
    Switch{"cudnn_benchmark", "on", "torch.backends.cudnn.benchmark = True"},
    Switch{"cudnn_deterministic", "on", "torch.backends.cudnn.deterministic = True"},
    Switch{"flush_denormal", "on", "torch.set_flush_denormal(True)"},
    Switch{"default_dtype", "Double", "torch.set_default_dtype(torch.float64)"},
    Switch{"default_dtype", "Half", "torch.set_default_dtype(torch.float16)"},
    Switch{"default_dtype", "BFloat16", "torch.set_default_dtype(torch.bfloat16)"},
    Switch{"matmul_precision", "1", "torch.set_float32_matmul_precision('high')"},
    Switch{"matmul_precision", "2", "torch.set_float32_matmul_precision('medium')"},
};

/// Nothing for a fact that is no number of threads.
std::string threads(const trace::Fact& fact) {
  std::uint16_t count = 0;
  const char* end = fact.value.data() + fact.value.size();
  const auto read = std::from_chars(fact.value.data(), end, count);
  const bool is_count = read.ec == std::errc() && read.ptr == end && count > 0;
  return fact.name == "threads" && is_count ? fmt::format("torch.set_num_threads({})\n", count)
                                            : "";
}

}  // namespace

std::string python_ambient(const std::vector<trace::Fact>& ambient) {
  std::string text;
  for (const trace::Fact& fact : ambient) {
    text += threads(fact);
    const auto* const row = std::ranges::find_if(kSwitches, [&](const Switch& known) {
      return known.fact == fact.name && known.value == fact.value;
    });
    if (row != kSwitches.end()) text += fmt::format("{}\n", row->statement);
  }
  return text;
}

}  // namespace steptape::tools
