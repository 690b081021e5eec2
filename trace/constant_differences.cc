#include "trace/constant_differences.h"

#include <fmt/format.h>

#include <unordered_set>

namespace steptape::trace {
namespace {

/// "48 bytes, digest 00…"
std::string words_of(const Buffer& buffer) {
  std::string words = fmt::format("{} bytes", buffer.bytes);
  if (buffer.role != Role::kConstant)
    return words + " of role " + std::string(name_of(buffer.role));
  if (buffer.content) return words + ", digest " + text_of(digest_of(*buffer.content));
  return words + (buffer.digest ? ", digest " + text_of(*buffer.digest) : ", not kept");
}

class Comparison {
 public:
  Comparison(const OpStream& a, const OpStream& b, const Alignment& alignment)
      : a_(a), b_(b), alignment_(alignment) {}

  std::vector<Finding> take() {
    for (Index op = 0; op < a_.recording().ops.size(); ++op) {
      for (const Value& input : a_.recording().ops[op].inputs) {
        for_each_tensor(input, [&](TensorId id) {
          if (id != kNoTensor) compare(op, a_.recording().tensors[id]);
        });
      }
    }
    return std::move(findings_);
  }

 private:
  void compare(Index reader, const Tensor& tensor) {
    if (!seen_.insert(tensor.buffer).second) return;
    const Buffer& x = a_.recording().buffers[tensor.buffer];
    const BufferId other = alignment_.buffers.partner_of_a(tensor.buffer);
    if (other == kNone || !a_.number_of(tensor).empty()) return;
    const Buffer& y = b_.recording().buffers[other];
    if (x.role != Role::kConstant && y.role != Role::kConstant) return;
    std::string words_x = words_of(x);
    std::string words_y = words_of(y);
    if (words_x == words_y) return;
    findings_.push_back(
        {x.path.empty() ? fmt::format("made by the host for op {}", reader) : x.path,
         std::move(words_x), std::move(words_y)});
  }

  const OpStream& a_;
  const OpStream& b_;
  const Alignment& alignment_;
  std::unordered_set<BufferId> seen_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> constant_differences(const OpStream& a, const OpStream& b,
                                          const Alignment& alignment) {
  return Comparison(a, b, alignment).take();
}

}  // namespace steptape::trace
