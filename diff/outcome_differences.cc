#include <fmt/format.h>

#include <unordered_set>

#include "diff/sections.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::diff {
namespace {

class Properties {
 public:
  explicit Properties(const trace::Recording& recording) : recording_(recording) {}

  std::vector<trace::Property> take() {
    add_results();
    add_reads();
    add_seeks();
    for (const trace::Effect& effect : recording_.effects)
      add("effect " + effect.name, effect.value);
    for (std::size_t i = 0; i < recording_.updates.size(); ++i) {
      add(fmt::format("updates[{}]", i), recording_.updates[i]);
    }
    return std::move(properties_);
  }

  /// Those of objects, which are told elsewhere where one side lacks them.
  std::vector<trace::Property> take_of_objects() {
    add_gradients();
    add_roles();
    return std::move(properties_);
  }

 private:
  void add(std::string path, std::string words) {
    properties_.push_back({path, path, std::move(words)});
  }

  void add_results() {
    for (std::size_t i = 0; i < recording_.results.size(); ++i) {
      add(fmt::format("results[{}]", i), words_of_geometry(recording_, recording_.results[i]));
    }
    add("results for observers", std::to_string(recording_.observed));
    for (std::size_t i = 0; i < recording_.numbers.size(); ++i) {
      const trace::Number& number = recording_.numbers[i];
      const bool follows = number.op != trace::kNone || number.formula != trace::kNone;
      add(fmt::format("numbers[{}]", i), follows ? "a number of the step" : words_of(number.value));
    }
  }

  void add_gradients() {
    for (const trace::ExitGradient& gradient : recording_.exit_gradients) {
      add(gradient.path() + " at exit", words_of_geometry(recording_, gradient.tensor));
    }
  }

  void add_reads() {
    for (std::size_t i = 0; i < recording_.reads.size(); ++i) {
      const trace::HostRead& read = recording_.reads[i];
      std::string words(name_of(read.use));
      if (read.use == trace::ReadUse::kChecked && !recording_.ops[read.op].outputs.empty()) {
        words += ": " + words_of(recording_.ops[read.op].outputs.front());
      }
      add(fmt::format("reads[{}]", i), std::move(words));
    }
  }

  void add_seeks() {
    for (const trace::Seek& seek : recording_.seeks) {
      add("generator " + seek.generator,
          seek.is_earlier ? "set back" : "set to " + text_of(seek.state));
    }
  }

  void add_roles() {
    std::unordered_set<std::string> known;
    for (const trace::Buffer& buffer : recording_.buffers) {
      if (buffer.path.empty() || trace::is_outside_path(buffer.path)) continue;
      const std::string role(name_of(buffer.role));
      if (known.insert(buffer.path + " " + role).second) add(buffer.path + " (role)", role);
    }
  }

  const trace::Recording& recording_;
  std::vector<trace::Property> properties_;
};

}  // namespace

std::vector<trace::Finding> outcome_differences(const trace::Recording& a,
                                                const trace::Recording& b) {
  std::vector<trace::Finding> findings = differences(Properties(a).take(), Properties(b).take());
  for (trace::Finding& finding :
       differences(Properties(a).take_of_objects(), Properties(b).take_of_objects())) {
    if (is_in_both(finding)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace steptape::diff
