#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <string>
#include <vector>

#include "live/objects.h"
#include "trace/model.h"

namespace steptape::recorder {

/// Watches the states of the tracked generators, because setting one is not an op. A state at a
/// random op that is not the one the last random op left was set in between.
class GeneratorWatch {
 public:
  explicit GeneratorWatch(const live::Objects& objects);

  /// The path of a generator that an op names; empty: it is not watched.
  std::string path_of(const at::Generator& generator) const;
  bool watches(const std::string& path) const;

  std::optional<trace::Seek> before_draw(const std::string& path, trace::Index op);
  void after_draw(const std::string& path, trace::Index op);
  /// Generators that were set after their last draw.
  std::vector<trace::Seek> at_end(trace::Index ops);

 private:
  struct Watched {
    std::string path;
    at::Generator generator;
    trace::Digest state;
    /// Those it had before, with the op whose draw left them; kNone: when the step began.
    std::vector<std::pair<trace::Digest, trace::Index>> earlier;
  };
  Watched* find(const std::string& path);
  static std::optional<trace::Seek> compare(Watched& watched, trace::Index op);

  std::vector<Watched> watched_;
};

}  // namespace steptape::recorder
