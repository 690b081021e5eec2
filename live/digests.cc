#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "live/contents.h"
#include "live/tensors.h"
#include "steptape/error.h"

namespace steptape::live {
namespace {

constexpr std::size_t kSampledAbove = std::size_t{1} << 20;
constexpr std::size_t kBlocks = 64;
constexpr std::size_t kBlockBytes = std::size_t{16} << 10;

bool has_bytes(c10::Device device) { return device.is_cpu() || device.is_cuda(); }

trace::Digest digest_of(const Memory& memory, std::size_t start, std::size_t bytes) {
  if (!has_bytes(memory.device)) {
    throw Error(ErrorCode::kUnsupported, "only memory of the CPU and of CUDA devices has digests");
  }
  const auto* first = static_cast<const std::byte*>(memory.first) + start;
  if (memory.device.is_cpu()) return trace::digest_of({first, bytes});
  return trace::digest_of(bytes_on_host(first, memory.device, bytes));
}

/// Calls `visit(pointer)` for each element in logical order.
template <typename Visit>
void for_each_element(const at::Tensor& tensor, Visit&& visit) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  const auto* base = static_cast<const std::byte*>(tensor.const_data_ptr());
  std::vector<std::int64_t> position(sizes.size(), 0);
  for (std::int64_t left = tensor.numel(), at = 0; left > 0; --left) {
    visit(base + at * item);
    for (std::size_t d = sizes.size(); d-- > 0;) {
      at += strides[d];
      if (++position[d] < sizes[d]) break;
      at -= strides[d] * sizes[d];
      position[d] = 0;
    }
  }
}

/// Flips the sign of the floating-point number of `bytes` bytes at `number`.
void negate(std::byte* number, std::size_t bytes) { number[bytes - 1] ^= std::byte{0x80}; }

/// The element that a tensor with lazy conj or neg bit stands for.
void resolve(std::byte* element, std::size_t bytes, const at::Tensor& tensor) {
  const std::size_t part = tensor.is_complex() ? bytes / 2 : bytes;
  if (tensor.is_conj()) negate(element + part, part);
  if (!tensor.is_neg()) return;
  for (std::size_t at = 0; at < bytes; at += part) negate(element + at, part);
}

}  // namespace

trace::Digest full_digest(const Memory& memory) { return digest_of(memory, 0, memory.bytes); }

trace::Digest sampled_digest(const Memory& memory) {
  if (memory.bytes <= kSampledAbove) return full_digest(memory);
  std::array<trace::Digest, kBlocks> blocks;
  const std::size_t last = memory.bytes - kBlockBytes;
  for (std::size_t k = 0; k < kBlocks; ++k) {
    // The quotient comes first: the product would overflow for storages of 2^58 bytes only, but
    // the remainder keeps the last block at the very end.
    const std::size_t start = last / (kBlocks - 1) * k + last % (kBlocks - 1) * k / (kBlocks - 1);
    blocks[k] = digest_of(memory, start, kBlockBytes);
  }
  return trace::digest_of(std::as_bytes(std::span(blocks)));
}

trace::Digest digest_of(const at::Tensor& tensor) {
  if (!has_bytes(tensor.device()) || unplannable_kind(tensor)) {
    throw Error(ErrorCode::kUnsupported, "only plain tensors on the CPU or CUDA have digests");
  }
  if (!tensor.is_cpu()) {
    const Unseen unseen;
    return digest_of(tensor.to(at::kCPU));
  }
  const auto item = static_cast<std::size_t>(tensor.itemsize());
  const auto numel = static_cast<std::size_t>(tensor.numel());
  if (numel == 0) return trace::digest_of({});
  const bool lazy = tensor.is_conj() || tensor.is_neg();
  if (tensor.is_contiguous() && !lazy) {
    return trace::digest_of({static_cast<const std::byte*>(tensor.const_data_ptr()), numel * item});
  }
  std::vector<std::byte> elements(numel * item);
  std::byte* out = elements.data();
  for_each_element(tensor, [&](const std::byte* element) {
    std::memcpy(out, element, item);
    if (lazy) resolve(out, item, tensor);
    out += item;
  });
  return trace::digest_of(elements);
}

}  // namespace steptape::live
