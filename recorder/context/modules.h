#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "live/objects.h"
#include "recorder/frontend_hints.h"
#include "trace/model.h"

namespace steptape::recorder {

/// A module's call; of no module where `call` is 0.
struct ModuleCall {
  trace::Index module = trace::kNone;
  std::uint32_t call = 0;
};

/// The tracked modules of a step: their tree, whose each buffer is, and which calls of them were
/// noted. Fills Recording::modules and Recording::module_access.
class ModuleWatch {
 public:
  explicit ModuleWatch(trace::Recording& recording) : recording_(recording) {}

  void enter(const live::Snapshot& snapshot);
  /// The buffer of the parameter or module buffer `path` belongs to the module that holds it.
  void own(trace::BufferId buffer, const std::string& path);
  /// kNone for a buffer of no module.
  trace::Index owner(trace::BufferId buffer) const;

  /// The innermost tracked module of the calls that a front end has told, whose op `op` is; the
  /// calls around it are noted too.
  ModuleCall issued_in(const std::vector<FrontendHints::ModuleCall>& open, trace::Index op);

  /// `call` and the calls around it have issued op `op`; the first is noted.
  void note(const ModuleCall& call, trace::Index op);
  /// How many calls of `module` were noted.
  std::uint32_t calls(trace::Index module) const { return calls_[module]; }
  /// The innermost module that contains both or is one of them; kNone where none does.
  trace::Index around(trace::Index a, trace::Index b) const;
  /// The first op of the modules that `module` contains; kNone before it.
  trace::Index first_below(trace::Index module) const { return first_below_[module]; }

  /// Brings what was noted into the order of first ops, outer modules before inner.
  void sort();

 private:
  trace::Index of_path(const std::string& path) const;

  trace::Recording& recording_;
  std::unordered_map<std::string, trace::Index> by_path_;
  std::vector<trace::Index> owners_;   ///< by buffer
  std::vector<trace::Index> parents_;  ///< by module; lower than the module's own
  std::vector<trace::Index> first_below_;
  std::vector<std::uint32_t> calls_;
  std::size_t newest_position_ = SIZE_MAX;  ///< of the call that issued the op before
  ModuleCall newest_;
};

/// Follows RECORD_FUNCTION's user scopes in this thread while it lives.
class ScopeWatch {
 public:
  ScopeWatch();
  ~ScopeWatch();
  ScopeWatch(const ScopeWatch&) = delete;
  ScopeWatch& operator=(const ScopeWatch&) = delete;

  /// The open user scopes of this thread, outermost first, joined by " > "; empty outside all.
  static const std::string& current() noexcept;

 private:
  at::CallbackHandle handle_;
};

}  // namespace steptape::recorder
