#include "replayer/runtime/host_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "guards/mismatch.h"
#include "guards/varying_numbers.h"
#include "live/contents.h"
#include "replayer/planner/numbers/bindings.h"
#include "trace/numbers.h"
#include "trace/text/text.h"
#include "trace/value.h"

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
  const trace::TensorId from = tensor_in(op.inputs[0]);
  if (from == trace::kNoTensor) return trace::kNoTensor;
  const trace::Tensor& tensor = recording.tensors[from];
  const bool is_there = recording.buffers[tensor.buffer].device.kind == trace::DeviceKind::kCpu &&
                        !tensor.neg && tensor.numel() == 1;
  const std::array<std::byte, sizeof(double)> nothing{};
  const bool is_number = trace::is_exact_number(trace::element_of(nothing.data(), tensor.dtype));
  return is_there && is_number ? from : trace::kNoTensor;
}

trace::Value number_of(const c10::IValue& value) {
  if (value.isDouble()) return {trace::Real{value.toDouble()}};
  if (value.isBool()) return {value.toBool()};
  return {value.toInt()};
}

std::vector<trace::Index> positions_by_op(const std::vector<Call>& calls, std::size_t ops) {
  std::vector<trace::Index> positions(ops, trace::kNone);
  for (trace::Index i = 0; i < calls.size(); ++i) positions[calls[i].op] = i;
  return positions;
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

HostNumbers::HostNumbers(const Program& program, const std::vector<trace::BufferId>& refilled,
                         Memory& memory, std::vector<Call>& calls)
    : program_(program),
      memory_(memory),
      calls_(calls),
      call_of_(positions_by_op(calls, recording().ops.size())),
      evaluator_(*program.recording, order_of_reads()),
      read_of_(recording().ops.size(), trace::kNone),
      read_values_(recording().reads.size()) {
  const auto& reads = recording().reads;
  for (trace::Index i = 0; i < reads.size(); ++i) {
    const trace::Op& op = recording().ops[reads[i].op];
    read_of_[reads[i].op] = i;
    reads_.push_back({reads[i].use, op.outputs[0], element_read_by(recording(), op)});
  }
  for (Call& call : calls_) call.read = read_of_[call.op];
  const trace::Elements elements(recording());
  std::vector<Computed> computed(recording().formulas.size());
  for (const trace::ScalarSite& site : recording().scalars) {
    prepare(site, elements, refilled, computed[site.formula]);
  }
  for (trace::Index formula = 0; formula < computed.size(); ++formula) {
    if (computed[formula].patches.empty()) continue;
    computed[formula].formula = formula;
    const trace::Index awaited = evaluator_.waits_for(formula);
    (awaited == trace::kNone ? computed_ : reads_[awaited].computed)
        .push_back(std::move(computed[formula]));
  }
  for (const trace::Predicate& predicate : recording().predicates) {
    const trace::Index awaited = evaluator_.waits_for(predicate.formula);
    if (awaited != trace::kNone) reads_[awaited].predicates.push_back(predicate);
  }
}

std::vector<trace::Index> HostNumbers::order_of_reads() const {
  std::vector<trace::Index> order;
  for (const trace::HostRead& read : recording().reads) order.push_back(call_of_[read.op]);
  return order;
}

void HostNumbers::prepare(const trace::ScalarSite& site, const trace::Elements& elements,
                          const std::vector<trace::BufferId>& refilled, Computed& computed) {
  Patch patch{.recorded = recorded_number(elements, site),
              .argument = nullptr,
              .item = site.item,
              .buffer = site.buffer,
              .element = {}};
  if (site.op != trace::kNone) {
    if (call_of_[site.op] == trace::kNone) return;
    patch.argument = &calls_[call_of_[site.op]].arguments[site.argument];
  } else {
    if (program_.buffers[site.buffer].placement != Placement::kConstant) return;
    patch.element = *elements.at(site);
  }
  computed.was_float &= is_float(trace::number_of(patch.recorded));
  computed.is_overwritten |=
      patch.argument == nullptr && std::ranges::find(refilled, site.buffer) != refilled.end();
  computed.patches.push_back(std::move(patch));
}

void HostNumbers::begin(const RunNumbers& given) {
  given_ = given;
  evaluator_.begin(given.leaves);
  for (Computed& computed : computed_) apply(computed);
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

Verdict HostNumbers::misfit(trace::Index formula, std::string wanted, double number) const {
  return guards::failed(GuardKind::kPredicate,
                        trace::text_of(recording().formulas[formula], recording().leaves),
                        std::move(wanted), trace::words_of({trace::Real{number}}));
}

void HostNumbers::check(const Computed& computed, double number) const {
  // where a formula divides by zero or overflows, the program may throw, as ops do of numbers that
  // float32 cannot hold
  if (!is_float(number) && computed.was_float) {
    throw AssumptionViolated(RefusalCode::kScalarVaries,
                             misfit(computed.formula, "a finite float32", number));
  }
  const NumberOfRun its{NumberOfRun::Of::kFormula, computed.formula};
  check_proved(its, number, [&](const NumberProofs& proofs) {
    return misfit(computed.formula, proofs.words(its), number);
  });
}

void HostNumbers::apply(Computed& computed) {
  const double number = evaluator_.value(computed.formula);
  check(computed, number);
  if (computed.put && trace::Real{*computed.put} == trace::Real{number}) return;
  computed.put.reset();
  for (const Patch& patch : computed.patches) put(patch, computed.formula, number);
  if (!computed.is_overwritten) computed.put = number;
}

void HostNumbers::put(const Patch& patch, trace::Index formula, double number) {
  if (patch.argument != nullptr && patch.item == trace::kNone) {
    *patch.argument = ivalue_like(patch.recorded, number);
  } else if (patch.argument != nullptr) {
    patch.argument->toList().set(patch.item, ivalue_like(patch.recorded, number));
  } else {
    const trace::DType dtype = patch.element.dtype;
    std::array<std::byte, sizeof(double)> bytes{};
    if (!trace::put_element(number, dtype, bytes.data())) {
      throw AssumptionViolated(RefusalCode::kScalarVaries,
                               misfit(formula, "a number that fits", number));
    }
    live::copy_bytes(static_cast<std::byte*>(memory_.address(patch.buffer)) + patch.element.offset,
                     memory_.storage(patch.buffer)->device(), bytes.data(), c10::Device(c10::kCPU),
                     trace::bytes_of(dtype));
  }
}

std::optional<c10::IValue> HostNumbers::element(const Call& call) const {
  if (call.read == trace::kNone) return std::nullopt;
  const trace::TensorId id = reads_[call.read].element;
  if (id == trace::kNoTensor) return std::nullopt;
  const trace::Tensor& tensor = recording().tensors[id];
  const auto* first = static_cast<const std::byte*>(memory_.address(tensor.buffer));
  const trace::Value value =
      trace::element_of(first + tensor.offset * trace::bytes_of(tensor.dtype), tensor.dtype);
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return *integer;
  return ivalue_like(value, trace::number_of(value));
}

void HostNumbers::take_read(const Call& call, const c10::IValue& given) {
  Read& read = reads_[call.read];
  const trace::Value found = number_of(given);
  const auto words = [&] {
    return guards::failed(GuardKind::kHostRead, name_of(call) + " read by the host",
                          trace::words_of(read.recorded), trace::words_of(found));
  };
  if (!may_go_on(read.use, found, read.recorded)) {
    throw AssumptionViolated(RefusalCode::kHostRead, words());
  }
  const double value = trace::number_of(found);
  read_values_[call.read] = value;
  const bool is_waited_for = evaluator_.read(call.read, value);
  if (is_waited_for) check_predicates(read);
  if (read.use == trace::ReadUse::kFree) {
    check_proved({NumberOfRun::Of::kRead, call.read}, value,
                 [&](const NumberProofs&) { return words(); });
  }
  if (!is_waited_for) return;
  for (Computed& computed : read.computed) apply(computed);
}

void HostNumbers::check_predicates(const Read& read) const {
  for (const trace::Predicate& predicate : read.predicates) {
    const double decided = evaluator_.value(predicate.formula);
    if ((decided != 0) == predicate.is_nonzero) continue;
    Verdict verdict = guards::predicate_mismatch(recording(), predicate, decided);
    verdict.kind = GuardKind::kHostRead;
    throw AssumptionViolated(RefusalCode::kHostRead, std::move(verdict));
  }
}

double HostNumbers::returned(const trace::Number& number) const {
  if (number.formula != trace::kNone) return evaluator_.value(number.formula);
  return number.op == trace::kNone ? trace::number_of(number.value)
                                   : read_values_[read_of_[number.op]];
}

}  // namespace steptape::replayer
