#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "diff/sections.h"

namespace steptape::diff {
namespace {

/// "48 bytes, digest 00…"
std::string words_of(const trace::Buffer& buffer) {
  std::string words = fmt::format("{} bytes", buffer.bytes);
  if (buffer.role != trace::Role::kConstant)
    return words + " of role " + std::string(name_of(buffer.role));
  if (buffer.content)
    return words + ", digest " + trace::text_of(trace::digest_of(*buffer.content));
  return words + (buffer.digest ? ", digest " + text_of(*buffer.digest) : ", not kept");
}

class ConstantComparison {
 public:
  ConstantComparison(const OpStream& a, const OpStream& b, const Alignment& alignment)
      : a_(a), b_(b), alignment_(alignment) {}

  std::vector<trace::Finding> take() {
    std::unordered_map<trace::BufferId, const trace::Tensor*> read_by_b;
    for_each_read(b_, [&](trace::Index, const trace::Tensor& tensor) {
      read_by_b.emplace(tensor.buffer, &tensor);
    });
    for_each_read(a_, [&](trace::Index reader, const trace::Tensor& tensor) {
      if (!seen_.insert(tensor.buffer).second) return;
      const auto other = read_by_b.find(alignment_.buffers.partner_of_a(tensor.buffer));
      if (other != read_by_b.end()) compare(reader, tensor, *other->second);
    });
    return std::move(findings_);
  }

 private:
  /// `visit(op, tensor)` for each tensor that an op is given.
  template <typename Visit>
  static void for_each_read(const OpStream& stream, Visit&& visit) {
    const trace::Recording& recording = stream.recording();
    for (trace::Index op = 0; op < recording.ops.size(); ++op) {
      for (const trace::Value& input : recording.ops[op].inputs) {
        for_each_tensor(input, [&](trace::TensorId id) {
          if (id != trace::kNoTensor) visit(op, recording.tensors[id]);
        });
      }
    }
  }

  /// Numbers that the host made are told with the ops.
  void compare(trace::Index reader, const trace::Tensor& tensor, const trace::Tensor& other) {
    if (!a_.number_of(tensor).empty() || !b_.number_of(other).empty()) return;
    const trace::Buffer& x = a_.recording().buffers[tensor.buffer];
    const trace::Buffer& y = b_.recording().buffers[other.buffer];
    if (x.role != trace::Role::kConstant && y.role != trace::Role::kConstant) return;
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
  std::unordered_set<trace::BufferId> seen_;
  std::vector<trace::Finding> findings_;
};

}  // namespace

std::vector<trace::Finding> constant_differences(const OpStream& a, const OpStream& b,
                                                 const Alignment& alignment) {
  return ConstantComparison(a, b, alignment).take();
}

}  // namespace steptape::diff
