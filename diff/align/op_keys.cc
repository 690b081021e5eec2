#include "diff/align/op_keys.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "trace/digest.h"

namespace steptape::diff {
namespace {

std::uint64_t hash_of(std::string_view text) {
  return trace::digest_of(std::as_bytes(std::span(text.data(), text.size()))).low;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t more) {
  hash ^= more + 0x9e3779b97f4a7c15U + (hash << 6U) + (hash >> 2U);
  return hash * 0xff51afd7ed558ccdU;
}

/// Stands for the kind of an argument that holds no tensor.
constexpr std::uint64_t kPlain = 1;
constexpr std::uint64_t kUndefined = 2;
constexpr std::uint64_t kList = 3;
/// Stands for a buffer that no op made and no path leads to.
constexpr std::uint64_t kGiven = 4;

class KeyMaker {
 public:
  explicit KeyMaker(const OpStream& stream)
      : stream_(stream), labels_(stream.recording().buffers.size(), 0) {
    const trace::Recording& recording = stream.recording();
    for (const trace::Operator& op : recording.operators) names_.push_back(hash_of(op.name));
    for (trace::BufferId b = 0; b < labels_.size(); ++b) {
      if (stream.is_named(b)) labels_[b] = hash_of(recording.buffers[b].path);
    }
  }

  OpKeys make(trace::Index index) {
    const trace::Op& op = stream_.recording().ops[index];
    StreamOp words = stream_.op(index);
    OpKeys keys;
    keys.buffers = std::move(words.buffers);
    keys.name = mixed(names_[op.op], static_cast<std::uint64_t>(op.phase));
    keys.place = mixed(hash_of(words.call), static_cast<std::uint64_t>(op.phase));
    keys.content = hash_of(words.text);
    keys.arguments = hash_of(std::string_view(words.text).substr(words.text.find('(')));
    keys.structure = keys.name;
    for (const trace::Value& input : op.inputs) add(keys, input);
    name_what_is_made(op);
    keys.exact = mixed(keys.content, keys.structure);
    return keys;
  }

 private:
  void add(OpKeys& keys, const trace::Value& value) {
    std::uint64_t& hash = keys.structure;
    if (const auto* tensor = std::get_if<trace::TensorRef>(&value.data)) {
      hash = mixed(hash, tensor->id == trace::kNoTensor ? kUndefined : label_of(keys, tensor->id));
    } else if (const auto* list = std::get_if<trace::List>(&value.data)) {
      hash = mixed(mixed(hash, kList), list->size());
      for (const trace::Value& item : *list) add(keys, item);
    } else {
      hash = mixed(hash, kPlain);
    }
  }

  std::uint64_t label_of(OpKeys& keys, trace::TensorId tensor) {
    const trace::BufferId buffer = stream_.recording().tensors[tensor].buffer;
    keys.has_path = keys.has_path || stream_.is_named(buffer);
    if (labels_[buffer] == 0) labels_[buffer] = kGiven;
    return labels_[buffer];
  }

  void name_what_is_made(const trace::Op& op) {
    std::uint64_t position = 0;
    for (const trace::Value& output : op.outputs) {
      for_each_tensor(output, [&](trace::TensorId id) {
        ++position;
        if (id == trace::kNoTensor) return;
        std::uint64_t& label = labels_[stream_.recording().tensors[id].buffer];
        if (label == 0) label = mixed(names_[op.op], position);
      });
    }
  }

  const OpStream& stream_;
  std::vector<std::uint64_t> names_;   ///< by operator
  std::vector<std::uint64_t> labels_;  ///< by buffer; 0 where no op has met it yet
};

}  // namespace

std::vector<OpKeys> keys_of(const OpStream& stream) {
  KeyMaker maker(stream);
  std::vector<OpKeys> keys;
  keys.reserve(stream.recording().ops.size());
  for (trace::Index op = 0; op < stream.recording().ops.size(); ++op)
    keys.push_back(maker.make(op));
  return keys;
}

void join_buffers(BufferPairs& pairs, const OpKeys& a, const OpKeys& b) {
  const std::vector<trace::BufferId>& x = a.buffers;
  const std::vector<trace::BufferId>& y = b.buffers;
  if (x.size() == y.size()) {
    for (std::size_t i = 0; i < x.size(); ++i) pairs.join(x[i], y[i]);
    return;
  }
  // other arguments: the results, which come last, still stand for each other
  for (std::size_t i = 1; i <= std::min(x.size(), y.size()); ++i) {
    pairs.join(x[x.size() - i], y[y.size() - i]);
  }
}

}  // namespace steptape::diff
