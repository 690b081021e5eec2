#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "live/values.h"
#include "recorder/tape.h"

/// What an op does to memory: the second half of the Tape.
namespace steptape::recorder {
namespace {

std::pair<std::uint64_t, std::uint64_t> whole(const trace::Buffer& buffer) {
  return {0, buffer.bytes};
}

}  // namespace

bool Tape::writes(const Running& running, std::size_t argument) const {
  const live::Effects& effects = *running.known->effects;
  return effects.writes[argument] && (running.is_training || !effects.writes_unannotated[argument]);
}

bool Tape::copies_unwritten(const Running& running) const {
  constexpr std::int64_t kMostElements = 65'536;
  if (running.known->name != "aten::copy_" || running.arguments.size() != 2) return false;
  const trace::Tensor& target = state_.recording.tensors[running.arguments[0].id];
  const trace::Tensor& source = state_.recording.tensors[running.arguments[1].id];
  if (target.sizes != source.sizes || target.dtype != source.dtype) return false;
  const auto& buffers = state_.tensor_table.buffers;
  const auto& written = buffers.live(source.buffer).written;
  return written && source.numel() <= kMostElements && !covers(*written, source) &&
         buffers.live(target.buffer).origin == Origin::kMade;
}

void Tape::note_copy(const Running& running) {
  const trace::Tensor& target = state_.recording.tensors[running.arguments[0].id];
  LiveBuffer& live = state_.tensor_table.buffers.live(target.buffer);
  if (!live.written) {
    live.written.emplace();
    live.written->add(0, state_.recording.buffers[target.buffer].bytes);
  }
  copy_written(*running.copied, state_.recording.tensors[running.arguments[1].id], *live.written,
               target);
}

/// Whether this call does not look at its first argument, as operators of its kind do.
bool Tape::is_first_unread(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                           const Running& running) const {
  const KnownOperator& known = *running.known;
  if (known.beta >= 0) {
    const c10::IValue& beta = arguments[known.beta];
    return beta.isScalar() && beta.toScalar().equal(0);
  }
  return known.fills_by >= 0 && fills_first(op.schema(), arguments, running);
}

/// Whether it puts a value to each index of a dimension. Which indices these are may be others in a
/// replay, but an op of the step sees to it that each is there once.
bool Tape::fills_first(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                       const Running& running) const {
  const auto given = [&](const char* name) -> const c10::IValue* {
    const auto position = schema.argumentIndexWithName(name);
    return position ? &arguments[*position] : nullptr;
  };
  const c10::IValue* accumulate = given("accumulate");
  if (given("reduce") != nullptr || (accumulate != nullptr && accumulate->toBool())) return false;
  const Tensor* self = nullptr;
  const Tensor* index = nullptr;
  for (const Tensor& tensor : running.arguments) {
    if (tensor.argument == 0) self = &tensor;
    if (static_cast<std::int64_t>(tensor.argument) != running.known->fills_by) continue;
    if (index != nullptr) return false;
    index = &tensor;
  }
  if (self == nullptr || index == nullptr) return false;
  const trace::Tensor& filled = state_.recording.tensors[self->id];
  const trace::Tensor& by = state_.recording.tensors[index->id];
  const c10::IValue* dim = given("dim");
  const auto dims = static_cast<std::int64_t>(filled.sizes.size());
  const std::int64_t along =
      dim == nullptr ? 0 : (dim->toInt() + dims) % std::max(dims, std::int64_t{1});
  const bool is_along_one = dims == 1 || (dims > 1 && schema.name() != "aten::scatter_");
  return is_along_one && state_.tensor_table.buffers.live(by.buffer).has_each_index &&
         by.sizes == std::vector{filled.sizes[static_cast<std::size_t>(along)]} &&
         by.is_contiguous() && by.byte_range() == whole(state_.recording.buffers[by.buffer]);
}

/// Until an op writes it: see note_write.
void Tape::note_each_index(const Running& running) {
  if (!running.known->gives_each_index || running.op.outputs.empty()) return;
  trace::for_each_tensor(running.op.outputs.back(), [&](trace::TensorId id) {
    if (id == trace::kNoTensor) return;
    const trace::Tensor& index = state_.recording.tensors[id];
    const bool is_whole = index.sizes.size() == 1 && index.dtype == trace::DType::kInt64 &&
                          index.byte_range() == whole(state_.recording.buffers[index.buffer]);
    if (is_whole) state_.tensor_table.buffers.live(index.buffer).has_each_index = true;
  });
}

void Tape::check_reads(Running& running) {
  if (copies_unwritten(running)) {
    // as circular padding does with the corners, which it writes later
    const trace::BufferId source = state_.tensor_table.buffer_of(running.arguments[1].id);
    running.copied = state_.tensor_table.buffers.live(source).written;
  }
  for (std::size_t k = 0; k < running.arguments.size(); ++k) {
    const Tensor& tensor = running.arguments[k];
    const bool is_filled = !running.filled.empty() && running.filled[tensor.argument];
    if (is_filled || !running.known->reads[tensor.argument]) continue;
    const trace::Tensor& geometry = state_.recording.tensors[tensor.id];
    if (!running.copied) check_written(geometry);
    LiveBuffer& live = state_.tensor_table.buffers.live(geometry.buffer);
    if (live.origin == Origin::kForeign && !covers(live.overwritten, geometry))
      live.is_read_first = true;
    const auto content = check_content(geometry.buffer);
    const bool is_made = state_.tensor_table.buffers.live(geometry.buffer).origin == Origin::kMade;
    const bool is_written = std::ranges::any_of(running.arguments, [&](const Tensor& other) {
      return state_.tensor_table.buffer_of(other.id) == geometry.buffer &&
             writes(running, other.argument);
    });
    if (running.is_measured && content && !is_made && !is_written) {
      running.measured.emplace_back(k, *content);
    }
  }
}

void Tape::check_written(const trace::Tensor& tensor) {
  const auto& written = state_.tensor_table.buffers.live(tensor.buffer).written;
  if (!written || covers(*written, tensor)) return;
  const trace::Index maker = state_.tensor_table.buffers.live(tensor.buffer).made_by;
  state_.refusals.add(RefusalCode::kUnwrittenRead, site_,
                      c10::str("reads ", shape_text(tensor), " made by op ", maker,
                               ", of which no recorded op wrote all bytes"));
}

std::optional<trace::Digest> Tape::check_content(trace::BufferId buffer) {
  LiveBuffer& live = state_.tensor_table.buffers.live(buffer);
  const auto content = state_.tensor_table.buffers.digest_of(buffer);
  if (content && live.content && *content != *live.content) {
    const std::string& path = state_.recording.buffers[buffer].path;
    state_.refusals.add(RefusalCode::kWrittenOutside, site_,
                        c10::str("the bytes of ", path.empty() ? "a temporary" : path,
                                 " changed since the op that wrote or read them last"));
  }
  if (content) live.content = content;
  return content;
}

void Tape::name_outputs(c10::ArrayRef<c10::IValue> outputs, Running& running) {
  origin_ = Origin::kMade;
  argument_ = 0;
  named_.clear();
  auto& buffers = state_.tensor_table.buffers;
  const auto first_new = static_cast<trace::BufferId>(buffers.size());
  running.op.outputs.reserve(outputs.size());
  for (const c10::IValue& output : outputs) {
    running.op.outputs.push_back(live::value_of(output, name_tensor_, name_generator_));
  }
  for (trace::BufferId id = first_new; id < buffers.size(); ++id) {
    if (running.known->effects->makes_unwritten) {
      buffers.live(id).written.emplace();
    } else {
      note_content(id);
    }
  }
}

void Tape::compare_measured(Running& running) {
  for (const auto& [position, before] : running.measured) {
    const trace::TensorId id = running.arguments[position].id;
    const trace::BufferId buffer = state_.tensor_table.buffer_of(id);
    const auto now = state_.tensor_table.buffers.digest_of(buffer);
    if (!now || *now == before) continue;
    running.op.unannotated_writes.push_back(id);
    note_write(id, running.index);
    state_.refusals.add(RefusalCode::kUnannotatedWrite, site_,
                        c10::str("writes its argument ", running.arguments[position].argument,
                                 ", which its schema does not say"));
  }
}

void Tape::note_writes(Running& running) {
  for (const Tensor& tensor : running.arguments) {
    if (!writes(running, tensor.argument)) continue;
    if (running.known->effects->writes_unannotated[tensor.argument]) {
      running.op.unannotated_writes.push_back(tensor.id);
    }
    note_write(tensor.id, running.index);
  }
  if (running.copied) note_copy(running);
}

void Tape::note_read(const Running& running) {
  if (!running.known->effects->is_host_read) return;
  if (running.op.outputs.size() == 1 && trace::is_number(running.op.outputs[0])) {
    state_.recording.reads.push_back({running.index, trace::ReadUse::kChecked});
    if (is_owner()) state_.hints.note_read(running.index);
    return;
  }
  state_.refusals.add(RefusalCode::kHostRead, site_,
                      "the host reads something that is not a real number inside the step");
}

void Tape::note_write(trace::TensorId id, trace::Index op) {
  const trace::Tensor& tensor = state_.recording.tensors[id];
  LiveBuffer& live = state_.tensor_table.buffers.live(tensor.buffer);
  if (live.first_write == trace::kNone) live.first_write = op;
  live.has_each_index = false;
  if (live.origin == Origin::kForeign) {
    live.may_be_scratch =
        is_owner() && (FrontendHints::current() == nullptr || state_.hints.said.follows_numbers);
  }
  ByteRanges* const ranges = live.written                      ? &*live.written
                             : live.origin == Origin::kForeign ? &live.overwritten
                                                               : nullptr;
  if (ranges != nullptr) {
    for_each_range(tensor,
                   [ranges](std::uint64_t begin, std::uint64_t end) { ranges->add(begin, end); });
  }
  note_content(tensor.buffer);
  // Each replay begins with what the host puts into a tensor that it makes in the step. A trial
  // tells no front end, so it does not know which those are; the recording of its plan did.
  const bool may_be_made =
      is_owner() && (FrontendHints::current() == nullptr || state_.hints.has_made(live.storage));
  const bool is_made_in_step =
      may_be_made && state_.recording.buffers[tensor.buffer].content != nullptr;
  if (live.origin != Origin::kForeign || is_made_in_step) return;
  state_.untracked_writes.try_emplace(
      tensor.buffer, UntrackedWrite{site_, c10::str("tracked: ", state_.objects.text(),
                                                    "; written: ", shape_text(tensor),
                                                    ", first by `", *site_.op, "` op ", op)});
}

void Tape::note_exchange(const Running& running) {
  for (const Tensor& tensor : running.arguments) {
    if (!writes(running, tensor.argument)) continue;
    LiveBuffer& live = state_.tensor_table.buffers.live(state_.tensor_table.buffer_of(tensor.id));
    live.content.reset();
    live.is_exchanged = true;
  }
}

void Tape::note_content(trace::BufferId buffer) {
  auto& buffers = state_.tensor_table.buffers;
  buffers.live(buffer).content = buffers.digest_of(buffer);
}

}  // namespace steptape::recorder
