#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "live/foreign.h"
#include "python/engine/module_watch.h"
#include "python/engine/optimizer_watch.h"
#include "python/engine/slots.h"
#include "python/engine/type_watch.h"

namespace steptape::python {

/// A Python object that plans depend on. Before a probe it captures what it holds; from that the
/// guards of a plan are made, and the changes that the step made to it.
class Watched {
 public:
  virtual ~Watched() = default;
  /// Numbers that have moved since it was captured last are noted.
  virtual void capture() = 0;
  virtual std::vector<HostChange> changes(const std::string& name) const = 0;
  /// Lets go of what was captured.
  virtual void forget() = 0;
};

/// A torch.nn.Module and all below it. Held weakly, so that its death is noticed.
class Modules final : public live::ForeignModules, public Watched {
 public:
  Modules(Roots& roots, MovingPlaces& moving, PyObject* root);
  const void* identity() const override { return root_; }
  bool is_alive() const override;
  std::unique_ptr<live::ForeignWatch> watch(const live::PathOf& path_of) const override;
  std::vector<live::ForeignModule> modules() const override;
  void capture() override;
  void forget() override { captured_.reset(); }
  std::vector<HostChange> changes(const std::string& name) const override;
  /// `reads` tells which attributes of a module the recording that has ended has read: plans depend
  /// on no others.
  using Reads = std::function<AttributeReads(PyObject* module)>;
  void compare_only(const Reads& reads);

  struct At {
    std::string path;
    PyObject* module;
    std::vector<std::string> aliases;
  };
  /// The tree, parents before children, each module once.
  std::vector<At> tree() const;

 private:
  Roots& roots_;
  MovingPlaces& moving_;
  PyObject* root_;
  Root weak_;
  mutable TypeWatches::Kept types_;
  struct Captured;
  std::shared_ptr<Captured> captured_;
};

/// What recordings have seen of an optimizer. One whose step() none has seen, while others changed
/// its state, is idle: plans have to do with its groups alone.
struct OptimizerUse {
  bool is_stepped = false;
  bool is_idle = false;
  bool has_news = false;  ///< it has begun or ceased to be idle
};

/// A torch.optim.Optimizer.
class Optimizer final : public live::ForeignOptimizer, public Watched {
 public:
  Optimizer(Roots& roots, MovingPlaces& moving, OptimizerUse& use, PyObject* optimizer);
  const void* identity() const override { return optimizer_; }
  bool is_alive() const override;
  std::unique_ptr<live::ForeignWatch> watch(const live::PathOf& path_of) const override;
  std::string type() const override;
  std::vector<Group> groups() const override;
  std::vector<State> state() const override;
  void set_number(const at::Tensor& parameter, const std::string& key,
                  const trace::Value& value) const override;
  /// Numbers in the state of parameters, each: (dict, key, path).
  py::list numbers(const std::string& name, const live::PathOf& path_of) const;
  void capture() override;
  void forget() override { captured_.reset(); }
  std::vector<HostChange> changes(const std::string& name) const override;

  PyObject* object() const { return optimizer_; }
  /// Whether `dict` is one of its groups, or holds the state of a parameter.
  bool holds(PyObject* dict) const;
  /// Which of its groups `dict` is.
  std::optional<Py_ssize_t> group_of(PyObject* dict) const;
  /// The step has called its step().
  void note_step();

 private:
  /// Calls `visit(owner, items)` for the dict of each entry of `state`, both borrowed.
  template <typename Visit>
  void for_each_state(Visit&& visit) const;

  Roots& roots_;
  MovingPlaces& moving_;
  PyObject* optimizer_;
  std::string type_;  ///< asked for where Python may not be entered
  OptimizerUse& use_;
  Root weak_;
  mutable TypeWatches::Kept types_;
  struct Captured;
  std::shared_ptr<Captured> captured_;
};

/// Places of the program that the step reads and writes, as the newest probe has seen them: what
/// they held, and the tensors in them, which are tracked.
class HostState final : public live::ForeignModules, public Watched {
 public:
  HostState(Roots& roots, MovingPlaces& moving) : roots_(roots), moving_(moving) {}
  /// A place that holds tensors.
  void add(Slot slot) { tensors_.push_back(std::move(slot)); }
  /// What a probe has seen. Gives whether there are tensors in it that were not tracked while it
  /// ran.
  bool take(std::shared_ptr<SlotWatch> seen);
  /// What the newest probe has seen, or null.
  const SlotWatch* seen() const { return captured_.get(); }
  /// What stands in a dict under `key` is guarded, too.
  void guard(const std::string& path, PyObject* dict, PyObject* key);
  const void* identity() const override { return this; }
  bool is_alive() const override { return true; }
  std::unique_ptr<live::ForeignWatch> watch(const live::PathOf& path_of) const override;
  std::vector<live::ForeignModule> modules() const override;
  void capture() override;
  void forget() override { captured_.reset(); }
  std::vector<HostChange> changes(const std::string& name) const override;

 private:
  bool is_tracked(const Slot& slot) const;

  Roots& roots_;
  MovingPlaces& moving_;
  std::vector<Slot> tensors_;
  std::shared_ptr<SlotWatch> captured_;
};

}  // namespace steptape::python
