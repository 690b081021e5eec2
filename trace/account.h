#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace steptape::trace {

/// Why calls of a step were not replayed: a refusal, or a guard that they fell back for.
struct Reason {
  bool is_refusal = false;
  std::string code;    ///< of a refusal, "host_read"; of a guard its kind, "shape"
  std::string text;    ///< one sentence without a final stop; of a guard with its kind
  std::string where;   ///< op and module, "aten::item, model.fc1"; or empty
  std::string place;   ///< the program's own line, "/home/me/train.py:41"; or empty
  std::string source;  ///< what stands there; or empty
  std::string remedy;  ///< what to change; or empty
  std::uint64_t times = 0;
  friend bool operator==(const Reason&, const Reason&) = default;
};

/// What became of the calls of a step.
struct Account {
  std::uint64_t recorded = 0;
  std::uint64_t trials = 0;
  std::uint64_t audits = 0;
  std::uint64_t replayed = 0;
  std::uint64_t eager = 0;
  std::vector<Reason> reasons;  ///< guards, then refusals, each most frequent first
  friend bool operator==(const Account&, const Account&) = default;

  std::uint64_t calls() const { return recorded + trials + audits + replayed + eager; }
};

/// "step "train" (train.py:41): 100 calls: 3 recorded, 1 trials, 0 audits, 96 replayed, 0 eager".
std::string heading_of(std::string_view step, std::string_view place, const Account& account);
/// Lines for people, the first two columns in: how often and why, the source line, the remedy.
std::string lines_of(const Reason& reason);
/// A line of a file without the folders: "train.py:41"; other places as they are.
std::string_view short_place(std::string_view place);

}  // namespace steptape::trace
