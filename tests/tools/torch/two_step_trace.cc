#include "tests/tools/torch/two_step_trace.h"

#include <ATen/ATen.h>
#include <steptape/steptape.h>
#include <unistd.h>

namespace steptape::tools {

TwoStepTrace::TwoStepTrace()
    : folder_(std::filesystem::temp_directory_path() /
              ("steptape_two_steps_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
  std::filesystem::create_directories(folder_);
  at::Tensor total = at::zeros({4});
  Options options;
  options.verify.rate = 0;
  Session session(options);
  session.track("total", total);
  auto grow = session.wrap("grow", [&](at::Tensor x) { return total.add_(x).sum(); });
  auto sum = session.wrap("sum", [&] { return total.sum(); });
  for (int i = 0; i < 4; ++i) {
    grow(at::ones({4}));
    sum();
  }
  session.save(tape());
}

TwoStepTrace::~TwoStepTrace() { std::filesystem::remove_all(folder_); }

Outcome TwoStepTrace::run(std::vector<std::string> arguments) const {
  return run_program(STEPTAPE_TOOL, arguments, folder_);
}

nlohmann::json TwoStepTrace::run_json(std::vector<std::string> arguments) const {
  arguments.emplace_back("--json");
  const Outcome outcome = run(std::move(arguments));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out);
}

}  // namespace steptape::tools
