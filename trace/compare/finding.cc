#include "trace/compare/finding.h"

#include <map>
#include <unordered_set>
#include <utility>

namespace steptape::trace {
namespace {

/// A path, and which of the properties that have it.
using Key = std::pair<std::string, std::size_t>;

std::vector<Key> keys_of(const std::vector<Property>& properties) {
  std::map<std::string, std::size_t> seen;
  std::vector<Key> keys;
  keys.reserve(properties.size());
  for (const Property& property : properties) {
    keys.emplace_back(property.path, seen[property.path]++);
  }
  return keys;
}

std::unordered_set<std::string> objects_of(const std::vector<Property>& properties) {
  std::unordered_set<std::string> objects;
  for (const Property& property : properties) objects.insert(property.object);
  return objects;
}

}  // namespace

bool is_in_both(const Finding& finding) noexcept {
  return finding.expected != kAbsent && finding.found != kAbsent;
}

std::vector<Finding> differences(const std::vector<Property>& a, const std::vector<Property>& b) {
  const std::vector<Key> keys_a = keys_of(a);
  const std::vector<Key> keys_b = keys_of(b);
  const auto objects_a = objects_of(a);
  const auto objects_b = objects_of(b);
  std::map<Key, std::size_t> left;
  for (std::size_t i = 0; i < b.size(); ++i) left.emplace(keys_b[i], i);
  std::unordered_set<std::string> told;
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto found = left.find(keys_a[i]);
    if (found != left.end()) {
      const std::string& other = b[found->second].words;
      if (a[i].words != other) findings.push_back({a[i].path, a[i].words, other});
      left.erase(found);
    } else if (objects_b.contains(a[i].object) || told.insert(a[i].object).second) {
      findings.push_back({a[i].path, a[i].words, kAbsent});
    }
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (!left.contains(keys_b[i])) continue;
    if (objects_a.contains(b[i].object) || told.insert(b[i].object).second) {
      findings.push_back({b[i].path, kAbsent, b[i].words});
    }
  }
  return findings;
}

}  // namespace steptape::trace
