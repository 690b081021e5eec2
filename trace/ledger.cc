#include "trace/ledger.h"

#include <array>

#include "trace/named.h"

namespace steptape::trace {
namespace {

constexpr std::array kNames = {
    Named{CallOutcome::kRecorded, "recorded"}, Named{CallOutcome::kTrial, "trial"},
    Named{CallOutcome::kAudit, "audit"},       Named{CallOutcome::kReplayed, "replayed"},
    Named{CallOutcome::kEager, "eager"},
};
constexpr std::array kAll = values_of(kNames);

}  // namespace

std::span<const CallOutcome> call_outcomes() noexcept { return kAll; }
std::string_view name_of(CallOutcome outcome) noexcept { return find_name(kNames, outcome); }

}  // namespace steptape::trace
