#pragma once

#include <string>
#include <vector>

namespace steptape::trace {

/// What stands for a thing that one of two traces does not have.
inline constexpr const char* kAbsent = "absent";

/// One respect in which two traces differ.
struct Finding {
  std::string path;      ///< "model.fc1.in_features"
  std::string expected;  ///< in the first, in words; "absent"
  std::string found;     ///< in the second
  friend bool operator==(const Finding&, const Finding&) = default;

  /// "model.fc1.in_features: 784 → 512"
  std::string text() const { return path + ": " + expected + " → " + found; }
};

/// Something that can be said of one trace and compared with what is said of another.
struct Property {
  std::string object;  ///< what it belongs to: "model.fc1"
  std::string path;
  std::string words;
};

/// Whether both sides have what it tells of.
bool is_in_both(const Finding& finding) noexcept;

/// Properties of one path that differ, in the order of `a`, then those that `b` alone has. Of an
/// object that one side lacks, its first property stands for all.
std::vector<Finding> differences(const std::vector<Property>& a, const std::vector<Property>& b);

}  // namespace steptape::trace
