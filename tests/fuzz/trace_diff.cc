#include "diff/diff.h"
#include "tests/diff/edit_script.h"
#include "tests/fuzz/edits.h"
#include "tests/fuzz/target.h"
#include "trace/compare/compare.h"

/// Two traces, one made from the other by edits that the input draws: the edit script leads there
/// and back, a trace differs in nothing of itself, and the diff is the same the other way round.
namespace steptape::fuzz {
namespace {

using namespace trace;

void require_scripts_lead_there_and_back(const Recording& a, const Recording& b) {
  const diff::OpStream x(a);
  const diff::OpStream y(b);
  const diff::StreamDiff there = diff::compare(x, y);
  const diff::EditScript script = script_of(there, x, y);
  const diff::EditScript back = script_of(diff::compare(y, x), y, x);
  require(diff::apply_script(script, ops_of(x)) == ops_of(y),
          "the script of A and B applied to A gives B");
  require(diff::apply_script(back, ops_of(y)) == ops_of(x),
          "the script of B and A applied to B gives A");
  require(diff::inverse(script) == back, "the script of B and A is the inverse one");
  require(there.edits.empty() == diff::same_stream(ops_of(x), ops_of(y)),
          "streams that differ have edits");
  require(there.edits.size() <= a.ops.size() + b.ops.size() + std::min(a.ops.size(), b.ops.size()),
          "no script is longer than to remove, insert and change all");
  std::size_t counted = 0;
  for (const diff::ModuleStat& stat : stats_of(there, x, y)) {
    counted += stat.removed + stat.inserted + stat.moved + stat.changed;
  }
  require(counted == there.edits.size(), "each edit counts for one module");
}

std::size_t differences(const diff::Diff& found) {
  std::size_t count = 0;
  for (const diff::Section section : diff::sections()) count += found.count(section);
  return count;
}

Trace trace_of(const std::vector<Recording>& recordings) {
  Trace trace;
  trace.steps.push_back({"train", "train.cc:1", recordings});
  return trace;
}

void require_same_both_ways(const Trace& a, const Trace& b) {
  const diff::Diff there = diff::compare(a, b);
  const diff::Diff back = diff::compare(b, a);
  for (const diff::Section section : diff::sections()) {
    require(there.count(section) == back.count(section),
            "as much differs the other way round: " + std::string(name_of(section)));
  }
  require(differences(diff::compare(a, a)) == 0, "a trace differs in nothing of itself");
}

/// A few variants, each from the one before it.
std::vector<Recording> draw_variants(Choices& choices) {
  std::vector<Recording> variants = {draw_recording(choices)};
  for (std::size_t left = choices.of(3); left > 0; --left) {
    variants.push_back(variants.back());
    edit(variants.back(), choices);
  }
  return variants;
}

}  // namespace
}  // namespace steptape::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace steptape::fuzz;
  Choices choices({data, bytes});
  const std::vector<steptape::trace::Recording> before = draw_variants(choices);
  std::vector<steptape::trace::Recording> after = before;
  constexpr int kMostEdits = 64;
  for (int left = kMostEdits; left > 0 && !choices.is_done(); --left) {
    edit(after[choices.of(after.size())], choices);
  }
  for (std::size_t i = 0; i < before.size(); ++i) {
    require_scripts_lead_there_and_back(before[i], after[i]);
    steptape::trace::first_difference(before[i], after[i]);
  }
  require_same_both_ways(trace_of(before), trace_of(after));
  return 0;
}
