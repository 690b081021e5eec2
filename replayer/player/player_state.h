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
  std::map<std::string, at::Generator> generators_;
  at::Tensor default_generator_;
};

}  // namespace steptape::replayer
