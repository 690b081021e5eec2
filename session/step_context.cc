#include "session/step_context.h"

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <unordered_map>

#include "live/tensors.h"
#include "session/observe/call_ledger.h"
#include "session/session_state.h"
#include "trace/text/text.h"

namespace steptape::session {

StepContext::StepContext(SessionState& of, std::string with_name, std::string at, bool of_update)
    : session(of),
      name(std::move(with_name)),
      place(std::move(at)),
      is_update(of_update),
      schedule(of.options.record),
      journal(of, name, place),
      plans(of, journal, name) {}

void StepContext::note_results(const pack::Results& results) {
  if (trace::LedgerLine* line = journal.line()) line->results = digest_of(results);
  schedule.note(results);
}

namespace {

void add(std::string& way, std::int64_t number) {
  way.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void add(std::string& way, const at::Tensor& tensor) {
  if (!tensor.defined()) return way.push_back('u');
  if (const auto kind = live::unplannable_kind(tensor)) {
    way += *kind;
    return;
  }
  way.push_back(tensor.requires_grad() ? 'g' : 't');
  add(way, static_cast<std::int64_t>(tensor.scalar_type()));
  add(way, tensor.dim());
  for (const std::int64_t size : tensor.sizes()) add(way, size);
  for (const std::int64_t stride : tensor.strides()) add(way, stride);
}

void add(std::string& way, const trace::Value& fact) {
  if (!trace::is_number(fact)) {
    way += trace::print_value(fact);
    return;
  }
  way.push_back('n');
  add(way, static_cast<std::int64_t>(fact.data.index()));
}

}  // namespace

std::string way_of_entry(std::span<const live::Argument> arguments) {
  std::string way(1, at::GradMode::is_enabled() ? 'g' : 'n');
  std::unordered_map<const c10::TensorImpl*, std::size_t> first;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const live::Argument& argument = arguments[k];
    argument.is_tensor ? add(way, argument.tensor) : add(way, argument.fact);
    if (argument.is_tensor && argument.tensor.defined()) {
      const auto [entry, is_new] = first.try_emplace(argument.tensor.unsafeGetTensorImpl(), k);
      if (!is_new) add(way, static_cast<std::int64_t>(entry->second));
    }
    way.push_back(';');
  }
  return way;
}

}  // namespace steptape::session
