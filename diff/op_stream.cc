#include "diff/op_stream.h"

#include <fmt/format.h>

#include "trace/path.h"
#include "trace/text/text.h"
#include "trace/value.h"

namespace steptape::diff {
namespace {

/// A number that the host made inside the step, such as the 0.1 of `x * 0.1`.
std::optional<trace::Value> number_in(const trace::Buffer& buffer, const trace::Tensor& tensor) {
  if (buffer.role != trace::Role::kConstant || !buffer.content || tensor.offset != 0)
    return std::nullopt;
  if (buffer.bytes != bytes_of(tensor.dtype)) return std::nullopt;
  trace::Value number = element_of(buffer.content->data(), tensor.dtype);
  if (!is_number(number)) return std::nullopt;
  return number;
}

}  // namespace

std::string words_of_view(const trace::Tensor& tensor) {
  std::string words;
  if (tensor.offset != 0) words += fmt::format(" offset {}", tensor.offset);
  if (tensor.conj) words += " conj";
  if (tensor.neg) words += " neg";
  if (tensor.wrapped_number) words += " number";
  return words;
}

OpStream::OpStream(const trace::Recording& recording) : recording_(recording) {
  for (const trace::ScalarSite& site : recording.scalars) {
    if (site.op == trace::kNone) {
      bound_buffers_[site.buffer].push_back(site.formula);
    } else {
      sites_[site.op].push_back(&site);
    }
  }
  find_makers();
  tensors_.reserve(recording.tensors.size());
  for (const trace::Tensor& tensor : recording.tensors) tensors_.push_back(words_of_tensor(tensor));
}

void OpStream::find_makers() {
  makers_.assign(recording_.buffers.size(), trace::kNone);
  std::vector<bool> is_met(recording_.buffers.size(), false);
  const auto meet = [&](const trace::Value& value, trace::Index maker) {
    for_each_tensor(value, [&](trace::TensorId id) {
      if (id == trace::kNoTensor) return;
      const trace::BufferId buffer = recording_.tensors[id].buffer;
      if (!is_met[buffer]) makers_[buffer] = maker;
      is_met[buffer] = true;
    });
  };
  for (trace::Index i = 0; i < recording_.ops.size(); ++i) {
    for (const trace::Value& value : recording_.ops[i].inputs) meet(value, trace::kNone);
    for (const trace::Value& value : recording_.ops[i].outputs) meet(value, i);
  }
}

bool OpStream::is_named(trace::BufferId buffer) const {
  const std::string& path = recording_.buffers[buffer].path;
  return !path.empty() && !trace::is_outside_path(path);
}

std::string OpStream::words_of_tensor(const trace::Tensor& tensor) const {
  const trace::Buffer& buffer = recording_.buffers[tensor.buffer];
  std::string words;
  if (is_named(tensor.buffer)) {
    words = buffer.path + " ";
  } else if (const std::string number = number_of(tensor); !number.empty()) {
    words = number + " ";
  }
  words += words_of_geometry(tensor);
  if (buffer.device != trace::Device{}) words += " " + text_of(buffer.device);
  if (!tensor.is_contiguous())
    words += fmt::format(" strides [{}]", fmt::join(tensor.strides, ", "));
  return words + words_of_view(tensor);
}

std::string OpStream::number_of(const trace::Tensor& tensor) const {
  if (!formulas_of(tensor.buffer).empty()) return "formula";
  const auto number = number_in(recording_.buffers[tensor.buffer], tensor);
  return number ? trace::words_of(*number) : "";
}

std::string OpStream::origin_of(trace::BufferId buffer, trace::Index reader) const {
  if (is_named(buffer)) return recording_.buffers[buffer].path;
  const trace::Index maker = makers_[buffer];
  if (maker == reader) return "a new tensor";
  if (maker != trace::kNone) {
    const trace::Op& op = recording_.ops[maker];
    return fmt::format("result of op {} {}", maker, recording_.operator_of(op).full_name());
  }
  const std::string& path = recording_.buffers[buffer].path;
  return path.empty() ? "a tensor that no op made" : path;
}

const std::string& OpStream::words_of(trace::TensorId tensor) const {
  static const std::string undefined = "undefined";
  return tensor == trace::kNoTensor ? undefined : tensors_[tensor];
}

trace::Index OpStream::formula_at(trace::Index op, trace::Index argument, trace::Index item) const {
  const auto sites = sites_.find(op);
  if (sites == sites_.end()) return trace::kNone;
  for (const trace::ScalarSite* site : sites->second) {
    if (site->argument == argument && site->item == item) return site->formula;
  }
  return trace::kNone;
}

const std::vector<trace::Index>& OpStream::formulas_of(trace::BufferId buffer) const {
  static const std::vector<trace::Index> none;
  const auto bound = bound_buffers_.find(buffer);
  return bound == bound_buffers_.end() ? none : bound->second;
}

std::string OpStream::words_of(trace::Index op, trace::Index argument, trace::Index item,
                               const trace::Value& value) const {
  if (formula_at(op, argument, item) != trace::kNone) return "formula";
  if (const auto* tensor = std::get_if<trace::TensorRef>(&value.data)) return words_of(tensor->id);
  const auto* list = std::get_if<trace::List>(&value.data);
  if (list == nullptr) return trace::words_of(value);
  std::string words = "{";
  for (trace::Index i = 0; i < list->size(); ++i) {
    words += (i == 0 ? "" : ", ") +
             words_of(op, argument, item == trace::kNone ? i : trace::kNone, (*list)[i]);
  }
  return words + "}";
}

std::string OpStream::call_of(const trace::Op& op) const {
  return op.module == trace::kNone ? ""
                                   : trace::call_path(recording_.modules[op.module].path, op.call);
}

StreamOp OpStream::op(trace::Index index) const {
  const trace::Op& op = recording_.ops[index];
  StreamOp out{call_of(op), op.phase, recording_.operator_of(op).full_name() + "(", {}};
  const auto add_buffers = [&](const trace::Value& value) {
    for_each_tensor(value, [&](trace::TensorId id) {
      if (id == trace::kNoTensor || is_named(recording_.tensors[id].buffer)) return;
      out.buffers.push_back(recording_.tensors[id].buffer);
    });
  };
  for (trace::Index i = 0; i < op.inputs.size(); ++i) {
    out.text += (i == 0 ? "" : ", ") + words_of(index, i, trace::kNone, op.inputs[i]);
    add_buffers(op.inputs[i]);
  }
  out.text += ")";
  // what an op gives the host is a value of this run
  for (trace::Index i = 0; i < op.outputs.size(); ++i) {
    const bool is_number_of_run = is_number(op.outputs[i]);
    out.text +=
        (i == 0 ? " → " : ", ") +
        (is_number_of_run ? "a number" : words_of(trace::kNone, i, trace::kNone, op.outputs[i]));
    add_buffers(op.outputs[i]);
  }
  for (const trace::TensorId id : op.unannotated_writes) {
    out.text += " writes " + words_of(id);
    add_buffers({trace::TensorRef{id}});
  }
  return out;
}

}  // namespace steptape::diff
