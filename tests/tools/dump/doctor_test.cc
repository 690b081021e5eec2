#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class DoctorTest : public ToolTest {
 protected:
  /// The first step with this account, and a second one that is well.
  void leave(const trace::Account& account) {
    trace::Trace trace = test::train_trace();
    trace.steps[0].name = "train";
    trace.steps[0].place = "/home/me/train.py:39";
    trace.steps[0].account = account;
    trace.steps.push_back({"eval", "train.py:50", {}, {1, 1, 0, 8, 0, {}}});
    rewrite(trace);
  }
};

TEST_F(DoctorTest, TheCommonestReasonsComeFirstWithLineAndRemedy) {
  leave(test::account());
  const Outcome outcome = steptape({"doctor", path_});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_EQ(outcome.out,
            "step \"train\" (train.py:39): 100 calls: 3 recorded, 1 trials, 2 audits, 60 replayed, "
            "34 eager\n"
            "  60.0 % replayed\n"
            "  refused 22×: host_read: item() reads t2 [aten::item, model.fc1, train.py:41]\n"
            "      train.py:41: if loss.item() > 3:\n"
            "      remedy: return the loss\n"
            "  fell back 12×: shape: x.size(0): 64 → 17 (never held)\n"
            "      remedy: pad\n"
            "\n"
            "step \"eval\" (train.py:50): 10 calls: 1 recorded, 1 trials, 0 audits, 8 replayed, 0 "
            "eager\n"
            "  80.0 % replayed\n");
}

TEST_F(DoctorTest, MostCallsOfAStepWithoutAPlanAreTrouble) {
  leave({2, 0, 0, 0, 98, test::account().reasons});
  EXPECT_EQ(steptape({"doctor", path_}).exit_code, 1);
  EXPECT_EQ(steptape({"doctor", path_, "--step", "eval"}).exit_code, 0);
}

TEST_F(DoctorTest, TenReasonsAreTold) {
  trace::Account account = test::account();
  for (std::uint64_t i = 0; i < 20; ++i) {
    account.reasons.push_back({true, "device", "number " + std::to_string(i), "", "", "", "", i});
  }
  leave(account);
  const std::string out = steptape({"doctor", path_}).out;
  EXPECT_THAT(out, HasSubstr("refused 12×: device: number 12\n"));
  EXPECT_THAT(out, testing::Not(HasSubstr("refused 10×")));
}

TEST_F(DoctorTest, CallsThatWereAllRecordedHintAtALoop) {
  leave({4, 1, 0, 0, 0, {}});
  EXPECT_THAT(steptape({"doctor", path_}).out, HasSubstr("each call was recorded"));
}

TEST_F(DoctorTest, ATraceThatDoesNotSayIsTold) {
  const Outcome outcome = steptape({"doctor", path_});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("does not say what became of its calls"));
}

TEST_F(DoctorTest, AsJson) {
  leave(test::account());
  const auto json = nlohmann::json::parse(steptape({"doctor", path_, "--json"}).out);
  EXPECT_EQ(json["steps"][0]["calls"], 100);
  EXPECT_EQ(json["steps"][0]["reasons"][0]["times"], 22);
  EXPECT_EQ(json["steps"][0]["reasons"][0]["source"], "if loss.item() > 3:");
  EXPECT_EQ(json["steps"][1]["reasons"].size(), 0u);
}

TEST_F(DoctorTest, AFileThatIsMissingIsTrouble) {
  EXPECT_EQ(steptape({"doctor", folder_ / "none.tape"}).exit_code, 2);
}

}  // namespace
}  // namespace steptape::tools
