#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::replayer {

/// The memory that a player owns: parameters, module buffers, optimizer state, gradients and
/// generator states, by the paths that recordings give their buffers.
class PlayerState {
 public:
  /// Copies the bytes of `saved` into memory with the address remainders they had. Throws Error
  /// (data_loss) when a generator's state has the wrong size.
  explicit PlayerState(const std::vector<trace::Saved>& saved);

  bool holds(const std::string& path) const { return buffers_.contains(path); }
  const c10::Storage& storage(const std::string& path) const { return buffers_.at(path); }
  void put(const std::string& path, const c10::Storage& storage);
  void erase(const std::string& path) { buffers_.erase(path); }

  /// A hyperparameter, step counter, declared value or argument; null where there is none. Stays
  /// where it is as long as this object.
  trace::Value* number(const std::string& path);
  std::vector<std::string> numbers() const;
  /// Sets one that exists, keeping its kind. False where there is none of this path.
  bool set_number(const std::string& path, double value);
  /// A declared value or an argument: stays as recorded until it is set.
  void declare(const std::string& name, const trace::Value& recorded) {
    numbers_.try_emplace(name, recorded);
  }

  /// A tracked generator of the trace, the player's own. Throws Error (unsupported) when the trace
  /// holds no state for it.
  at::Generator generator(const std::string& path);

  /// What a trace of this moment holds.
  std::vector<trace::Saved> save() const;

  /// Runs ops with the player's default generator in place of the process's, which is put back.
  class DefaultGenerator {
   public:
    explicit DefaultGenerator(PlayerState& state);
    ~DefaultGenerator();
    DefaultGenerator(const DefaultGenerator&) = delete;
    DefaultGenerator& operator=(const DefaultGenerator&) = delete;

   private:
    PlayerState& state_;
    at::Tensor process_;
  };

 private:
  std::map<std::string, c10::Storage> buffers_;
  std::map<std::string, trace::Value> numbers_;
  std::map<std::string, at::Generator> generators_;
  at::Tensor default_generator_;
};

}  // namespace steptape::replayer
