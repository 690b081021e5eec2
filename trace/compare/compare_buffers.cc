#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "trace/compare/compare_parts.h"
#include "trace/numbers.h"

namespace steptape::trace {
namespace {

Found differ_in_buffer_geometry(std::size_t i, const Buffer& a, const Buffer& b) {
  constexpr auto kKind = DifferenceKind::kGeometry;
  auto path = [i](std::string_view what) { return fmt::format("buffers[{}].{}", i, what); };
  if (auto found = differ(kKind, a.bytes, b.bytes, [&] { return path("bytes"); })) return found;
  if (auto found = differ(kKind, a.device, b.device, [&] { return path("device"); })) return found;
  if (a.role == Role::kInput || b.role == Role::kInput) return std::nullopt;
  return differ(kKind, static_cast<unsigned>(a.address_mod_64),
                static_cast<unsigned>(b.address_mod_64), [&] { return path("address_mod_64"); });
}

Found differ_in_tensor(std::size_t i, const Tensor& a, const Tensor& b) {
  if (a == b) return std::nullopt;
  constexpr auto kKind = DifferenceKind::kGeometry;
  auto path = [i](std::string_view what) {
    return [i, what] { return fmt::format("tensors[{}].{}", i, what); };
  };
  if (auto found = differ(kKind, a.buffer, b.buffer, path("buffer"))) return found;
  if (auto found = differ(kKind, a.dtype, b.dtype, path("dtype"))) return found;
  if (auto found = differ(kKind, a.sizes, b.sizes, path("sizes"))) return found;
  if (auto found = differ(kKind, a.strides, b.strides, path("strides"))) return found;
  if (auto found = differ(kKind, a.offset, b.offset, path("offset"))) return found;
  if (auto found = differ(kKind, a.conj, b.conj, path("conj"))) return found;
  if (auto found = differ(kKind, a.neg, b.neg, path("neg"))) return found;
  return differ(kKind, a.wrapped_number, b.wrapped_number, path("wrapped_number"));
}

/// Digest where one was taken, else of the content that was kept. Of a buffer with elements that a
/// formula gives, of all others.
std::string bytes_in_words(const Buffer& buffer, std::span<const Element> bound) {
  if (!bound.empty() && buffer.content) {
    std::vector<std::byte> others = *buffer.content;
    for (const Element& element : bound) {
      if (element.offset + element.bytes.size() > others.size()) continue;
      std::ranges::fill(std::span(others).subspan(element.offset, element.bytes.size()),
                        std::byte{});
    }
    return text_of(digest_of(others));
  }
  if (buffer.digest) return text_of(*buffer.digest);
  return buffer.content ? text_of(digest_of(*buffer.content)) : std::string("no digest");
}

Found differ_in_constants(DifferenceKind kind, const Recording& a, const Recording& b) {
  const bool host_made = kind == DifferenceKind::kHostTensor;
  const Elements elements_of_b(b);
  std::map<BufferId, std::vector<Element>> bound;
  for (const ScalarSite& site : b.scalars) {
    if (site.op != kNone) continue;
    if (const auto element = elements_of_b.at(site)) bound[site.buffer].push_back(*element);
  }
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    const Buffer& x = a.buffers[i];
    if (x.role != Role::kConstant || x.path.empty() != host_made) continue;
    const std::vector<Element>& elements = bound[static_cast<BufferId>(i)];
    const Buffer& y = b.buffers[i];
    Found found = differ(kind, bytes_in_words(x, elements), bytes_in_words(y, elements), [&] {
      return host_made ? fmt::format("buffers[{}]", i) : fmt::format("buffers[{}] {}", i, x.path);
    });
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

Found differ_in_geometry(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kGeometry;
  if (Found found = differ_in_each(kKind, "tensors", a.tensors, b.tensors, differ_in_tensor)) {
    return found;
  }
  return differ_in_each(kKind, "buffers", a.buffers, b.buffers, differ_in_buffer_geometry);
}

Found differ_in_roles(const Recording& a, const Recording& b) {
  constexpr auto kKind = DifferenceKind::kRole;
  return differ_in_each(
      kKind, "buffers", a.buffers, b.buffers, [](std::size_t i, const Buffer& x, const Buffer& y) {
        Found found =
            differ(kKind, x.role, y.role, [i] { return fmt::format("buffers[{}].role", i); });
        if (found) return found;
        return differ(kKind, x.path, y.path, [i] { return fmt::format("buffers[{}].path", i); });
      });
}

Found differ_in_host_tensors(const Recording& a, const Recording& b) {
  return differ_in_constants(DifferenceKind::kHostTensor, a, b);
}

Found differ_in_outside_tensors(const Recording& a, const Recording& b) {
  return differ_in_constants(DifferenceKind::kOutsideTensor, a, b);
}

}  // namespace steptape::trace
