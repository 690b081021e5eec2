#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "trace/model.h"

namespace steptape::tools {

/// What a process that has ended left behind.
struct Outcome {
  int exit_code = -1;  ///< -1 when a signal ended it
  std::string out;
  std::string err;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

/// Runs `program` with `arguments`, its outputs going to files in `folder`.
Outcome run_program(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                    const std::filesystem::path& folder, const Environment& environment = {});

/// What tests/tools/golden/ holds under this name.
std::string golden(const std::string& name);

/// The built `steptape` and a folder with a trace, run.tape.
class ToolTest : public testing::Test {
 protected:
  ToolTest();
  ~ToolTest() override;

  Outcome steptape(const std::vector<std::string>& arguments,
                   const Environment& environment = {}) const {
    return run_program(STEPTAPE_TOOL, arguments, folder_, environment);
  }
  /// Flips a bit of the file's byte `at`, counted from the end where it is negative.
  void flip(std::int64_t at) const;
  void cut(std::uintmax_t bytes) const { std::filesystem::resize_file(path_, bytes); }
  void rewrite(const trace::Trace& trace) const;

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

}  // namespace steptape::tools
