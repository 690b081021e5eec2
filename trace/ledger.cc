#include "trace/ledger.h"

#include <array>

#include "trace/named.h"

namespace steptape::trace {
namespace {

constexpr std::array kNames = {
    Named<CallOutcome>{CallOutcome::kRecorded, "recorded"},
    Named<CallOutcome>{CallOutcome::kTrial, "trial"},
    Named<CallOutcome>{CallOutcome::kAudit, "audit"},
    Named<CallOutcome>{CallOutcome::kReplayed, "replayed"},
    Named<CallOutcome>{CallOutcome::kEager, "eager"},
};
constexpr std::array kAll = {CallOutcome::kRecorded, CallOutcome::kTrial, CallOutcome::kAudit,
                             CallOutcome::kReplayed, CallOutcome::kEager};
static_assert(kNames.size() == kAll.size());

}  // namespace

std::span<const CallOutcome> call_outcomes() noexcept { return kAll; }
std::string_view name_of(CallOutcome outcome) noexcept { return find_name(kNames, outcome); }

}  // namespace steptape::trace
