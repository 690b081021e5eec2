#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::tools {

/// How many ops a module issued.
struct OpCount {
  std::uint64_t forward = 0;
  std::uint64_t backward = 0;
};

/// One call of a module.
struct ModuleCall {
  std::uint32_t call = 1;
  std::size_t order = 0;  ///< among the calls of all modules by their first ops, from 1
  trace::Index first_op = 0;
  OpCount ops;
};

/// A module with its place in the tree and what its ops did.
struct ModuleNode {
  const trace::Module* module = nullptr;
  trace::Index parent = trace::kNone;  ///< in the tree's nodes
  std::vector<trace::Index> children;  ///< in the tree's nodes
  std::vector<ModuleCall> calls;       ///< those that issued ops, in order
  OpCount ops;                         ///< its own
  OpCount ops_below;                   ///< its own and those of the modules below it
  /// Parameters and module buffers that its own ops read and write, in the order in which they
  /// first do, by their paths; below the module's path where they lie there ("weight").
  std::vector<std::string> reads, writes;
};

/// One node for each of Recording::modules, in their order. It refers to `recording`, which must
/// outlive it.
std::vector<ModuleNode> module_tree(const trace::Recording& recording);

}  // namespace steptape::tools
