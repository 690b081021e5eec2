#include "tests/trace/fake_run.h"

#include <cstring>
#include <vector>

#include "trace/operators.h"
#include "trace/text/text.h"

namespace steptape::test {
namespace {

using namespace trace;
using Bytes = std::vector<std::byte>;

void append(Bytes& bytes, const std::string& text) {
  const auto part = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), part.begin(), part.end());
}

class Machine {
 public:
  Machine(Recording& recording, const FakeRun& how)
      : recording_(recording), how_(how), uses_(uses_of(recording)) {}

  void run() {
    recording_.op_digests.clear();
    is_made_.assign(recording_.buffers.size(), false);
    enter();
    for (Index op = 0; op < recording_.ops.size(); ++op) run(op);
  }

 private:
  void enter() {
    for (Buffer& buffer : recording_.buffers) {
      Bytes& bytes = memory_.emplace_back(buffer.bytes);
      const auto other = how_.entered.find(buffer.path);
      const std::uint64_t seed = other == how_.entered.end() ? 0 : other->second;
      Bytes name;
      append(name, buffer.path + std::to_string(seed));
      fill_with(bytes, digest_of(name));
    }
    std::vector<bool> is_met(recording_.buffers.size(), false);
    for (const Op& op : recording_.ops) {
      for (const Value& input : op.inputs) {
        for_each_tensor(input, [&](TensorId id) { is_met[buffer_of(id)] = true; });
      }
      for (const Value& output : op.outputs) {
        for_each_tensor(output, [&](TensorId id) {
          if (!is_met[buffer_of(id)]) is_made_[buffer_of(id)] = true;
          is_met[buffer_of(id)] = true;
        });
      }
    }
    for (BufferId i = 0; i < memory_.size(); ++i) {
      if (!is_made_[i]) recording_.buffers[i].digest = digest_of(memory_[i]);
    }
  }

  BufferId buffer_of(TensorId id) const { return recording_.tensors[id].buffer; }

  static void fill_with(Bytes& bytes, Digest seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      seed.low = seed.low * 6364136223846793005U + seed.high + 1;
      bytes[i] = static_cast<std::byte>(seed.low >> 56U);
    }
  }

  /// Calls `visit(byte)` for the first byte of each element, in logical order.
  template <typename Visit>
  void for_each_element(const Tensor& tensor, Visit&& visit) {
    std::vector<std::int64_t> at(tensor.sizes.size(), 0);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      std::int64_t place = tensor.offset;
      std::int64_t rest = i;
      for (std::size_t d = at.size(); d-- > 0;) {
        place += rest % tensor.sizes[d] * tensor.strides[d];
        rest /= tensor.sizes[d];
      }
      visit(memory_[tensor.buffer].data() + place * 4);
    }
  }

  Bytes bits_of(TensorId id) {
    Bytes bits;
    const Tensor& tensor = recording_.tensors[id];
    append(bits, print_value({tensor.sizes}));
    for_each_element(
        tensor, [&](const std::byte* element) { bits.insert(bits.end(), element, element + 4); });
    return bits;
  }

  void write(TensorId id, Digest seed, bool is_flipped) {
    Bytes bytes(static_cast<std::size_t>(recording_.tensors[id].numel()) * 4);
    fill_with(bytes, seed);
    if (is_flipped && !bytes.empty()) bytes[0] ^= std::byte{1};
    const std::byte* next = bytes.data();
    for_each_element(recording_.tensors[id], [&](std::byte* element) {
      std::memcpy(element, next, 4);
      next += 4;
    });
  }

  void run(Index index) {
    const Op& op = recording_.ops[index];
    Bytes takes;
    append(takes, recording_.operator_of(op).name);
    for (const Value& input : op.inputs) take(takes, input);
    Digest seed = digest_of(takes);
    std::vector<TensorId> written = uses_[index].writes;
    std::vector<TensorId> left;
    for (const Value& output : op.outputs) {
      for_each_tensor(output, [&](TensorId id) {
        left.push_back(id);
        const bool is_new = is_made_[buffer_of(id)] && !was_made_.contains(buffer_of(id));
        if (is_new) written.push_back(id);
        was_made_.insert(buffer_of(id));
      });
    }
    for (const TensorId id : written) write(id, seed, how_.flipped.contains(index));
    Bytes leaves;
    for (const TensorId id : left) append(leaves, text_of(digest_of(bits_of(id))));
    for (const TensorId id : uses_[index].writes) {
      append(leaves, text_of(digest_of(bits_of(id))));
    }
    recording_.op_digests.push_back(digest_of(leaves));
  }

  void take(Bytes& takes, const Value& value) {
    if (const auto* list = std::get_if<List>(&value.data)) {
      for (const Value& item : *list) take(takes, item);
    } else if (const auto* tensor = std::get_if<TensorRef>(&value.data)) {
      const Bytes bits = bits_of(tensor->id);
      takes.insert(takes.end(), bits.begin(), bits.end());
    } else {
      append(takes, print_value(value));
    }
  }

  Recording& recording_;
  const FakeRun& how_;
  std::vector<OpUse> uses_;
  std::vector<Bytes> memory_;  ///< by buffer
  std::vector<bool> is_made_;  ///< by buffer: an op makes it
  std::set<BufferId> was_made_;
};

}  // namespace

void run_fake(Recording& recording, const FakeRun& how) { Machine(recording, how).run(); }

}  // namespace steptape::test
