#include "replayer/player/spec_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "live/tensors.h"

namespace steptape::replayer {
namespace {

std::string words(std::string_view dtype, std::span<const std::int64_t> sizes) {
  return fmt::format("{}[{}]", dtype, fmt::join(sizes, ", "));
}

}  // namespace

std::string words_of(const trace::Tensor& geometry) {
  return words(trace::name_of(geometry.dtype), geometry.sizes);
}

std::string words_of(const TensorSpec& spec) { return words(spec.dtype, spec.sizes); }

std::string words_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (live::unplannable_kind(tensor)) return *live::unplannable_kind(tensor);
  return words(trace::name_of(live::dtype_of(tensor.scalar_type())), tensor.sizes());
}

}  // namespace steptape::replayer
