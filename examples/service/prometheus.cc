#include "prometheus.h"

#include <fmt/format.h>

namespace service {
namespace {

class Text {
 public:
  void kind(const char* name, const char* type, const char* help) {
    text_ += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }
  template <typename Number>
  void value(const std::string& series, Number number) {
    text_ += fmt::format("{} {}\n", series, number);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_latency(Text& text, const steptape::StepMetrics& step) {
  const steptape::LatencyHistogram& latency = step.latency;
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < latency.bounds_us.size(); ++i) {
    below += latency.counts[i];
    text.value(fmt::format("steptape_step_seconds_bucket{{step=\"{}\",le=\"{}\"}}", step.step,
                           latency.bounds_us[i] / 1e6),
               below);
  }
  text.value(fmt::format("steptape_step_seconds_bucket{{step=\"{}\",le=\"+Inf\"}}", step.step),
             latency.count());
  text.value(fmt::format("steptape_step_seconds_sum{{step=\"{}\"}}", step.step),
             latency.sum_us / 1e6);
  text.value(fmt::format("steptape_step_seconds_count{{step=\"{}\"}}", step.step), latency.count());
}

}  // namespace

std::string prometheus_text(const steptape::PlayerMetrics& metrics,
                            const steptape::PlayerMemory& memory, std::uint64_t learned) {
  Text text;
  text.kind("steptape_calls_total", "counter", "Calls of a step, by what became of them.");
  for (const steptape::StepMetrics& step : metrics.steps) {
    const auto count = [&](const char* outcome, std::uint64_t calls) {
      text.value(
          fmt::format("steptape_calls_total{{step=\"{}\",outcome=\"{}\"}}", step.step, outcome),
          calls);
    };
    count("ran", step.ran);
    count("refused", step.refused);
    count("failed", step.failed);
  }
  text.kind("steptape_step_seconds", "histogram", "Time of calls that ran.");
  for (const steptape::StepMetrics& step : metrics.steps) add_latency(text, step);
  text.kind("steptape_learned_steps", "gauge", "Steps learned on the state that is served.");
  text.value("steptape_learned_steps", learned);
  text.kind("steptape_published_total", "counter", "Versions of the weights that were published.");
  text.value("steptape_published_total", metrics.published);
  text.kind("steptape_snapshots_total", "counter", "Snapshots written.");
  text.value("steptape_snapshots_total", metrics.snapshots);
  text.kind("steptape_snapshots_failed_total", "counter", "Snapshots that could not be written.");
  text.value("steptape_snapshots_failed_total", metrics.failed_snapshots);
  text.kind("steptape_memory_bytes", "gauge", "Memory of the player that learns.");
  text.value("steptape_memory_bytes{kind=\"state\"}", memory.state);
  text.value("steptape_memory_bytes{kind=\"arenas\"}", memory.arenas);
  text.value("steptape_memory_bytes{kind=\"constants\"}", memory.constants);
  text.value("steptape_memory_bytes{kind=\"published\"}", memory.published);
  return text.take();
}

}  // namespace service
