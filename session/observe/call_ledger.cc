#include "session/observe/call_ledger.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <variant>

#include "live/generator_state.h"
#include "live/tensors.h"
#include "session/observe/journal.h"
#include "session/session_state.h"
#include "steptape/error.h"
#include "storage/ledger/ledger_file.h"
#include "storage/ledger/ledger_writer.h"

namespace steptape::session {
namespace {

/// A process that is killed loses the lines of about so long.
constexpr std::chrono::seconds kHandOverEvery{1};

}  // namespace

CallLedger::CallLedger(const std::string& path, const trace::Digest& run, bool goes_on) {
  try {
    if (!goes_on) earlier_ = storage::set_ledger_aside(path);
    writer_ = std::make_unique<storage::LedgerWriter>(path, run);
  } catch (const Error& error) {
    is_taken_ = error.code() == ErrorCode::kFailedPrecondition;
    problem_ = error.what();
  } catch (const std::exception& error) {
    problem_ = error.what();
  }
}

CallLedger::~CallLedger() = default;

CallLedger::Step& CallLedger::find(std::string_view name) {
  const auto known = std::ranges::find(steps_, name, &Step::name);
  if (known != steps_.end()) return *known;
  const std::uint16_t number = writer_->step(name);
  return steps_.emplace_back(Step{std::string(name), number, writer_->last_call(number)});
}

std::optional<std::uint64_t> CallLedger::calls_of(std::string_view step) noexcept {
  if (writer_ == nullptr) return std::nullopt;
  try {
    return find(step).calls;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void CallLedger::append(std::string_view step, trace::LedgerLine line,
                        Clock::time_point now) noexcept {
  if (writer_ == nullptr) return;
  try {
    Step& found = find(step);
    line.step = found.number;
    line.call = ++found.calls;
    writer_->append(line);
    if (now - handed_over_ > kHandOverEvery) {
      handed_over_ = now;
      writer_->hand_over();
    }
    if (auto problem = writer_->problem()) problem_ = *std::move(problem);
  } catch (const std::exception&) {
    // out of memory, or more steps than a ledger has: the line is missing, and its place shows it
  }
}

std::string CallLedger::problem() const {
  if (problem_.empty() || writer_ == nullptr) return problem_;
  return problem_ + " (" + std::to_string(writer_->lost()) + " lines lost)";
}

namespace {

/// In the order in which things are added.
class Sum {
 public:
  void add(std::uint64_t bits) {
    constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;
    sum_ = (std::rotl(sum_, 23) ^ bits) * kOdd + 1;
  }
  void add(const trace::Digest& digest) {
    add(digest.low);
    add(digest.high);
  }
  void add(const at::Tensor& tensor) {
    constexpr std::uint64_t kUndefined = 1;
    constexpr std::uint64_t kNotLookedAt = 2;
    if (!tensor.defined()) return add(kUndefined);
    if (live::unplannable_kind(tensor) || !tensor.is_cpu()) return add(kNotLookedAt);
    add(live::digest_with_shape(tensor));
  }
  void add(bool value) { add(static_cast<std::uint64_t>(value)); }
  void add(std::int64_t value) { add(static_cast<std::uint64_t>(value)); }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value)); }
  void add(const std::string& text) { add(trace::digest_of(std::as_bytes(std::span(text)))); }
  void add(const pack::Number& number) {
    add(std::uint64_t{number.index()});
    std::visit([this](auto value) { add(value); }, number);
  }

  std::uint64_t take() const { return sum_ == 0 ? 1 : sum_; }

 private:
  std::uint64_t sum_ = 0;
};

}  // namespace

std::uint64_t digest_of(const pack::Results& results) {
  Sum sum;
  for (const at::Tensor& tensor : results.tensors) sum.add(tensor);
  for (const pack::Number& number : results.numbers) sum.add(number);
  return sum.take();
}

std::uint64_t digest_of(std::span<const pack::Leaf> arguments) {
  Sum sum;
  for (const pack::Leaf& argument : arguments) {
    sum.add(std::uint64_t{argument.index()});
    std::visit([&sum](const auto& value) { sum.add(value); }, argument);
  }
  return sum.take();
}

StateDigests StateDigests::take(const live::Objects& objects) {
  Sum gradients;
  Sum parameters;
  for (const live::TensorAt& at : objects.snapshot().tensors) {
    const bool is_kept =
        at.role == trace::Role::kParameter || at.role == trace::Role::kModuleBuffer;
    if (at.role == trace::Role::kGradient) gradients.add(at.tensor);
    if (is_kept) parameters.add(at.tensor);
  }
  Sum generators;
  for (const auto& [path, generator] : objects.generators()) {
    generators.add(live::digest_of(live::state_of(generator)));
  }
  constexpr unsigned kHalf = 32;
  const std::uint64_t state = generators.take();
  return {gradients.take(), parameters.take(),
          std::max<std::uint32_t>(1, static_cast<std::uint32_t>(state ^ state >> kHalf))};
}

CallLine::CallLine(SessionState& session, Journal& journal, const std::string& step,
                   const std::vector<pack::Leaf>& arguments)
    : session_(session), journal_(journal), step_(step) {
  if (session_.trace.ledger() == nullptr) return;
  start_ = Clock::now();
  if (session_.options.digests) line_.inputs = digest_of(arguments);
  outer_ = journal_.write_to(&line_);
}

CallLine::~CallLine() {
  if (session_.trace.ledger() == nullptr) return;
  journal_.write_to(outer_);
  if (line_.call == 0) return;
  const Clock::time_point end = Clock::now();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(end - start_);
  constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
  line_.microseconds = static_cast<std::uint32_t>(std::min<std::int64_t>(us.count(), kMost));
  if (session_.options.digests) take_state();
  session_.trace.ledger()->append(step_, line_, end);
}

/// Objects that are gone have no digests: the line says what it can.
void CallLine::take_state() {
  try {
    const StateDigests state = StateDigests::take(session_.objects);
    line_.gradients = state.gradients;
    line_.parameters = state.parameters;
    line_.generators = state.generators;
  } catch (const std::exception&) {
    line_.gradients = line_.parameters = line_.generators = 0;
  }
}

}  // namespace steptape::session
