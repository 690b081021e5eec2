#include "diff/numerics/numeric_differences.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "trace/named.h"

namespace steptape::diff {
namespace {

constexpr std::array kNumericStatuss = {
    trace::Named{NumericStatus::kOrigin, "origin"},
    trace::Named{NumericStatus::kReceiver, "receiver"},
    trace::Named{NumericStatus::kUnknown, "unknown"},
};

/// Whether two things that stand for each other are the same, as far as the recordings tell.
enum class Equality : std::uint8_t { kEqual, kUnknown, kDiffers };

Equality equality_of(bool is_equal) { return is_equal ? Equality::kEqual : Equality::kDiffers; }

std::optional<trace::Digest> known_digest(const trace::Buffer& buffer) {
  if (buffer.digest) return buffer.digest;
  return buffer.content ? std::optional(trace::digest_of(*buffer.content)) : std::nullopt;
}

Equality compare_entry(const trace::Buffer& a, const trace::Buffer& b) {
  if (a.content && a.content == b.content) return Equality::kEqual;
  const auto x = known_digest(a);
  const auto y = known_digest(b);
  return x && y ? equality_of(*x == *y) : Equality::kUnknown;
}

/// The state in which a recording found a generator, where it holds it.
const trace::GeneratorState* generator_at_entry(const trace::Recording& recording,
                                                std::string_view path) {
  const auto found = std::ranges::find(recording.generators, path, &trace::GeneratorState::path);
  return found == recording.generators.end() ? nullptr : &*found;
}

/// One side of the comparison.
struct Side {
  explicit Side(const OpStream& stream)
      : recording(stream.recording()), provenance(stream.recording()) {}

  const trace::Digest& left(trace::Index op) const { return recording.op_digests[op]; }
  /// Whether it is known what the op left: there is no digest of what lies on other devices.
  bool is_known(trace::Index op) const { return left(op) != trace::Digest(); }
  const trace::Buffer& buffer_of(const Reading& reading) const {
    return recording.buffers[recording.tensors[reading.tensor].buffer];
  }

  const trace::Recording& recording;
  Provenance provenance;
};

class NumericComparison {
 public:
  NumericComparison(const OpStream& a, const OpStream& b, const Alignment& alignment)
      : stream_a_(a), stream_b_(b), a_(a), b_(b), alignment_(alignment) {}

  NumericDifferences take() {
    compare_entries();
    for (const OpPair& pair : alignment_.pairs) follow_draws(pair);
    for (const OpPair& pair : alignment_.pairs) compare(pair);
    return std::move(out_);
  }

 private:
  void compare_entries() {
    std::unordered_map<std::string_view, trace::BufferId> of_b;
    for (trace::BufferId i = 0; i < b_.recording.buffers.size(); ++i) {
      if (stream_b_.is_named(i)) of_b.emplace(b_.recording.buffers[i].path, i);
    }
    for (trace::BufferId i = 0; i < a_.recording.buffers.size(); ++i) {
      const trace::Buffer& buffer = a_.recording.buffers[i];
      if (buffer.path.empty() || buffer.role == trace::Role::kConstant) continue;
      const auto named = of_b.find(buffer.path);
      const bool is_named = stream_a_.is_named(i) && named != of_b.end();
      const trace::BufferId other = is_named ? named->second : alignment_.buffers.partner_of_a(i);
      if (other == trace::kNone) continue;
      if (compare_entry(buffer, b_.recording.buffers[other]) == Equality::kDiffers) {
        out_.entered.push_back({i, other, false});
      }
    }
  }

  void compare(const OpPair& pair) {
    const Equality results = compare_results(pair.a, pair.b);
    if (results != Equality::kUnknown) ++out_.compared;
    if (results != Equality::kDiffers) return;
    NumericOp found{pair.a, pair.b, NumericStatus::kOrigin, {}, false};
    const Equality inputs = compare_inputs(pair.a, pair.b, found.input);
    if (inputs == Equality::kDiffers) found.status = NumericStatus::kReceiver;
    if (inputs == Equality::kUnknown) found.status = NumericStatus::kUnknown;
    out_.ops.push_back(found);
  }

  /// Bits, dtypes and shapes that both left, and numbers that both gave the host.
  Equality compare_results(trace::Index x, trace::Index y) const {
    const bool is_unwritten =
        a_.provenance.leaves_unwritten(x) || b_.provenance.leaves_unwritten(y);
    if (is_unwritten) return Equality::kUnknown;
    const auto& outputs_x = a_.recording.ops[x].outputs;
    const auto& outputs_y = b_.recording.ops[y].outputs;
    const auto differs = [](const trace::Value& p, const trace::Value& q) {
      return is_number(p) && is_number(q) && p != q;
    };
    const std::size_t both = std::min(outputs_x.size(), outputs_y.size());
    for (std::size_t i = 0; i < both; ++i) {
      if (differs(outputs_x[i], outputs_y[i])) return Equality::kDiffers;
    }
    if (a_.is_known(x) && b_.is_known(y)) return equality_of(a_.left(x) == b_.left(y));
    const bool has_number = both > 0 && is_number(outputs_x[0]) && is_number(outputs_y[0]);
    return has_number ? Equality::kEqual : Equality::kUnknown;
  }

  /// The first input that differs, or else the first that is not known, goes to `first`.
  Equality compare_inputs(trace::Index x, trace::Index y, NumericInput& first) const {
    Equality worst = Equality::kEqual;
    const auto meet = [&](Equality found, const NumericInput& input) {
      if (found > worst) first = input;
      worst = std::max(worst, found);
    };
    const auto& inputs_x = a_.recording.ops[x].inputs;
    const auto& inputs_y = b_.recording.ops[y].inputs;
    const trace::Value absent;
    for (trace::Index i = 0; i < std::max(inputs_x.size(), inputs_y.size()); ++i) {
      const trace::Value& p = i < inputs_x.size() ? inputs_x[i] : absent;
      const trace::Value& q = i < inputs_y.size() ? inputs_y[i] : absent;
      compare_argument(x, p, y, q, i, meet);
    }
    NumericInput generator;
    generator.kind = InputKind::kGenerator;
    meet(compare_generators(x, y, generator), generator);
    return worst;
  }

  template <typename Meet>
  void compare_argument(trace::Index x, const trace::Value& p, trace::Index y,
                        const trace::Value& q, trace::Index argument, Meet&& meet) const {
    const auto* list_p = std::get_if<trace::List>(&p.data);
    const auto* list_q = std::get_if<trace::List>(&q.data);
    if (list_p == nullptr || list_q == nullptr) {
      return compare_item(x, p, y, q, {InputKind::kNone, argument, trace::kNone, {}, {}}, meet);
    }
    const trace::Value absent;
    for (trace::Index i = 0; i < std::max(list_p->size(), list_q->size()); ++i) {
      compare_item(x, i < list_p->size() ? (*list_p)[i] : absent, y,
                   i < list_q->size() ? (*list_q)[i] : absent,
                   {InputKind::kNone, argument, i, {}, {}}, meet);
    }
  }

  template <typename Meet>
  void compare_item(trace::Index x, const trace::Value& p, trace::Index y, const trace::Value& q,
                    NumericInput input, Meet&& meet) const {
    const bool has_tensor_p = std::holds_alternative<trace::TensorRef>(p.data);
    const bool has_tensor_q = std::holds_alternative<trace::TensorRef>(q.data);
    if (!has_tensor_p && !has_tensor_q) {
      input.kind = InputKind::kScalar;
      const bool is_opaque = std::holds_alternative<trace::Opaque>(p.data);
      return meet(is_opaque && p == q ? Equality::kUnknown : equality_of(p == q), input);
    }
    const Reading* reading_x = a_.provenance.reading(x, input.argument, input.item);
    const Reading* reading_y = b_.provenance.reading(y, input.argument, input.item);
    input.kind = InputKind::kTensor;
    if (reading_x == nullptr && reading_y == nullptr) return meet(compare_geometry(p, q), input);
    if (reading_x == nullptr || reading_y == nullptr) return meet(Equality::kDiffers, input);
    meet(compare_tensors(*reading_x, *reading_y, input), input);
  }

  /// Of tensors at whose bits neither op looks: what both leave follows from dtype and sizes.
  Equality compare_geometry(const trace::Value& p, const trace::Value& q) const {
    const trace::Tensor* x = a_.recording.find_tensor(p);
    const trace::Tensor* y = b_.recording.find_tensor(q);
    if (x == nullptr || y == nullptr) return equality_of(x == y);
    return equality_of(x->dtype == y->dtype && x->sizes == y->sizes);
  }

  Equality compare_tensors(const Reading& x, const Reading& y, NumericInput& input) const {
    const trace::Tensor& p = a_.recording.tensors[x.tensor];
    const trace::Tensor& q = b_.recording.tensors[y.tensor];
    if (p.dtype != q.dtype || p.sizes != q.sizes) return Equality::kDiffers;
    const bool is_known = x.left.op != trace::kNone && y.left.op != trace::kNone &&
                          a_.is_known(x.left.op) && b_.is_known(y.left.op) &&
                          !a_.provenance.leaves_unwritten(x.left.op);
    if (is_known && x.left.place == y.left.place && a_.left(x.left.op) == b_.left(y.left.op)) {
      return Equality::kEqual;
    }
    const Equality bytes = compare_sources(x, y, input);
    const bool is_same_view =
        p.strides == q.strides && p.offset == q.offset && p.conj == q.conj && p.neg == q.neg;
    return bytes == Equality::kEqual && !is_same_view && p.numel() > 0 ? Equality::kUnknown : bytes;
  }

  /// The first two that differ, or else that are not known, go to `input`.
  Equality compare_sources(const Reading& x, const Reading& y, NumericInput& input) const {
    const auto sources_x = a_.provenance.sources(x);
    const auto sources_y = b_.provenance.sources(y);
    Equality worst = Equality::kEqual;
    for (std::size_t i = 0; i < std::min(sources_x.size(), sources_y.size()); ++i) {
      const Equality found = compare(sources_x[i], a_.buffer_of(x), sources_y[i], b_.buffer_of(y));
      if (found <= worst) continue;
      worst = found;
      input.a = sources_x[i];
      input.b = sources_y[i];
    }
    if (worst == Equality::kDiffers) return worst;
    if (x.has_more_sources || y.has_more_sources) {
      input.a = sources_x.back();
      input.b = sources_y.back();
      return Equality::kUnknown;
    }
    if (sources_x.size() == sources_y.size()) return worst;
    if (!sources_x.empty()) input.a = sources_x.back();
    if (!sources_y.empty()) input.b = sources_y.back();
    return Equality::kDiffers;
  }

  Equality compare(Source x, const trace::Buffer& p, Source y, const trace::Buffer& q) const {
    if (x.op == trace::kNone && y.op == trace::kNone) return compare_entry(p, q);
    if (x.op == trace::kNone || y.op == trace::kNone) return Equality::kDiffers;
    const bool is_unwritten_x = a_.provenance.leaves_unwritten(x.op);
    const bool is_unwritten_y = b_.provenance.leaves_unwritten(y.op);
    if (is_unwritten_x || is_unwritten_y) return equality_of(is_unwritten_x == is_unwritten_y);
    if (!a_.is_known(x.op) || !b_.is_known(y.op)) return Equality::kUnknown;
    return equality_of(x.place == y.place && a_.left(x.op) == b_.left(y.op));
  }

  /// Whether both draw from a generator in one state. Draws are compared in the order of `a`, so
  /// that what was drawn before is known.
  Equality compare_draws(const Draw& p, const Draw& q) const {
    if (p.seek != nullptr && q.seek != nullptr) {
      return equality_of(p.seek->state == q.seek->state);
    }
    if (p.seek != nullptr || q.seek != nullptr) return Equality::kDiffers;
    if (p.after == trace::kNone && q.after == trace::kNone) {
      const trace::GeneratorState* entered_a = generator_at_entry(a_.recording, p.generator);
      const trace::GeneratorState* entered_b = generator_at_entry(b_.recording, q.generator);
      if (entered_a == nullptr || entered_b == nullptr) return Equality::kUnknown;
      return equality_of(entered_a->digest == entered_b->digest);
    }
    const auto before = draws_.find(p.after);
    if (before == draws_.end() || before->second.partner != q.after) return Equality::kDiffers;
    return before->second.state;
  }

  void follow_draws(const OpPair& pair) {
    const Draw* p = a_.provenance.draw(pair.a);
    const Draw* q = b_.provenance.draw(pair.b);
    if (p != nullptr && q != nullptr) draws_[pair.a] = {pair.b, compare_draws(*p, *q)};
  }

  Equality compare_generators(trace::Index x, trace::Index y, NumericInput& input) const {
    const Draw* p = a_.provenance.draw(x);
    const Draw* q = b_.provenance.draw(y);
    if (p == nullptr && q == nullptr) return Equality::kEqual;
    if (p == nullptr || q == nullptr) return Equality::kDiffers;
    input.a.op = p->after;
    input.b.op = q->after;
    return draws_.at(x).state;
  }

  /// A pair of ops that draw, and whether they met one state.
  struct DrawPair {
    trace::Index partner = trace::kNone;
    Equality state = Equality::kUnknown;
  };

  const OpStream& stream_a_;
  const OpStream& stream_b_;
  Side a_, b_;
  const Alignment& alignment_;
  std::unordered_map<trace::Index, DrawPair> draws_;  ///< by op of a
  NumericDifferences out_;
};

}  // namespace

std::string_view name_of(NumericStatus status) noexcept {
  return find_name(kNumericStatuss, status);
}

std::size_t NumericDifferences::count(NumericStatus status) const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
      ops, [status](const NumericOp& op) { return !op.is_noisy && op.status == status; }));
}

std::size_t NumericDifferences::noisy() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(ops, true, &NumericOp::is_noisy) +
                                  std::ranges::count(entered, true, &EnteredBuffer::is_noisy));
}

std::size_t NumericDifferences::count() const noexcept {
  return ops.size() + entered.size() - noisy();
}

const NumericOp* NumericDifferences::first() const noexcept {
  const NumericOp* first = nullptr;
  for (const NumericOp& op : ops) {
    if (op.is_noisy) continue;
    if (op.status == NumericStatus::kOrigin) return &op;
    if (first == nullptr) first = &op;
  }
  return first;
}

NumericNoise NumericDifferences::as_noise(const trace::Recording& a) const {
  NumericNoise noise;
  for (const NumericOp& op : ops) noise.ops.insert(op.a);
  for (const EnteredBuffer& buffer : entered) noise.entered.insert(a.buffers[buffer.a].path);
  return noise;
}

void NumericDifferences::mark(const NumericNoise& noise, const trace::Recording& a) {
  for (NumericOp& op : ops) op.is_noisy = op.is_noisy || noise.ops.contains(op.a);
  for (EnteredBuffer& buffer : entered) {
    if (noise.entered.contains(a.buffers[buffer.a].path)) buffer.is_noisy = true;
  }
}

NumericDifferences numeric_differences(const OpStream& a, const OpStream& b,
                                       const Alignment& alignment) {
  const trace::Recording& x = a.recording();
  const trace::Recording& y = b.recording();
  NumericDifferences none;
  const bool lacks_a = x.op_digests.size() != x.ops.size();
  const bool lacks_b = y.op_digests.size() != y.ops.size();
  if (x.call != 0 && y.call != 0 && x.call != y.call) {
    none.not_compared = fmt::format("they are calls {} and {}", x.call, y.call);
  } else if (lacks_a || lacks_b) {
    none.not_compared = fmt::format("{} digests of its ops", lacks_a && lacks_b ? "neither has"
                                                             : lacks_a          ? "the first has no"
                                                                       : "the second has no");
  }
  return none.is_compared() ? NumericComparison(a, b, alignment).take() : none;
}

std::vector<NumericStat> stats_of(const NumericDifferences& found, const trace::Recording& a) {
  std::vector<NumericStat> stats;
  std::unordered_map<trace::Index, std::size_t> positions;
  for (const NumericOp& op : found.ops) {
    const trace::Index module = a.ops[op.a].module;
    const auto [position, is_new] = positions.try_emplace(module, stats.size());
    if (is_new) stats.push_back({a.module_path(module), 0, 0, 0, 0});
    NumericStat& stat = stats[position->second];
    if (op.is_noisy) {
      ++stat.noisy;
      continue;
    }
    switch (op.status) {
      case NumericStatus::kOrigin:
        ++stat.origins;
        break;
      case NumericStatus::kReceiver:
        ++stat.receivers;
        break;
      case NumericStatus::kUnknown:
        ++stat.unknown;
        break;
    }
  }
  return stats;
}

}  // namespace steptape::diff
