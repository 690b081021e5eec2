#include "diff/numerics/provenance.h"

#include <algorithm>
#include <utility>

#include "trace/operators.h"

namespace steptape::diff {
namespace {

/// Who wrote which bytes of one buffer.
class WrittenBytes {
  struct Part {
    std::uint64_t end = 0;  ///< it begins where the one before it ends
    Source source;          ///< of all of its bytes
    Source also;            ///< of the newest who wrote some of them since
  };
  using Parts = std::vector<Part>;

 public:
  explicit WrittenBytes(std::uint64_t bytes) : parts_(1, Part{bytes, {}, {}}) {}

  void write(std::uint64_t begin, std::uint64_t end, Source source) {
    const auto [first, last] = cut(begin, end);
    parts_.erase(first + 1, last);
    *first = {end, source, {}};
  }

  /// Bytes between `begin` and `end`, but not all of them.
  void write_some(std::uint64_t begin, std::uint64_t end, Source source) {
    const auto [first, last] = cut(begin, end);
    for (auto part = first; part != last; ++part) part->also = source;
  }

  /// Until `visit` gives false.
  template <typename Visit>
  void for_each_source(std::uint64_t begin, std::uint64_t end, Visit&& visit) const {
    for (auto part = find(begin); part != parts_.end(); ++part) {
      if (!visit(part->source)) return;
      if (part->also.op != trace::kNone && !visit(part->also)) return;
      if (part->end >= end) return;
    }
  }

 private:
  Parts::const_iterator find(std::uint64_t byte) const {
    return std::ranges::upper_bound(parts_, byte, {}, &Part::end);
  }

  /// The position of the part that begins at `byte`; divides the one that holds it.
  std::ptrdiff_t part_from(std::uint64_t byte) {
    const std::ptrdiff_t at = find(byte) - parts_.cbegin();
    if (at == std::ssize(parts_)) return at;
    const auto part = parts_.begin() + at;
    const std::uint64_t begin = at == 0 ? 0 : std::prev(part)->end;
    if (begin == byte) return at;
    parts_.insert(part, Part{byte, part->source, part->also});
    return at + 1;
  }

  /// The parts from `begin` up to `end`, at least one.
  std::pair<Parts::iterator, Parts::iterator> cut(std::uint64_t begin, std::uint64_t end) {
    const std::ptrdiff_t first = part_from(begin);
    const std::ptrdiff_t last = part_from(end);
    return {parts_.begin() + first, parts_.begin() + last};
  }

  Parts parts_;  ///< by place, without gaps
};

/// So many sources of a reading are kept in any case.
constexpr std::size_t kFew = 8;

/// What of its arguments an operator looks at and writes.
struct OperatorUse {
  std::vector<trace::SchemaArgument> arguments;
  bool overwrites = false;
  bool reads_geometry = false;
  bool draws = false;
};

std::vector<OperatorUse> uses_of_operators(const trace::Recording& recording) {
  std::vector<OperatorUse> uses;
  for (const trace::Operator& op : recording.operators) {
    uses.push_back({trace::arguments_of(op.schema),
                    trace::is_exception(op.name, trace::OpException::kOverwrites),
                    trace::is_exception(op.name, trace::OpException::kGeometryOnly),
                    trace::draws(op)});
  }
  return uses;
}

}  // namespace

class ProvenanceMaker {
 public:
  explicit ProvenanceMaker(Provenance& out)
      : out_(out),
        recording_(out.recording_),
        uses_(uses_of_operators(recording_)),
        is_met_(recording_.buffers.size(), false),
        left_(recording_.tensors.size()),
        next_seek_(recording_.seeks.begin()) {
    bytes_.reserve(recording_.buffers.size());
    for (const trace::Buffer& buffer : recording_.buffers) bytes_.emplace_back(buffer.bytes);
    for (const trace::Operator& op : recording_.operators) {
      out.is_unwritten_.push_back(trace::is_exception(op.name, trace::OpException::kUnwritten));
    }
  }

  void run() {
    for (trace::Index op = 0; op < recording_.ops.size(); ++op) {
      out_.first_reading_.push_back(static_cast<std::uint32_t>(out_.readings_.size()));
      seek_before(op);
      read(op);
      leave(op);
    }
    out_.first_reading_.push_back(static_cast<std::uint32_t>(out_.readings_.size()));
  }

 private:
  const OperatorUse& use_of(trace::Index op) const { return uses_[recording_.ops[op].op]; }

  trace::SchemaArgument argument_of(trace::Index op, trace::Index argument) const {
    const auto& arguments = use_of(op).arguments;
    return argument < arguments.size() ? arguments[argument] : trace::SchemaArgument();
  }

  void seek_before(trace::Index op) {
    for (; next_seek_ != recording_.seeks.end() && next_seek_->before_op <= op; ++next_seek_) {
      generators_[next_seek_->generator] = {next_seek_->generator, trace::kNone, &*next_seek_};
    }
  }

  void read(trace::Index op) {
    const OperatorUse& use = use_of(op);
    const auto& inputs = recording_.ops[op].inputs;
    std::string_view generator = "default";
    for (trace::Index i = 0; i < inputs.size(); ++i) {
      if (const auto* given = std::get_if<trace::GeneratorRef>(&inputs[i].data))
        generator = given->path;
      const trace::SchemaArgument argument = argument_of(op, i);
      const bool is_unseen = argument.is_output || (argument.is_written && use.overwrites);
      if (!is_unseen && !use.reads_geometry) read(i, inputs[i]);
      meet(inputs[i]);
    }
    if (!use.draws || generator.empty()) return;
    Draw& draw = generators_[std::string(generator)];
    if (draw.generator.empty()) draw.generator = generator;
    out_.draws_.emplace(op, draw);
    draw = {generator, op, nullptr};
  }

  void read(trace::Index argument, const trace::Value& value) {
    if (const auto* tensor = std::get_if<trace::TensorRef>(&value.data)) {
      return read(argument, trace::kNone, tensor->id);
    }
    const auto* list = std::get_if<trace::List>(&value.data);
    if (list == nullptr) return;
    for (trace::Index item = 0; item < list->size(); ++item) {
      for_each_tensor((*list)[item], [&](trace::TensorId id) { read(argument, item, id); });
    }
  }

  void read(trace::Index argument, trace::Index item, trace::TensorId id) {
    if (id == trace::kNoTensor) return;
    const trace::Tensor& tensor = recording_.tensors[id];
    const auto [begin, end] = tensor.byte_range();
    Reading reading{id, argument, item, {}, static_cast<std::uint32_t>(out_.sources_.size()), 0};
    bool is_as_left = left_[id].op != trace::kNone;
    if (begin != end) {
      bytes_[tensor.buffer].for_each_source(begin, end, [&](Source source) {
        is_as_left = is_as_left && (source.op == trace::kNone || source.op <= left_[id].op);
        const std::size_t kept = out_.sources_.size() - reading.first_source;
        if (kept > 0 && out_.sources_.back() == source) return true;
        reading.has_more_sources = kept >= kFew && out_.sources_.size() >= Provenance::kMany;
        if (!reading.has_more_sources) out_.sources_.push_back(source);
        return !reading.has_more_sources;
      });
      is_as_left = is_as_left && !reading.has_more_sources;
    }
    if (is_as_left) reading.left = left_[id];
    reading.sources = static_cast<std::uint32_t>(out_.sources_.size()) - reading.first_source;
    out_.readings_.push_back(reading);
  }

  void meet(const trace::Value& value) {
    for_each_tensor(value, [this](trace::TensorId id) {
      if (id != trace::kNoTensor) is_met_[recording_.tensors[id].buffer] = true;
    });
  }

  void leave(trace::Index op) {
    const trace::Op& left = recording_.ops[op];
    Source source{op, 0};
    for (const trace::Value& value : left.outputs) {
      for_each_tensor(value, [&](trace::TensorId id) {
        if (id != trace::kNoTensor) give(id, source);
        ++source.place;
      });
    }
    for (const trace::Value& value : left.outputs) meet(value);
    for (trace::Index i = 0; i < left.inputs.size(); ++i) {
      if (!argument_of(op, i).is_written) continue;
      for_each_tensor(left.inputs[i], [&](trace::TensorId id) { write(id, source); });
    }
    for (const trace::TensorId id : left.unannotated_writes) write(id, source);
  }

  /// A result: memory that the op made, or a view of what was there.
  void give(trace::TensorId id, Source source) {
    left_[id] = source;
    const trace::BufferId buffer = recording_.tensors[id].buffer;
    const std::uint64_t bytes = recording_.buffers[buffer].bytes;
    if (!is_met_[buffer] && bytes > 0) bytes_[buffer].write(0, bytes, source);
  }

  void write(trace::TensorId id, Source& source) {
    if (id != trace::kNoTensor) {
      const trace::Tensor& tensor = recording_.tensors[id];
      const auto [begin, end] = tensor.byte_range();
      const auto bytes = static_cast<std::uint64_t>(tensor.numel()) * bytes_of(tensor.dtype);
      left_[id] = source;
      if (begin != end && end - begin == bytes) {
        bytes_[tensor.buffer].write(begin, end, source);
      } else if (begin != end) {
        bytes_[tensor.buffer].write_some(begin, end, source);
      }
    }
    ++source.place;
  }

  Provenance& out_;
  const trace::Recording& recording_;
  const std::vector<OperatorUse> uses_;  ///< by operator
  std::vector<WrittenBytes> bytes_;      ///< by buffer
  std::vector<bool> is_met_;             ///< by buffer
  std::vector<Source> left_;             ///< by tensor: the op that left it last
  std::unordered_map<std::string, Draw> generators_;
  std::vector<trace::Seek>::const_iterator next_seek_;
};

Provenance::Provenance(const trace::Recording& recording) : recording_(recording) {
  ProvenanceMaker(*this).run();
}

std::span<const Reading> Provenance::readings(trace::Index op) const {
  return std::span(readings_).subspan(first_reading_[op],
                                      first_reading_[op + 1] - first_reading_[op]);
}

const Reading* Provenance::reading(trace::Index op, trace::Index argument,
                                   trace::Index item) const {
  const auto readings = this->readings(op);
  const auto key = [](const Reading& reading) { return std::pair(reading.argument, reading.item); };
  const auto found = std::ranges::lower_bound(readings, std::pair(argument, item), {}, key);
  if (found == readings.end() || key(*found) != std::pair(argument, item)) return nullptr;
  return &*found;
}

std::span<const Source> Provenance::sources(const Reading& reading) const {
  return std::span(sources_).subspan(reading.first_source, reading.sources);
}

const Draw* Provenance::draw(trace::Index op) const {
  const auto found = draws_.find(op);
  return found == draws_.end() ? nullptr : &found->second;
}

}  // namespace steptape::diff
