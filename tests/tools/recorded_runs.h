#pragma once

#include <filesystem>
#include <vector>

#include "tests/tools/process.h"
#include "tests/trace/fake_run.h"

namespace steptape::tools {

/// Traces of a made-up training, whose recordings hold digests of their ops, and ledgers.
class RecordedRunsTest : public ToolTest {
 protected:
  struct Call {
    std::uint64_t number = 0;
    test::FakeRun run = {};
    bool has_digests = true;
    std::uint32_t ns = 0;  ///< of each op; 0 where nobody took times
  };

  RecordedRunsTest() { write(path_, {{3}}); }

  /// A trace of step "train", with a recording of each call.
  static void write(const std::filesystem::path& path, const std::vector<Call>& calls);
  /// A ledger beside it, of 20 calls; from `first_other` on, results and parameters are others.
  static void write_ledger(const std::filesystem::path& path, std::uint64_t first_other = 21);

  std::filesystem::path other_ = folder_ / "other.tape";
  std::filesystem::path again_ = folder_ / "again.tape";
};

}  // namespace steptape::tools
