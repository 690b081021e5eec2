#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::live {

enum class ModuleOptionKind {
  kOption,  ///< an option proper: "options.p", "options_base.num_layers"
  /// Another public member that `forward` reads: a parameter, a module buffer or a sub-module by
  /// the handle that the C++ class has of it, or what the constructor made of the options.
  kMember,
};

/// One option of a module of LibTorch's, or another public member that its `forward` reads: where
/// it stands in the live module, and how to say it. While recording, the values are noted; while
/// replaying, a plan holds as long as the bytes are those that they were. All of it is good while
/// the module lives.
struct ModuleOption {
  std::string name;  ///< as a program spells it: "options.p", "weight"
  ModuleOptionKind kind;
  const void* object;  ///< the live one

  /// The live object at `object` in trace's words, as it is now. Tensors, modules and functions are
  /// Opaque, and None where there is none: two of them may read alike and still differ in bytes.
  trace::Value (*read)(const void* object);

  /// To be compared in this order, up to the first that differs: the object's own bytes, then what
  /// it points to, which is there as long as the bytes before are the same. Of a tensor, a module
  /// or a function no more than the object's own bytes: they say which one it is. Bytes may differ
  /// where values do not, but only once somebody has assigned to the object.
  std::vector<std::span<const std::byte>> bytes;
};

/// The options and members of a module of one of LibTorch's classes, or of a class derived from
/// one, in a fixed order; empty for any other. What no one can see from outside is not among them:
/// what a function option holds by pointer, the function of an nn::Functional, another tensor or
/// module at the address of one that died since, and members of a derived class.
std::vector<ModuleOption> module_options(const torch::nn::Module& module);

/// The options proper by name, as they are now.
std::vector<trace::NamedValue> option_values(const torch::nn::Module& module);

}  // namespace steptape::live
