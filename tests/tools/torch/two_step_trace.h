#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/process.h"

namespace steptape::tools {

/// A trace of two steps over one tracked tensor: "grow" adds its argument to it, "sum" sums it up.
class TwoStepTrace : public testing::Test {
 protected:
  TwoStepTrace();
  ~TwoStepTrace() override;

  std::string tape(const std::string& name = "run.tape") const { return folder_ / name; }
  /// Runs `steptape`.
  Outcome run(std::vector<std::string> arguments) const;
  /// The same with --json, which must succeed.
  nlohmann::json run_json(std::vector<std::string> arguments) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace steptape::tools
