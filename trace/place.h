#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace steptape::trace {

/// Where in a trace a check stands: "step train, recording 0, op 17, input 1". A chain of values on
/// the stack, turned into words only when something is wrong. `outer` must outlive it.
class Place {
 public:
  Place() = default;
  Place(const Place& outer, std::string_view word) : outer_(&outer), word_(word) {}
  Place(const Place& outer, std::string_view word, std::size_t index)
      : outer_(&outer), word_(word), index_(index), has_index_(true) {}
  Place(const Place& outer, std::string_view word, std::string_view name)
      : outer_(&outer), word_(word), name_(name) {}

  /// Throws Error (data_loss): "<place>: <what>".
  [[noreturn]] void fail(std::string_view what) const;
  std::string text() const;

 private:
  const Place* outer_ = nullptr;
  std::string_view word_;
  std::string_view name_;
  std::size_t index_ = 0;
  bool has_index_ = false;
};

}  // namespace steptape::trace
