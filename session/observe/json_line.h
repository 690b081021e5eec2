#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace steptape::session {

/// One JSON object on one line, built field by field. Text is taken as UTF-8; each byte that is no
/// part of a character becomes U+FFFD, so that the line is well-formed whatever a path or a message
/// holds. Keys are names of the code's own and written as they are.
class JsonLine {
 public:
  void add_text(std::string_view key, std::string_view value);
  void add_count(std::string_view key, std::uint64_t value);
  /// A number that is not finite becomes null.
  void add_real(std::string_view key, double value);
  /// The object, without an end of line.
  std::string text() const { return "{" + fields_ + "}"; }

 private:
  void add_key(std::string_view key);

  std::string fields_;
};

}  // namespace steptape::session
