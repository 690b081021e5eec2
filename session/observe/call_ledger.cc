#include "session/observe/call_ledger.h"

#include <algorithm>

#include "steptape/error.h"
#include "storage/ledger/ledger_file.h"
#include "storage/ledger/ledger_writer.h"

namespace steptape::session {
namespace {

/// A process that is killed loses the lines of about so long.
constexpr std::chrono::seconds kOften{1};

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
    if (now - handed_over_ > kOften) {
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

}  // namespace steptape::session
