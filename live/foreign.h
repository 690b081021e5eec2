#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "steptape/verdict.h"
#include "trace/model.h"

/// Objects of another language, as its front end shows them: what LibTorch's own modules and
/// optimizers are to a C++ program. A front end implements these; live/ and guards/ treat both
/// alike.
namespace steptape::live {

/// The path of a tensor that is tracked, or "".
using PathOf = std::function<std::string(const at::Tensor&)>;

/// What a plan depends on in a foreign object, as it was when this was made. Checked before every
/// replay: cheap, and runs none of the user's code.
class ForeignWatch {
 public:
  virtual ~ForeignWatch() = default;
  /// Everything but the numbers, with a path below the object's name: ".fc1.training".
  virtual Verdict check() = 0;
  /// The numbers that may change while a plan holds, by their path below the object's name:
  /// ".param_groups[0].lr". Every use that a step makes of them is known: one that it does not use
  /// may be any.
  virtual std::vector<std::string> names() const { return {}; }
  /// Their values, one for each name. Gives the position of the first that is a number of its kind
  /// no longer, or kAllRead.
  virtual std::size_t read(std::span<double>) { return kAllRead; }
  static constexpr std::size_t kAllRead = SIZE_MAX;
  /// Adds to number `k`, an integer.
  virtual void advance(std::size_t k, std::int64_t by) {
    static_cast<void>(k), static_cast<void>(by);
  }
};

/// One module of a tree.
struct ForeignModule {
  std::string path;  ///< below the root, which is "": "fc1", "blocks.0.attention"
  std::string type;
  bool training = true;
  /// Its own, by what stands after its path: "weight", or a name in quotes (trace/path.h).
  std::vector<std::pair<std::string, at::Tensor>> parameters;
  std::vector<std::pair<std::string, at::Tensor>> buffers;
  std::vector<std::string> aliases = {};  ///< other paths below the root that lead to it
  /// Names of those buffers that its state dict leaves out.
  std::vector<std::string> transient_buffers = {};
};

class Foreign {
 public:
  virtual ~Foreign() = default;
  virtual const void* identity() const = 0;
  virtual bool is_alive() const = 0;
  virtual std::unique_ptr<ForeignWatch> watch(const PathOf& path_of) const = 0;
};

class ForeignModules : public Foreign {
 public:
  /// The root first, parents before children, each once.
  virtual std::vector<ForeignModule> modules() const = 0;
};

class ForeignOptimizer : public Foreign {
 public:
  /// Names and keys as they stand in paths (trace/path.h).
  struct Group {
    std::vector<trace::NamedValue> hyperparameters;
    std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< hyperparameters that are tensors
    std::vector<at::Tensor> parameters;
  };
  struct State {
    at::Tensor parameter;
    std::string key;
    std::variant<at::Tensor, trace::Value> value;
  };
  virtual std::string type() const = 0;
  virtual std::vector<Group> groups() const = 0;
  virtual std::vector<State> state() const = 0;
  /// Sets the int or float that stands in the state of `parameter` under `key`, if one does.
  virtual void set_number(const at::Tensor& parameter, const std::string& key,
                          const trace::Value& value) const = 0;
};

}  // namespace steptape::live
