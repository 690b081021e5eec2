#include "replayer/runtime/cuda/plan/grouping.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "live/operators.h"
#include "replayer/planner/analysis/writes.h"
#include "trace/value.h"

namespace steptape::replayer::cuda {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostResultBytes = std::uint64_t{4} << 20;

/// An op that may stand in another order, and be done with others.
struct Candidate {
  trace::Index op = 0;
  const ForeachOperator* by = nullptr;  ///< null: it is done by itself
  std::string key = {};                 ///< equal for ops that may be done together
  std::size_t depth = 0;
};

/// One number of the host, as it was recorded.
struct RecordedNumber {
  trace::Value value;
  bool varies = false;
};

class Eligibility {
 public:
  Eligibility(const Program& program, const std::vector<trace::Index>& alone, const Agrees& agrees)
      : recording_(*program.recording), program_(program), agrees_(agrees) {
    is_alone_.resize(recording_.ops.size(), false);
    for (const trace::Index op : alone) is_alone_[op] = true;
    for (const trace::ScalarSite& site : recording_.scalars) {
      if (site.op == trace::kNone) {
        varying_buffers_.insert(site.buffer);
      } else {
        varying_arguments_.insert(argument_of(site.op, site.argument));
      }
    }
  }

  /// Nothing for an op that others must not be moved across.
  std::optional<Candidate> candidate(trace::Index op) const {
    const Instruction& instruction = program_.instructions[op];
    if (instruction.treatment != Treatment::kCall || instruction.is_once) return std::nullopt;
    if (!is_alone_[op]) {
      const std::string name = recording_.operator_of(recording_.ops[op]).full_name();
      for (const ForeachOperator* by : foreach_operators_of(name)) {
        auto key = key_of(op, *by);
        if (key && agrees_(*by, op)) return Candidate{op, by, *std::move(key)};
      }
    }
    if (!is_small_and_pointwise(op)) return std::nullopt;
    return Candidate{.op = op, .key = fmt::format("op {}", op)};
  }

 private:
  static std::uint64_t argument_of(trace::Index op, std::size_t argument) {
    return (std::uint64_t{op} << 32) | argument;
  }

  bool is_on_host(const trace::Tensor& tensor) const {
    return recording_.buffers[tensor.buffer].device.kind == trace::DeviceKind::kCpu;
  }

  /// What LibTorch's kernels for lists take as it is.
  static bool is_plain(const trace::Tensor& tensor) {
    const bool is_float =
        tensor.dtype == trace::DType::kFloat32 || tensor.dtype == trace::DType::kFloat64 ||
        tensor.dtype == trace::DType::kFloat16 || tensor.dtype == trace::DType::kBFloat16;
    if (!is_float || tensor.conj || tensor.neg || tensor.numel() == 0) return false;
    const std::uint64_t bytes =
        static_cast<std::uint64_t>(tensor.numel()) * trace::bytes_of(tensor.dtype);
    return bytes <= kMostBytes && is_dense(tensor);
  }

  /// The elements fill one stretch of memory, each a place of its own, in whatever order.
  static bool is_dense(const trace::Tensor& tensor) {
    std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // strides and sizes
    for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
      if (tensor.sizes[d] > 1) dimensions.emplace_back(tensor.strides[d], tensor.sizes[d]);
    }
    std::ranges::sort(dimensions);
    std::int64_t expected = 1;
    for (const auto& [stride, size] : dimensions) {
      if (stride != expected) return false;
      expected *= size;
    }
    return true;
  }

  bool is_small_and_pointwise(trace::Index op) const {
    const c10::OperatorHandle& callee = program_.instructions[op].callee;
    if (!callee.hasTag(at::Tag::pointwise) || live::effects_of(callee).is_random) return false;
    bool is_small = true;
    for_each_tensor_of(recording_.ops[op], [&](trace::TensorId id) {
      is_small &= recording_.buffers[recording_.tensors[id].buffer].bytes <= kMostBytes;
    });
    return is_small;
  }

  std::optional<RecordedNumber> number_of(trace::Index op, std::size_t argument,
                                          const trace::Tensor& first) const {
    const trace::Value& value = recording_.ops[op].inputs[argument];
    if (const trace::Tensor* tensor = recording_.find_tensor(value)) {
      const trace::Buffer& buffer = recording_.buffers[tensor->buffer];
      // of two tensors without dimensions the wider dtype is that of the result
      const bool promotes = !tensor->wrapped_number && first.sizes.empty();
      if (promotes && tensor->dtype != first.dtype) return std::nullopt;
      if (!is_on_host(*tensor) || !tensor->sizes.empty() || !buffer.content ||
          buffer.role != trace::Role::kConstant) {
        return std::nullopt;
      }
      const auto first = tensor->byte_range().first;
      return checked({trace::element_of(buffer.content->data() + first, tensor->dtype),
                      varying_buffers_.contains(tensor->buffer)});
    }
    return checked({value, varying_arguments_.contains(argument_of(op, argument))});
  }

  static std::optional<RecordedNumber> checked(RecordedNumber number) {
    if (std::holds_alternative<bool>(number.value.data) || !trace::is_exact_number(number.value)) {
      return std::nullopt;
    }
    return number;
  }

  bool has_default(trace::Index op, std::size_t argument) const {
    const trace::Value& value = recording_.ops[op].inputs[argument];
    const auto& schema = program_.instructions[op].callee.schema();
    const auto& expected = schema.arguments()[argument].default_value();
    if (!expected || !trace::is_number(value)) return false;
    if (varying_arguments_.contains(argument_of(op, argument))) return false;
    if (expected->isBool()) return trace::number_of(value) == (expected->toBool() ? 1 : 0);
    return expected->isScalar() && trace::number_of(value) == expected->toScalar().toDouble();
  }

  /// Nothing where `by` cannot stand for the op.
  std::optional<std::string> key_of(trace::Index op, const ForeachOperator& by) const {
    const std::vector<trace::Value>& inputs = recording_.ops[op].inputs;
    const trace::Tensor* first = recording_.find_tensor(inputs[by.arguments[0].from]);
    if (first == nullptr || is_on_host(*first) || !is_plain(*first)) return std::nullopt;
    if (by.out && inputs[*by.out] != inputs[by.arguments[0].from]) return std::nullopt;
    std::vector<bool> is_taken(inputs.size(), false);
    if (by.out) is_taken[*by.out] = true;
    // what stands for one operator in its own way is not what stands for another
    std::string key = fmt::format("{} {} {}", by.op, fmt::ptr(&by), name_of(first->dtype));
    for (const ForeachArgument& argument : by.arguments) {
      is_taken[argument.from] = true;
      const trace::Value& value = inputs[argument.from];
      const trace::Tensor* tensor = recording_.find_tensor(value);
      switch (argument.kind) {
        case ForeachArgument::Kind::kEach:
          if (tensor == nullptr || !goes_with(*tensor, *first)) return std::nullopt;
          break;
        case ForeachArgument::Kind::kShared:
          if (tensor == nullptr || is_on_host(*tensor) || !tensor->sizes.empty() ||
              tensor->dtype != first->dtype || !is_plain(*tensor)) {
            return std::nullopt;
          }
          key += fmt::format(" {}", std::get<trace::TensorRef>(value.data).id);
          break;
        case ForeachArgument::Kind::kNumber:
        case ForeachArgument::Kind::kReciprocal: {
          const auto number = number_of(op, argument.from, *first);
          if (!number) return std::nullopt;
          key += fmt::format(" {}{}{:x}", number->varies ? "~" : "",
                             std::holds_alternative<trace::Real>(number->value.data) ? "r" : "i",
                             std::bit_cast<std::uint64_t>(trace::number_of(number->value)));
          break;
        }
      }
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!is_taken[i] && !has_default(op, i)) return std::nullopt;
    }
    return key;
  }

  /// Of the geometry of `first`, and the same memory or none of it.
  bool goes_with(const trace::Tensor& tensor, const trace::Tensor& first) const {
    if (is_on_host(tensor) || !is_plain(tensor) || tensor.dtype != first.dtype ||
        tensor.sizes != first.sizes || tensor.strides != first.strides) {
      return false;
    }
    return tensor.buffer != first.buffer || tensor == first;
  }

  const trace::Recording& recording_;
  const Program& program_;
  const Agrees& agrees_;
  std::vector<bool> is_alone_;
  std::unordered_set<trace::BufferId> varying_buffers_;
  std::unordered_set<std::uint64_t> varying_arguments_;
};

/// Candidates that follow each other, to be sorted by how many of them each must wait for: those of
/// one depth wait for none of each other.
class GroupFinder {
 public:
  explicit GroupFinder(const Program& program)
      : program_(program), recording_(*program.recording) {}

  void add(Candidate candidate) {
    const trace::Op& op = recording_.ops[candidate.op];
    std::vector<trace::BufferId> writes = written_by(recording_, op);
    for_each_made(program_, candidate.op, [&](trace::BufferId made) {
      result_bytes_ += recording_.buffers[made].bytes;
      writes.push_back(made);
    });
    std::vector<trace::BufferId> reads;
    for_each_buffer(recording_, op.inputs, [&](trace::BufferId id) { reads.push_back(id); });
    for (const trace::BufferId id : reads) {
      candidate.depth = std::max(candidate.depth, written_[id]);
    }
    for (const trace::BufferId id : writes) {
      candidate.depth = std::max({candidate.depth, written_[id], read_[id]});
    }
    ++candidate.depth;
    for (const trace::BufferId id : reads) read_[id] = std::max(read_[id], candidate.depth);
    for (const trace::BufferId id : writes) written_[id] = candidate.depth;
    candidates_.push_back(std::move(candidate));
  }

  bool is_full() const { return result_bytes_ >= kMostResultBytes; }

  /// Appends its ops to `ops` and its groups to `groups`, and begins anew.
  void end(std::vector<trace::Index>& ops, std::vector<Group>& groups) {
    std::unordered_map<std::string, std::size_t> rank;
    for (const Candidate& candidate : candidates_) rank.try_emplace(candidate.key, rank.size());
    std::ranges::stable_sort(candidates_, {}, [&](const Candidate& candidate) {
      return std::pair(candidate.depth, rank[candidate.key]);
    });
    for (auto first = candidates_.begin(); first != candidates_.end();) {
      const auto end = std::find_if(first, candidates_.end(), [&](const Candidate& candidate) {
        return candidate.depth != first->depth || candidate.key != first->key;
      });
      Group group{first->by, {}};
      for (; first != end; ++first) group.ops.push_back(first->op);
      ops.insert(ops.end(), group.ops.begin(), group.ops.end());
      if (group.ops.size() > 1) groups.push_back(std::move(group));
    }
    candidates_.clear();
    written_.clear();
    read_.clear();
    result_bytes_ = 0;
  }

 private:
  const Program& program_;
  const trace::Recording& recording_;
  std::vector<Candidate> candidates_;
  std::unordered_map<trace::BufferId, std::size_t> written_, read_;  ///< the depth of the last
  std::uint64_t result_bytes_ = 0;
};

}  // namespace

std::vector<Group> group_ops(const Program& program, std::vector<Segment>& segments,
                             const std::vector<trace::Index>& alone, const Agrees& agrees) {
  const Eligibility eligibility(program, alone, agrees);
  std::vector<Group> groups;
  for (Segment& segment : segments) {
    if (segment.kind != SegmentKind::kGraph) continue;
    GroupFinder finder(program);
    std::vector<trace::Index> ops;
    for (const trace::Index op : segment.ops) {
      if (auto candidate = eligibility.candidate(op)) {
        if (finder.is_full()) finder.end(ops, groups);
        finder.add(*std::move(candidate));
      } else {
        finder.end(ops, groups);
        ops.push_back(op);
      }
    }
    finder.end(ops, groups);
    segment.ops = std::move(ops);
  }
  return groups;
}

}  // namespace steptape::replayer::cuda
