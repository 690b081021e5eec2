#pragma once

#include <cstddef>
#include <vector>

#include "python/engine/arguments.h"
#include "python/engine/python.h"
#include "recorder/frontend_hints.h"

namespace steptape::python {

/// Puts followed numbers in the places of those that a step is given, for as long as it is
/// recorded.
class FollowedArguments {
 public:
  FollowedArguments() = default;
  FollowedArguments(const FollowedArguments&) = delete;
  FollowedArguments& operator=(const FollowedArguments&) = delete;
  ~FollowedArguments() { take_back(); }

  /// Of the arguments whose first leaf is the call's `first_leaf`-th.
  void put(const Arguments& arguments, recorder::FrontendHints& hints, std::size_t first_leaf);
  /// Whether another number stands now where one of these stood, though it may be an equal one:
  /// in what the arguments hold whose first leaf is the call's `first_leaf`-th.
  bool has_others(const Arguments& now, std::size_t first_leaf) const;

  /// Puts the plain numbers back where the followed ones are still.
  void take_back();
  /// The followed ones again where take_back has put the plain ones.
  void put_again();

 private:
  struct Place {
    std::size_t leaf;  ///< of the call
    py::object holder, key, followed, plain = {};
  };
  /// Whether it is the number that was put there, or what is computed of that alone without effect.
  static bool is_as_given(const Place& place, const py::object& now);

  std::vector<Place> places_;
};

}  // namespace steptape::python
