#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::session {

/// Who runs a session, so that its files can be told from those of other runs and of other
/// processes of the same run.
struct RunIdentity {
  std::string host;
  std::int64_t pid = 0;
  std::int64_t start_unix_ns = 0;
  std::uint64_t seed = 0;  ///< of LibTorch's CPU generator, when the session began
  /// Of a process of several: as torchrun, Open MPI, Slurm or a PMI launcher tells it in the
  /// environment.
  std::optional<std::int64_t> rank = {};
  std::int64_t world = 1;
  std::string job = {};  ///< of the launcher or scheduler; empty where there is none
  /// The command line of the process, as a shell takes it, and the folder that it was in when the
  /// session began. Empty where the system does not tell, where it is longer than a page, and where
  /// a launcher, or another process of the program, started this one.
  std::string command = {};
  std::string folder = {};

  /// Of this process, now.
  static RunIdentity now();

  /// "host", "pid", "start_unix_s", "seed", and "rank", "world", "job", "command", "folder" where
  /// there are such.
  std::vector<trace::Fact> facts() const;
  /// Stands for the run.
  trace::Digest digest() const;
  /// `path` as this process of several has it, "run.tape" → "run.rank3.tape"; alone, as it is.
  std::string own(const std::string& path) const;
};

}  // namespace steptape::session
