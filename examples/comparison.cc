#include "comparison.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace examples {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Outcome since(std::size_t steps, Outcome outcome) {
  auto& losses = outcome.losses;
  losses.erase(losses.begin(),
               losses.begin() + static_cast<std::ptrdiff_t>(std::min(steps, losses.size())));
  return outcome;
}

double mean_of_last(std::size_t count, const Outcome& outcome) {
  count = std::min(count, outcome.losses.size());
  double sum = 0;
  for (std::size_t i = outcome.losses.size() - count; i < outcome.losses.size(); ++i) {
    sum += std::bit_cast<float>(outcome.losses[i]);
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

std::string text_of(double value, int decimals, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f%s", decimals, value, unit);
  return text;
}

void print_row(const char* what, const std::string& eager, const std::string& replay) {
  std::printf("  %-26s %9s %9s\n", what, eager.c_str(), replay.c_str());
}

void print_table(const Run& eager, const Run& replayed, const steptape::Stats& stats) {
  const double eager_us = median(eager.microseconds);
  const double replay_us = median(replayed.microseconds);
  print_row("", "eager", "replay");
  print_row("us a step, median", text_of(eager_us, 0), text_of(replay_us, 0));
  if (replay_us > 0) print_row("ratio", "", text_of(eager_us / replay_us, 2, "x"));
  if (stats.variants.empty()) return;
  const auto& plan = stats.variants.front();
  print_row("ops, calls of a replay", std::to_string(plan.ops), std::to_string(plan.calls));
  print_row("bytes of temporaries", std::to_string(plan.temporary_bytes),
            std::to_string(plan.arena_bytes));
}

bool report_identity(const char* whom, const Outcome& expected, const Outcome& found) {
  const auto mismatch = digits::difference(expected, found);
  std::printf("bit-identical to %s: %s (%zu losses, %zu tensors)\n", whom,
              mismatch.empty() ? "yes" : "no", found.losses.size(), found.digests.size());
  if (!mismatch.empty()) std::printf("  %s\n", mismatch.c_str());
  return mismatch.empty();
}

bool report_replays(const steptape::Stats& stats) {
  const bool good = stats.replayed * 10 >= stats.steps * 9;
  if (!good) {
    std::printf("%ju of %ju steps were replayed: fewer than nine in ten\n",
                static_cast<std::uintmax_t>(stats.replayed),
                static_cast<std::uintmax_t>(stats.steps));
  }
  return good;
}

}  // namespace examples
