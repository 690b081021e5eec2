#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/compare/guard_list.h"

/// The pieces of guards_of, each for one sort of object.
namespace steptape::trace {

/// Guards in the making.
class GuardList {
 public:
  /// What the guards that follow look at.
  void begin(std::string object, std::span<const std::string> aliases = {});
  /// A guard of it, whose path goes on with `suffix`.
  void add(GuardKind kind, std::string_view suffix, std::string expected,
           std::string also_holds = {});
  void append(GuardList other);
  std::vector<Guard> take() { return std::move(guards_); }

 private:
  std::string object_;
  std::span<const std::string> aliases_;
  std::vector<Guard> guards_;
};

/// Buffers that a guard has met already, by id: another tensor on one must lie in the same memory.
using Met = std::vector<bool>;

void add_modules(GuardList& list, const Recording& recording);
void add_tracked(GuardList& list, const Recording& recording, Met& met);
void add_inputs(GuardList& list, const Recording& recording, Met& met);
/// Those that are no tensors.
void add_number_inputs(GuardList& list, const Recording& recording);
void add_ambient(GuardList& list, const Recording& recording);
void add_declared(GuardList& list, const Recording& recording);
void add_optimizers(GuardList& list, const Recording& recording);
void add_predicates(GuardList& list, const Recording& recording);
/// Tensors outside the step that nobody tracked, and inputs that may not lie over memory that the
/// step writes.
void add_memory(GuardList& list, const Recording& recording);
/// What is checked in mid-run: values that the step reads, and predicates that wait for one.
void add_reads(GuardList& list, const Recording& recording);

inline std::string words_of(bool value) { return value ? "true" : "false"; }

}  // namespace steptape::trace
