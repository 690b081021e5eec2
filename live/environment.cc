#include <ATen/Version.h>
#include <torch/version.h>

#include "live/ambient.h"

namespace steptape::live {
namespace {

constexpr const char* architecture() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "other";
#endif
}

/// "a, b" of "a\nb\n": a fact is one line.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c != '\n') {
      line += c;
    } else if (!line.empty()) {
      line += ", ";
    }
  }
  while (line.ends_with(", ")) line.resize(line.size() - 2);
  return line;
}

}  // namespace

std::vector<trace::Fact> environment() {
  return {{"torch", TORCH_VERSION},
          {"architecture", architecture()},
          {"cpu_capability", at::get_cpu_capability()},
          {"blas", one_line(at::get_mkl_version())},
          {"mkldnn", one_line(at::get_mkldnn_version())},
          {"openmp", one_line(at::get_openmp_version())}};
}

std::vector<trace::Fact> producer() {
  return {{"steptape", STEPTAPE_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
}

}  // namespace steptape::live
