#include "session/observe/counter_block.h"

#include <initializer_list>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "session/observe/log.h"
#include "steptape/counters.h"

namespace steptape::session {

/// Never destroyed: sessions may end after the program's own static objects.
class CounterBlock::All {
 public:
  std::mutex mutex;
  std::set<const CounterBlock*> blocks;
  Sums ended;
};

CounterBlock::All& CounterBlock::all() {
  static auto* all = new All;
  return *all;
}

CounterBlock::CounterBlock() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  all().blocks.insert(this);
}

CounterBlock::~CounterBlock() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  add_to(all().ended);
  all().blocks.erase(this);
}

void CounterBlock::add_to(Sums& sums) const {
  const auto add_all = [](const auto& cells, auto& to) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      to[i] += cells[i].load(std::memory_order_relaxed);
  };
  add_all(counts_, sums.counts);
  add_all(fallbacks_, sums.fallbacks);
  add_all(refusals_, sums.refusals);
}

CounterBlock::Sums CounterBlock::sums() {
  const std::lock_guard<std::mutex> lock(all().mutex);
  Sums sums = all().ended;
  for (const CounterBlock* block : all().blocks) block->add_to(sums);
  return sums;
}

}  // namespace steptape::session

namespace steptape {
namespace {

using session::CounterBlock;

template <typename Enum, typename Cells>
std::map<Enum, std::uint64_t> met(const Cells& cells) {
  std::map<Enum, std::uint64_t> met;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i] != 0) met.emplace(static_cast<Enum>(i), cells[i]);
  }
  return met;
}

void add_family(std::string& text, std::string_view name, std::string_view help) {
  text += "# HELP steptape_" + std::string(name) + " " + std::string(help) + "\n";
  text += "# TYPE steptape_" + std::string(name) + " counter\n";
}

void add_sample(std::string& text, std::string_view name, std::string_view label,
                std::string_view value, std::uint64_t count) {
  text += "steptape_" + std::string(name) + "{" + std::string(label) + "=\"" + std::string(value) +
          "\"} " + std::to_string(count) + "\n";
}

void add_counter(std::string& text, std::string_view name, std::string_view help,
                 std::uint64_t count) {
  add_family(text, name, help);
  text += "steptape_" + std::string(name) + " " + std::to_string(count) + "\n";
}

}  // namespace

Counters counters() {
  const CounterBlock::Sums sums = CounterBlock::sums();
  const auto count = [&](CounterBlock::Count which) {
    return sums.counts[static_cast<std::size_t>(which)];
  };
  Counters counters;
  counters.recorded = count(CounterBlock::Count::kRecorded);
  counters.trials = count(CounterBlock::Count::kTrials);
  counters.audits = count(CounterBlock::Count::kAudits);
  counters.replayed = count(CounterBlock::Count::kReplayed);
  counters.eager = count(CounterBlock::Count::kEager);
  counters.steps =
      counters.recorded + counters.trials + counters.audits + counters.replayed + counters.eager;
  counters.fallbacks = met<GuardKind>(sums.fallbacks);
  counters.refusals = met<RefusalCode>(sums.refusals);
  counters.plans = count(CounterBlock::Count::kPlans);
  counters.divergences = count(CounterBlock::Count::kDivergences);
  counters.rebinds = count(CounterBlock::Count::kRebinds);
  counters.log_lines_lost = session::LogSink::lines_lost();
  return counters;
}

std::string prometheus(const Counters& counters) {
  std::string text;
  add_family(text, "calls_total", "Calls of wrapped steps by outcome.");
  for (const auto& [outcome, count] :
       std::initializer_list<std::pair<const char*, std::uint64_t>>{{"recorded", counters.recorded},
                                                                    {"trial", counters.trials},
                                                                    {"audit", counters.audits},
                                                                    {"replayed", counters.replayed},
                                                                    {"eager", counters.eager}}) {
    add_sample(text, "calls_total", "outcome", outcome, count);
  }
  add_family(text, "fallbacks_total", "Calls that no plan fitted, by the guard that failed.");
  for (const auto& [kind, count] : counters.fallbacks) {
    add_sample(text, "fallbacks_total", "kind", name_of(kind), count);
  }
  add_family(text, "refusals_total", "Calls that a refusal kept from being replayed, by code.");
  for (const auto& [code, count] : counters.refusals) {
    add_sample(text, "refusals_total", "code", name_of(code), count);
  }
  add_counter(text, "plans_total", "Plans made.", counters.plans);
  add_counter(text, "divergences_total", "Trials and audits that found other bits.",
              counters.divergences);
  add_counter(text, "rebinds_total", "Plans that took up a moved storage.", counters.rebinds);
  add_counter(text, "log_lines_lost_total", "Lines of the log that could not be written.",
              counters.log_lines_lost);
  return text;
}

}  // namespace steptape
