#include "session/observe/fallbacks.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace steptape::session {

const CountedVerdict& Fallbacks::count(const Verdict& verdict, std::uint64_t last_held) {
  constexpr std::size_t kMost = 64;
  ++total_;
  auto entry = std::ranges::find_if(entries_, [&](const CountedVerdict& other) {
    return other.verdict.kind == verdict.kind && other.verdict.path == verdict.path;
  });
  if (entry == entries_.end()) {
    // of those that are met equally rarely the first found is the one that was met longest ago
    if (entries_.size() == kMost) {
      entries_.erase(std::ranges::min_element(entries_, {}, &CountedVerdict::times));
    }
    entries_.push_back({verdict, 1, last_held});
    return entries_.back();
  }
  entry->verdict = verdict;
  entry->last_held = last_held;
  ++entry->times;
  std::rotate(entry, entry + 1, entries_.end());
  return entries_.back();
}

std::vector<CountedVerdict> Fallbacks::by_frequency() const {
  std::vector<CountedVerdict> sorted(entries_.rbegin(), entries_.rend());
  std::ranges::stable_sort(sorted, std::greater<>(), &CountedVerdict::times);
  return sorted;
}

std::string text_of(const Verdict& verdict, std::uint64_t last_held) {
  const std::string kind =
      verdict.kind == GuardKind::kNone ? "" : std::string(name_of(verdict.kind)) + ": ";
  const std::string held = last_held == 0 ? "never held"
                           : last_held == 1
                               ? "held until 1 call ago"
                               : "held until " + std::to_string(last_held) + " calls ago";
  return kind + verdict.text() + " (" + held + ")";
}

std::string text_of(const std::vector<VariantVerdict>& verdicts) {
  std::string text;
  for (const VariantVerdict& of : verdicts) {
    text += (text.empty() ? "variant " : "; variant ") + std::to_string(of.variant) + ": " +
            text_of(of.verdict, of.last_held);
  }
  return text;
}

}  // namespace steptape::session
