#include "guards/foreign_guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace steptape::guards {
namespace {

/// An object of another language: a flag, a rate and a counter.
struct Meter {
  bool is_open = true;
  double rate = 0.5;
  std::int64_t count = 3;
  bool has_count = true;
};

class MeterWatch : public live::ForeignWatch {
 public:
  explicit MeterWatch(Meter& meter) : meter_(meter), was_open_(meter.is_open) {}

  Verdict check() override {
    if (meter_.is_open == was_open_) return {};
    return {".is_open", was_open_ ? "true" : "false", meter_.is_open ? "true" : "false"};
  }
  std::vector<std::string> names() const override { return {".rate", ".count"}; }
  std::size_t read(std::span<double> values) override {
    values[0] = meter_.rate;
    if (!meter_.has_count) return 1;
    values[1] = static_cast<double>(meter_.count);
    return kAllRead;
  }
  void advance(std::size_t k, std::int64_t by) override {
    EXPECT_EQ(k, 1U);
    meter_.count += by;
  }

 private:
  Meter& meter_;
  bool was_open_;
};

class ForeignMeter : public live::Foreign {
 public:
  explicit ForeignMeter(Meter& meter) : meter_(meter) {}
  const void* identity() const override { return &meter_; }
  bool is_alive() const override { return true; }
  std::unique_ptr<live::ForeignWatch> watch(const live::PathOf&) const override {
    return std::make_unique<MeterWatch>(meter_);
  }

 private:
  Meter& meter_;
};

/// Two of them; a formula reads the rate of the first, and the step advances its counter by 2.
class ForeignGuardTest : public testing::Test {
 protected:
  ForeignGuardTest() {
    objects_.track("a", std::make_shared<const ForeignMeter>(meters_[0]));
    objects_.track("b", std::make_shared<const ForeignMeter>(meters_[1]));
    recording_.leaves = {{trace::LeafKind::kHyperparameter, "a.rate"}};
    recording_.advances = {{"a.count", 2}};
    guard_.emplace(recording_, objects_, objects_.snapshot());
  }

  Verdict check() {
    entry_ = {};
    entry_.leaves.assign(1, -1);
    return guard_->check(entry_);
  }

  Meter meters_[2];
  live::Objects objects_;
  trace::Recording recording_;
  Entry entry_;
  std::optional<ForeignGuard> guard_;
};

TEST_F(ForeignGuardTest, ReadsTheNumbersThatFormulasStartFrom) {
  meters_[0].rate = 0.25;
  meters_[1].rate = 7;  // no formula reads it
  EXPECT_TRUE(check());
  EXPECT_EQ(entry_.leaves, (std::vector<double>{0.25}));
  EXPECT_TRUE(entry_.has_unseen_number);
  ForeignGuard::for_each_numbers(*guard_, [](VaryingNumbers& numbers) { numbers.settle(); });
  EXPECT_TRUE(check());
  EXPECT_FALSE(entry_.has_unseen_number);
}

TEST_F(ForeignGuardTest, NamesTheObjectWhoseWatchFails) {
  meters_[1].is_open = false;
  const Verdict verdict = check();
  EXPECT_EQ(verdict.text(), "b.is_open: true → false");
  EXPECT_EQ(verdict.kind, GuardKind::kHostState) << "where the watch names none";
  EXPECT_EQ(guard_->check_unseen().path, ".is_open");
}

TEST_F(ForeignGuardTest, ANumberOfAnotherTypeIsNamed) {
  meters_[0].has_count = false;
  const Verdict verdict = check();
  EXPECT_EQ(verdict.text(),
            "a.count: a number of the type it had when it was recorded → another type, or gone");
  EXPECT_EQ(verdict.kind, GuardKind::kHyperparameter);
  EXPECT_EQ(guard_->check_unseen().text(), verdict.text());
}

TEST_F(ForeignGuardTest, AdvancesTheCountersOfTheRecordingAlone) {
  EXPECT_TRUE(check());
  guard_->advance();
  EXPECT_EQ(meters_[0].count, 5);
  EXPECT_EQ(meters_[1].count, 3);
  EXPECT_EQ(guard_->counters(), (std::vector<std::int64_t>{5}));
}

}  // namespace
}  // namespace steptape::guards
