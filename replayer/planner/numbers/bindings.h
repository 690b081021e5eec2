#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/model.h"
#include "trace/numbers.h"

namespace steptape::replayer {

/// Hyperparameters, counters, arguments, host values and host reads by the paths that leaves of
/// them have.
using Numbers = std::unordered_map<std::string, double>;

/// What they were when the recording was made: at entry, reads as they came.
Numbers numbers_at(const trace::Recording& recording);
/// Those of the leaves; 0 for what is not among them.
std::vector<double> numbers_of(const std::vector<trace::Leaf>& leaves, const Numbers& numbers);

/// Fills the leaves, formulas and scalars of a recording, each leaf and formula once.
class Bindings {
 public:
  explicit Bindings(trace::Recording& recording);

  trace::Index leaf(trace::LeafKind kind, const std::string& path);
  trace::Index formula(const trace::Formula& formula);
  /// The number at this place of the recording is what `formula` gives. A place is bound once.
  /// The position of the formula.
  trace::Index bind(trace::ScalarSite site, const trace::Formula& formula);
  bool is_bound(const trace::ScalarSite& site) const;
  void require(const trace::Formula& formula, bool is_nonzero);
  void advance(const std::string& path, std::int64_t by = 1);
  /// What `formula` gave when the recording was made.
  double recorded(const trace::Formula& formula) const;
  /// Whether that is the very number that stands at `site`.
  bool gives_recorded(const trace::Formula& formula, const trace::ScalarSite& site) const;

 private:
  /// The op, its argument and the item of that; or none, and a buffer.
  using Place = std::array<trace::Index, 3>;
  static Place place_of(const trace::ScalarSite& site);
  using Key = std::vector<std::uint64_t>;
  static Key key_of(const trace::Formula& formula);
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  trace::Recording& recording_;
  Numbers numbers_;
  std::vector<double> values_;  ///< of the leaves
  trace::Elements elements_;
  std::map<std::pair<trace::LeafKind, std::string>, trace::Index> leaves_;
  std::unordered_map<Key, trace::Index, Hash> formulas_;
  std::set<Place> places_;
  std::set<std::pair<trace::Index, bool>> required_;       ///< by formula: whether it is not zero
  std::unordered_map<std::string, std::size_t> advances_;  ///< positions by path
};

/// What each leaf was when the recording was made: hyperparameters, counters, arguments and host
/// values at entry, host reads as they came.
std::vector<double> recorded_leaves(const trace::Recording& recording);

/// The number at `site`, as recorded: of an op's argument, or the element of a host-made tensor.
trace::Value recorded_number(const trace::Elements& elements, const trace::ScalarSite& site);
/// The same where `site` is of an op's argument.
trace::Value recorded_argument(const trace::Recording& recording, const trace::ScalarSite& site);

/// Of each of Recording::leaves the host read that gives it, by its position in Recording::reads;
/// kNone: it is none of those.
std::vector<trace::Index> reads_of_leaves(const trace::Recording& recording);

}  // namespace steptape::replayer
