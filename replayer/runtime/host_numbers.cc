#include "replayer/runtime/host_numbers.h"

#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "guards/mismatch.h"
#include "guards/predicates.h"
#include "live/device_bytes.h"
#include "replayer/planner/numbers/bindings.h"
#include "trace/element.h"
#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::replayer {
namespace {

c10::IValue ivalue_like(const trace::Value& recorded, double number) {
  if (std::holds_alternative<bool>(recorded.data)) return number != 0;
  if (std::holds_alternative<std::int64_t>(recorded.data)) {
    return static_cast<std::int64_t>(number);
  }
  return number;
}

/// The tensor whose one element the op gives the host, where it lies in the host's memory.
trace::TensorId element_read_by(const trace::Recording& recording, const trace::Op& op) {
  if (recording.operator_of(op).name != "aten::_local_scalar_dense") return trace::kNoTensor;
  const auto* from = std::get_if<trace::TensorRef>(&op.inputs[0].data);
  if (from == nullptr || from->id == trace::kNoTensor) return trace::kNoTensor;
  const trace::Tensor& tensor = recording.tensors[from->id];
  const bool is_there = recording.buffers[tensor.buffer].device.kind == trace::DeviceKind::kCpu &&
                        !tensor.neg && tensor.numel() == 1;
  const std::array<std::byte, sizeof(double)> nothing{};
  const bool is_number = trace::is_exact_number(trace::element_of(nothing.data(), tensor.dtype));
  return is_there && is_number ? from->id : trace::kNoTensor;
}

trace::Value number_of(const c10::IValue& value) {
  if (value.isDouble()) return {trace::Real{value.toDouble()}};
  if (value.isBool()) return {value.toBool()};
  return {value.toInt()};
}

/// Finite as a float32.
bool is_float(double number) { return std::isfinite(static_cast<float>(number)); }

bool may_go_on(trace::ReadUse use, const trace::Value& found, const trace::Value& recorded) {
  switch (use) {
    case trace::ReadUse::kChecked:
      return found == recorded;
    case trace::ReadUse::kFree:
      // what is not finite is what programs ask for
      return trace::is_exact_number(found) &&
             std::isfinite(trace::number_of(found)) == std::isfinite(trace::number_of(recorded));
    case trace::ReadUse::kLookedAt:
      return trace::is_exact_number(found);
  }
  return false;
}

}  // namespace

HostNumbers::HostNumbers(const Program& program, Memory& memory, std::vector<Call>& calls)
    : program_(program),
      memory_(memory),
      calls_(calls),
      evaluator_(*program.recording),
      read_of_(recording().ops.size(), trace::kNone),
      patches_of_read_(recording().reads.size()),
      predicates_of_read_(recording().reads.size()),
      read_values_(recording().reads.size()) {
  const auto& reads = recording().reads;
  for (trace::Index i = 0; i < reads.size(); ++i) {
    read_of_[reads[i].op] = i;
    element_of_read_.push_back(element_read_by(recording(), recording().ops[reads[i].op]));
  }
  std::vector<trace::Index> call_of(recording().ops.size(), trace::kNone);
  for (trace::Index i = 0; i < calls_.size(); ++i) {
    calls_[i].read = read_of_[calls_[i].op];
    call_of[calls_[i].op] = i;
  }
  const trace::Elements elements(recording());
  for (const trace::ScalarSite& site : recording().scalars) prepare(site, elements, call_of);
  for (const trace::Predicate& predicate : recording().predicates) {
    const trace::Index awaited = evaluator_.waits_for(predicate.formula);
    if (awaited != trace::kNone) predicates_of_read_[read_of_[awaited]].push_back(predicate);
  }
}

void HostNumbers::prepare(const trace::ScalarSite& site, const trace::Elements& elements,
                          const std::vector<trace::Index>& call_of) {
  Patch patch{0, site, recorded_number(elements, site)};
  if (site.op != trace::kNone) {
    if (call_of[site.op] == trace::kNone) return;
    patch.call = call_of[site.op];
  } else if (program_.buffers[site.buffer].placement != Placement::kConstant) {
    return;
  }
  const trace::Index awaited = evaluator_.waits_for(site.formula);
  auto& patches = awaited == trace::kNone ? patches_ : patches_of_read_[read_of_[awaited]];
  patches.push_back(std::move(patch));
}

void HostNumbers::begin(const RunNumbers& given) {
  given_ = given;
  evaluator_.begin(given.leaves);
  for (const Patch& patch : patches_) apply(patch);
}

template <typename Words>
void HostNumbers::check_proved(NumberOfRun number, double value, Words&& words) const {
  const NumberProofs* proofs = given_.proofs_of(number);
  if (proofs == nullptr || proofs->holds(number, value)) return;
  const RefusalCode code =
      number.of == NumberOfRun::Of::kRead ? RefusalCode::kHostRead : RefusalCode::kScalarVaries;
  if (proofs->is_pinned(number)) throw AssumptionViolated(code, words(*proofs));
  throw Unproved(code, words(*proofs), number);
}

void HostNumbers::apply(const Patch& patch) {
  const double number = evaluator_.value(patch.site.formula);
  // where a formula divides by zero or overflows, the program may throw, as ops do of numbers that
  // float32 cannot hold
  if (!is_float(number) && is_float(trace::number_of(patch.recorded))) {
    throw AssumptionViolated(
        RefusalCode::kScalarVaries,
        guards::failed(GuardKind::kPredicate,
                       trace::text_of(recording().formulas[patch.site.formula], recording().leaves),
                       "a finite float32", trace::words_of({trace::Real{number}})));
  }
  check_proved({NumberOfRun::Of::kFormula, patch.site.formula}, number,
               [&](const NumberProofs& proofs) {
                 return guards::failed(
                     GuardKind::kPredicate,
                     trace::text_of(recording().formulas[patch.site.formula], recording().leaves),
                     proofs.words({NumberOfRun::Of::kFormula, patch.site.formula}),
                     trace::words_of({trace::Real{number}}));
               });
  if (patch.site.op == trace::kNone) {
    const trace::DType dtype = recording().tensors[memory_.first_on(patch.site.buffer)].dtype;
    const auto place =
        trace::element_at(recording().buffers[patch.site.buffer], dtype, patch.site.item);
    std::array<std::byte, sizeof(double)> element{};
    if (!trace::put_element(number, dtype, element.data())) {
      throw AssumptionViolated(
          RefusalCode::kScalarVaries,
          guards::failed(
              GuardKind::kPredicate,
              trace::text_of(recording().formulas[patch.site.formula], recording().leaves),
              "a number that fits", trace::words_of({trace::Real{number}})));
    }
    live::copy_bytes(static_cast<std::byte*>(memory_.address(patch.site.buffer)) + place->offset,
                     memory_.storage(patch.site.buffer)->device(), element.data(),
                     c10::Device(c10::kCPU), trace::bytes_of(dtype));
    return;
  }
  c10::IValue& argument = calls_[patch.call].arguments[patch.site.argument];
  if (patch.site.item == trace::kNone) {
    argument = ivalue_like(patch.recorded, number);
  } else {
    argument.toList().set(patch.site.item, ivalue_like(patch.recorded, number));
  }
}

std::optional<c10::IValue> HostNumbers::element(const Call& call) const {
  if (call.read == trace::kNone) return std::nullopt;
  const trace::TensorId id = element_of_read_[call.read];
  if (id == trace::kNoTensor) return std::nullopt;
  const trace::Tensor& tensor = recording().tensors[id];
  const auto* first = static_cast<const std::byte*>(memory_.address(tensor.buffer));
  const trace::Value value =
      trace::element_of(first + tensor.offset * trace::bytes_of(tensor.dtype), tensor.dtype);
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return *integer;
  return ivalue_like(value, trace::number_of(value));
}

void HostNumbers::take_read(const Call& call, const c10::IValue& given) {
  const trace::HostRead& read = recording().reads[call.read];
  const trace::Value found = number_of(given);
  const trace::Value& recorded = recording().ops[call.op].outputs[0];
  if (!may_go_on(read.use, found, recorded)) {
    throw AssumptionViolated(
        RefusalCode::kHostRead,
        guards::failed(GuardKind::kHostRead, name_of(call) + " read by the host",
                       trace::words_of(recorded), trace::words_of(found)));
  }
  const double value = trace::number_of(found);
  read_values_[call.read] = value;
  const bool is_waited_for = evaluator_.read(call.op, value);
  if (is_waited_for) {
    for (const trace::Predicate& predicate : predicates_of_read_[call.read]) {
      const double decided = evaluator_.value(predicate.formula);
      if ((decided != 0) == predicate.is_nonzero) continue;
      Verdict verdict = guards::predicate_mismatch(recording(), predicate, decided);
      verdict.kind = GuardKind::kHostRead;
      throw AssumptionViolated(RefusalCode::kHostRead, std::move(verdict));
    }
  }
  if (read.use == trace::ReadUse::kFree) {
    check_proved({NumberOfRun::Of::kRead, call.read}, value, [&](const NumberProofs&) {
      return guards::failed(GuardKind::kHostRead, name_of(call) + " read by the host",
                            trace::words_of(recorded), trace::words_of(found));
    });
  }
  if (!is_waited_for) return;
  for (const Patch& patch : patches_of_read_[call.read]) apply(patch);
}

double HostNumbers::returned(const trace::Number& number) const {
  if (number.formula != trace::kNone) return evaluator_.value(number.formula);
  return number.op == trace::kNone ? trace::number_of(number.value)
                                   : read_values_[read_of_[number.op]];
}

}  // namespace steptape::replayer
