#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "live/foreign.h"
#include "trace/model.h"

/// The objects a user tracked, and what they hold at one moment.
namespace steptape::live {

/// A tensor reached from a tracked object. Holds a handle: the tensor lives as long as the
/// snapshot.
struct TensorAt {
  std::string path;
  trace::Role role;
  at::Tensor tensor;                      ///< undefined: a gradient that is None
  std::vector<std::string> aliases = {};  ///< trace::Tracked::aliases
  bool in_state_dict = true;              ///< trace::Tracked::in_state_dict
};

struct ModuleAt {
  std::string path;
  const torch::nn::Module* module;  ///< null: one of another language
  std::string foreign_type;         ///< of such a one
  bool training;
  std::vector<std::string> aliases = {};  ///< trace::Module::aliases

  /// "torch::nn::LinearImpl"; of another language, as its front end calls it.
  std::string type() const;
};

/// What all tracked objects held at one moment, in a fixed order: parameters, module buffers,
/// optimizer state, tracked tensors, then gradients (one entry for each parameter that requires
/// one). A tensor or module that several paths reach stands once, under the first; the others are
/// its aliases. Positions in optimizers' parameter groups are none: the layouts hold them.
struct Snapshot {
  std::vector<TensorAt> tensors;
  std::vector<ModuleAt> modules;
  /// TensorRefs in the layouts are positions in `tensors`.
  std::vector<trace::OptimizerLayout> optimizers;

  ska::flat_hash_map<const c10::TensorImpl*, std::size_t> positions;  ///< of `find`

  /// Position in `tensors` of what `tensor` is (same TensorImpl), or -1.
  std::int64_t find(const at::Tensor& tensor) const;
  /// Its path; empty for a tensor that is not among them.
  std::string path_of(const at::Tensor& tensor) const;
};

/// Module, optimizers, tensors and generators by the names the user gave them. A module held by a
/// shared_ptr is held weakly and its death noticed; objects given by reference must outlive the
/// last step. Not thread-safe.
class Objects {
 public:
  Objects();
  ~Objects();
  Objects(Objects&&) noexcept;
  Objects& operator=(Objects&&) noexcept;

  /// Each throws Error (invalid_argument) when the name is taken, empty, or holds anything but
  /// letters, digits and '_'.
  void track(std::string name, torch::nn::Module& module);
  void track(std::string name, std::shared_ptr<torch::nn::Module> module);
  void track(std::string name, torch::optim::Optimizer& optimizer);
  void track(std::string name, std::shared_ptr<torch::optim::Optimizer> optimizer);
  /// Objects of another language: a tree of modules, an optimizer, or anything else that plans
  /// depend on.
  void track(std::string name, std::shared_ptr<const Foreign> object);
  void track(std::string name, at::Tensor tensor);
  void track(std::string name, at::Generator generator);

  /// Throws Error (failed_precondition) that names a tracked object that no longer exists.
  Snapshot snapshot() const;
  void check_alive() const;

  /// Optimizers by path, for guards; and generators: "default" is LibTorch's CPU generator,
  /// "default.cuda:0" that of a device on which a tracked tensor lies.
  std::vector<std::pair<std::string, torch::optim::Optimizer*>> optimizers() const;
  std::vector<std::pair<std::string, at::Generator>> generators() const;
  std::vector<std::pair<std::string, std::shared_ptr<const Foreign>>> foreign() const;
  /// Addresses that identify the tracked modules, optimizers and tensors in this process.
  std::vector<const void*> identities() const;

  /// The names tracked, with their kinds: "model (module), optimizer (torch::optim::SGD)".
  std::string text() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// A hyperparameter of one group that is a number, where it lies in the group's options.
struct NumberField {
  std::string name;
  const void* address;
  bool is_flag;  ///< a bool, which counts as 0 or 1; else a double

  double value() const {
    return is_flag ? static_cast<double>(*static_cast<const bool*>(address))
                   : *static_cast<const double*>(address);
  }
};

/// All of them, flat and in a fixed order that depends on the class of the options alone: a pair
/// counts as two ("betas[0]", "betas[1]"). Valid as long as the options object is. None for an
/// options class that this build does not know.
std::vector<NumberField> number_fields(const torch::optim::OptimizerParamGroup& group);

/// The hyperparameters of one group by name, in declaration order; empty for an optimizer whose
/// options class is unknown.
std::vector<trace::NamedValue> hyperparameters_of(const torch::optim::OptimizerParamGroup& group);

/// A module or optimizer by name: borrowed, or watched through a weak pointer.
template <typename Object>
struct NamedObject {
  std::string name;
  Object* object;
  std::optional<std::weak_ptr<Object>> owner;  ///< none for an object given by reference

  bool is_alive() const { return !owner || !owner->expired(); }
};

/// An object of another language; which of the three kinds is told by which pointer is set.
struct NamedForeign {
  std::string name;
  std::shared_ptr<const Foreign> object;
  const ForeignModules* modules = nullptr;
  const ForeignOptimizer* optimizer = nullptr;
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct NamedGenerator {
  std::string name;
  at::Generator generator;
};

/// What Objects holds; "default" is the first generator.
struct Objects::Impl {
  std::vector<NamedObject<torch::nn::Module>> modules;
  std::vector<NamedObject<torch::optim::Optimizer>> optimizers;
  std::vector<NamedForeign> foreign;
  std::vector<NamedTensor> tensors;
  std::vector<NamedGenerator> generators;
  std::vector<const void*> order;  ///< identities, in the order of tracking
};

}  // namespace steptape::live
