#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "python/engine/python.h"

namespace steptape::python {

class Plain;

/// Another one after each change of the dict, in all dicts of the process; 0 where Python keeps
/// none.
std::uint64_t version_of(PyObject* dict);

/// Remembers that a dict was found as it was, so that the next look costs one comparison while
/// nothing was set in it or removed from it: CPython before 3.13 counts such changes (PEP 509).
/// Where it does not, nothing is ever remembered, and every look is a whole one.
class DictMemo {
 public:
  /// Whether the dict is as it was; nullopt where that takes a whole look.
  std::optional<bool> same(PyObject* dict) const;

  /// A whole look begins; `add` each value whose content may change without the dict's doing, or
  /// for which another object may stand by now (Roots::replace), and `keep` the dict when all was
  /// found as it was.
  void begin() { version_ = 0, dicts_.clear(), nested_.clear(); }
  void add(const Plain& plain, PyObject* now);
  void keep(PyObject* dict);
  bool is_of(PyObject* dict) const { return version_ != 0 && version_ == version_of(dict); }

 private:
  std::uint64_t version_ = 0;  ///< 0: none remembered
  /// Dicts in the dict, and in those, that are remembered too; each keeps those after it alive
  /// while it does not change.
  struct Inner {
    PyObject* dict;
    std::uint64_t version;
    const Plain* plain;  ///< what it is compared with
  };
  std::vector<Inner> dicts_;
  /// Other values as they were, and the objects that stand there now.
  std::vector<std::pair<const Plain*, PyObject*>> nested_;
};

}  // namespace steptape::python
