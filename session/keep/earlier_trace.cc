#include "session/keep/earlier_trace.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "live/ambient.h"
#include "storage/trace/reader.h"
#include "trace/compare/compare.h"

namespace steptape::session {
namespace {

/// One with the state of a large model, or with many calls, takes longer to read than a probe.
constexpr std::uintmax_t kMostBytes = std::uintmax_t{64} << 20;

bool is_small_file(const std::string& path) {
  std::error_code problem;
  return std::filesystem::is_regular_file(path, problem) &&
         std::filesystem::file_size(path, problem) <= kMostBytes;
}

/// It tells what its run computed, which no other run does.
bool is_unique(const trace::Recording& recording) {
  return recording.status == trace::Status::kProbe || !recording.op_digests.empty() ||
         !recording.op_ns.empty();
}

}  // namespace

EarlierTrace::EarlierTrace(const std::string& path) {
  if (!is_small_file(path)) return;
  try {
    take(storage::read(path));
  } catch (const std::exception&) {
    // damaged, of a newer version, or no trace at all: the writer says so
  }
}

void EarlierTrace::take(trace::Trace trace) {
  const bool is_of_here =
      trace.producer == live::producer() && trace.environment == live::environment();
  for (trace::Step& step : trace.steps) {
    is_unique_ = is_unique_ || std::ranges::any_of(step.recordings, is_unique);
    for (trace::Recording& recording : step.recordings) {
      if (!is_of_here || recording.status != trace::Status::kTrusted) continue;
      plans_[step.name].push_back(std::move(recording));
    }
  }
}

std::vector<const trace::Recording*> EarlierTrace::plans_of(std::string_view step) const {
  std::vector<const trace::Recording*> plans;
  const auto found = plans_.find(step);
  if (found == plans_.end()) return plans;
  for (const trace::Recording& recording : found->second) plans.push_back(&recording);
  return plans;
}

void EarlierTrace::compare(std::string_view step, const trace::Recording& plan) {
  is_repeated_ = is_repeated_ || std::ranges::any_of(plans_of(step), [&](const auto* earlier) {
                   return !trace::first_difference(*earlier, plan);
                 });
}

}  // namespace steptape::session
