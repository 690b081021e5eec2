#include "replayer/runtime/cpu/lanes/lanes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "replayer/runtime/cpu/lanes/choice.h"
#include "replayer/runtime/cpu/lanes/dependences.h"
#include "replayer/runtime/cpu/lanes/schedule.h"
#include "replayer/runtime/cpu/team.h"

namespace steptape::tests {
namespace {

using replayer::Use;
using replayer::cpu::Choice;
using replayer::cpu::Job;
using replayer::cpu::Schedule;
using replayer::cpu::Wait;
using LanesWay = replayer::cpu::Way;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// As many threads of LibTorch's as a test needs, on however few processors.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

Use bytes(std::uintptr_t begin, std::uintptr_t end, bool is_write) {
  Use use;
  use.begin = begin;
  use.end = end;
  use.is_write = is_write;
  return use;
}
Use reads(std::uintptr_t begin, std::uintptr_t end) { return bytes(begin, end, false); }
Use writes(std::uintptr_t begin, std::uintptr_t end) { return bytes(begin, end, true); }

TEST(DependencesTest, AReaderComesBehindWhoWrites) {
  const std::vector<std::vector<Use>> uses = {
      {writes(0, 8)}, {writes(8, 16)}, {reads(4, 12), writes(16, 24)}, {reads(0, 4)}};
  EXPECT_THAT(replayer::cpu::dependences_of(uses),
              ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0, 1), ElementsAre(0)));
}

TEST(DependencesTest, AWriterComesBehindWhoReadAndWhoWrote) {
  const std::vector<std::vector<Use>> uses = {{writes(0, 8)}, {reads(0, 8)},  {reads(0, 4)},
                                              {writes(0, 8)}, {writes(2, 4)}, {reads(0, 8)}};
  EXPECT_THAT(replayer::cpu::dependences_of(uses),
              ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(0), ElementsAre(0, 1, 2),
                          ElementsAre(3), ElementsAre(3, 4)));
}

TEST(DependencesTest, OtherStoragesAreApart) {
  int one = 0, other = 0;
  Use first = writes(0, 8), second = writes(0, 8);
  first.storage = reinterpret_cast<Use::Storage>(&one);
  second.storage = reinterpret_cast<Use::Storage>(&other);
  EXPECT_THAT(replayer::cpu::dependences_of(std::vector<std::vector<Use>>{{first}, {second}}),
              Each(IsEmpty()));
}

TEST(ScheduleTest, AChainStaysOnOneLane) {
  const std::vector<Job> jobs = {{10, {}}, {10, {0}}, {10, {1}}};
  const Schedule made = replayer::cpu::schedule(jobs, 2, 1);
  EXPECT_EQ(made.lanes[0].size(), 3U);
  EXPECT_THAT(made.lanes[1], IsEmpty());
  EXPECT_EQ(made.ns, 30);
}

TEST(ScheduleTest, WhatMoreWaitsForComesFirst) {
  // 1 leads to 2 and 3, 0 to nothing
  const std::vector<Job> jobs = {{10, {}}, {10, {}}, {10, {1}}, {10, {2}}};
  const Schedule made = replayer::cpu::schedule(jobs, 2, 0);
  EXPECT_EQ(made.lanes[0].front().job, 1U);
  EXPECT_EQ(made.ns, 30);
}

TEST(ScheduleTest, AJobWaitsForOtherLanesOnce) {
  const std::vector<Job> jobs = {{10, {}}, {4, {}}, {4, {}}, {1, {0, 1, 2}}};
  const Schedule made = replayer::cpu::schedule(jobs, 2, 0);
  ASSERT_EQ(made.lanes[0].size() + made.lanes[1].size(), 4U);
  EXPECT_EQ(made.ns, 11);
  for (const auto& lane : made.lanes) {
    for (const auto& scheduled : lane) {
      if (scheduled.job == 3) {
        EXPECT_EQ(scheduled.waits.size(), 1U);
      }
    }
  }
}

/// Random jobs, each after some of those before it.
std::vector<Job> random_jobs(std::mt19937& random, std::size_t count) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < count; ++i) {
    Job job{static_cast<double>(1 + random() % 100), {}};
    for (std::size_t earlier = i - std::min<std::size_t>(i, 8); earlier < i; ++earlier) {
      if (random() % 4 == 0) job.after.push_back(earlier);
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

TEST(ScheduleTest, HoldsEachJobOnceBehindWhatItWaitsFor) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const std::vector<Job> jobs = random_jobs(random, 1 + random() % 60);
    const std::size_t lanes = 2 + random() % 4;
    const Schedule made = replayer::cpu::schedule(jobs, lanes, random() % 20);
    ASSERT_EQ(made.lanes.size(), lanes);
    std::vector<std::pair<std::size_t, std::size_t>> place(jobs.size(), {lanes, 0});
    std::vector<std::size_t> order(jobs.size());
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      for (std::size_t i = 0; i < made.lanes[lane].size(); ++i) {
        const auto& scheduled = made.lanes[lane][i];
        ASSERT_EQ(place.at(scheduled.job).first, lanes) << "twice";
        place[scheduled.job] = {lane, i};
        order[scheduled.job] = scheduled.order;
        if (i > 0) {
          EXPECT_GT(scheduled.order, made.lanes[lane][i - 1].order);
        }
      }
    }
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      const auto [lane, position] = place[job];
      ASSERT_LT(lane, lanes) << "left out";
      for (const std::size_t earlier : jobs[job].after) {
        EXPECT_LT(order[earlier], order[job]);
        if (place[earlier].first == lane) {
          EXPECT_LT(place[earlier].second, position);
          continue;
        }
        const auto& waits = made.lanes[lane][position].waits;
        EXPECT_TRUE(std::ranges::any_of(waits, [&](const Wait& wait) {
          return wait.lane == place[earlier].first && wait.done > place[earlier].second;
        }));
      }
    }
  }
}

TEST(TeamTest, EachMemberIsCalledOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    const Threads team_threads(threads);
    replayer::cpu::Team team(5);
    for (int round = 0; round < 20; ++round) {
      std::array<std::atomic<int>, 5> calls{};
      team.run([&](std::size_t member) { ++calls.at(member); });
      for (const auto& each : calls) EXPECT_EQ(each.load(), 1);
    }
  }
}

TEST(TeamTest, AMembersExceptionGoesOn) {
  for (const int threads : {1, 3}) {
    const Threads team_threads(threads);
    replayer::cpu::Team team(3);
    EXPECT_THROW(team.run([](std::size_t member) {
      if (member == 1) throw std::runtime_error("one");
    }),
                 std::runtime_error);
  }
}

TEST(TeamTest, MembersDoToDenormalsWhatTheCallerDoes) {
  const Threads team_threads(4);
  replayer::cpu::Team team(4);
  const auto products = [&] {
    std::array<float, 4> products{};
    const volatile float small = 1e-38F, smaller = 1e-3F;
    team.run([&](std::size_t member) { products.at(member) = small * smaller; });
    return products;
  };
  EXPECT_THAT(products(), Each(::testing::Gt(0)));
  ASSERT_TRUE(at::globalContext().setFlushDenormal(true));
  const auto flushed = products();
  at::globalContext().setFlushDenormal(false);  // or a comparison would flush them, too
  EXPECT_THAT(flushed, Each(0));
  EXPECT_THAT(products(), Each(::testing::Gt(0)));
}

TEST(TeamTest, AForkedProcessWorksAlone) {
  const Threads team_threads(2);
  replayer::cpu::Team team(2);
  std::atomic<int> calls = 0;
  const auto count = [&](std::size_t) { ++calls; };
  team.run(count);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // rather than to wait for ever
    team.run(count);
    ::_exit(calls == 4 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// Makes its number out of those of the jobs it comes after, and sometimes takes its time.
class Adder final : public replayer::Kernel {
 public:
  void run() override {
    if (pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    if (throws) throw std::runtime_error("a kernel's");
    double sum = 1;
    for (const Adder* each : after) sum = sum * 0.5 + each->value;
    value = sum;
  }

  std::vector<const Adder*> after;
  double value = std::nan("");
  int pause_us = 0;
  bool throws = false;
};

struct Work {
  std::vector<std::unique_ptr<Adder>> adders;
  std::vector<replayer::Kernel*> kernels;

  explicit Work(const std::vector<Job>& jobs) {
    for (const Job& job : jobs) {
      adders.push_back(std::make_unique<Adder>());
      for (const std::size_t earlier : job.after)
        adders.back()->after.push_back(adders[earlier].get());
      kernels.push_back(adders.back().get());
    }
  }
  std::vector<double> take() {
    std::vector<double> values;
    for (const auto& adder : adders) values.push_back(std::exchange(adder->value, std::nan("")));
    return values;
  }
};

TEST(LanesTest, LeaveWhatTheOrderLeaves) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 60; ++trial) {
    const Threads threads(1 + static_cast<int>(random() % 4));
    const std::vector<Job> jobs = random_jobs(random, 1 + random() % 40);
    Work work(jobs);
    for (replayer::Kernel* kernel : work.kernels) kernel->run();
    const std::vector<double> expected = work.take();
    replayer::cpu::Lanes lanes(replayer::cpu::schedule(jobs, 2 + random() % 3, 5), work.kernels);
    for (int round = 0; round < 10; ++round) {
      for (const auto& adder : work.adders)
        adder->pause_us = random() % 16 == 0 ? static_cast<int>(random() % 50) : 0;
      lanes.run();
      EXPECT_EQ(work.take(), expected);
    }
  }
}

TEST(LanesTest, AKernelsExceptionGoesOnAndTheNextRunIsWhole) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const Threads threads(1 + static_cast<int>(random() % 3));
    const std::vector<Job> jobs = random_jobs(random, 20);
    Work work(jobs);
    for (replayer::Kernel* kernel : work.kernels) kernel->run();
    const std::vector<double> expected = work.take();
    replayer::cpu::Lanes lanes(replayer::cpu::schedule(jobs, 3, 5), work.kernels);
    Adder& culprit = *work.adders[random() % 20];
    culprit.throws = true;
    EXPECT_THROW(lanes.run(), std::runtime_error);
    culprit.throws = false;
    lanes.run();
    EXPECT_EQ(work.take(), expected);
  }
}

/// Runs for which the ways take so long; what was done in them.
std::vector<LanesWay> feed(Choice& choice, std::size_t runs, std::uint64_t in_order_ns,
                           std::uint64_t shared_ns) {
  std::vector<LanesWay> ways;
  for (std::size_t i = 0; i < runs; ++i) {
    ways.push_back(choice.next());
    choice.took(ways.back(), ways.back() == LanesWay::kShared ? shared_ns : in_order_ns);
  }
  return ways;
}

constexpr std::size_t kTrial = 3 * Choice::kMeasured + 1;

TEST(ChoiceTest, MeasuresThenComparesThenShares) {
  Choice choice;
  EXPECT_THAT(feed(choice, Choice::kMeasured, 100, 60), Each(LanesWay::kInOrder));
  EXPECT_THAT(feed(choice, Choice::kMeasured, 100, 60), Each(LanesWay::kByJob));
  EXPECT_THAT(feed(choice, 1, 100, 60), ElementsAre(LanesWay::kCompared));
  EXPECT_FALSE(choice.shares());
  EXPECT_THAT(feed(choice, Choice::kMeasured, 100, 60), Each(LanesWay::kShared));
  EXPECT_TRUE(choice.shares());
  EXPECT_EQ(choice.in_order_ns(), 100U);
  EXPECT_EQ(choice.shared_ns(), 60U);
  EXPECT_THAT(feed(choice, 10'000, 100, 60), Each(LanesWay::kShared));
}

TEST(ChoiceTest, WhatGainsNothingIsDoneInOrderAndMeasuredAgainLater) {
  Choice choice;
  feed(choice, kTrial, 100, 99);
  EXPECT_FALSE(choice.shares());
  EXPECT_THAT(feed(choice, Choice::kFirstPause, 100, 99), Each(LanesWay::kInOrder));
  feed(choice, 2 * Choice::kMeasured, 100, 60);
  EXPECT_TRUE(choice.shares());
}

TEST(ChoiceTest, PausesGetLonger) {
  Choice choice;
  feed(choice, kTrial + Choice::kFirstPause + 2 * Choice::kMeasured, 100, 120);
  EXPECT_THAT(feed(choice, 2 * Choice::kFirstPause, 100, 120), Each(LanesWay::kInOrder));
}

TEST(ChoiceTest, StopsSharingWhenOthersWantTheProcessors) {
  Choice choice;
  feed(choice, kTrial, 100, 60);
  feed(choice, Choice::kLookedAt, 100, 60);
  ASSERT_TRUE(choice.shares());
  feed(choice, Choice::kLookedAt, 100, 4000);
  EXPECT_FALSE(choice.shares());
}

TEST(ChoiceTest, ASlowRunNowAndThenChangesNothing) {
  Choice choice;
  feed(choice, kTrial, 100, 60);
  for (int i = 0; i < 1000; ++i) {
    feed(choice, 3, 100, 60);
    feed(choice, 1, 100, 4000);
  }
  EXPECT_TRUE(choice.shares());
}

TEST(ChoiceTest, GivenUpIsForEver) {
  Choice choice;
  feed(choice, 2 * Choice::kMeasured, 100, 60);
  choice.give_up();
  EXPECT_THAT(feed(choice, 10'000, 100, 60), Each(LanesWay::kInOrder));
}

}  // namespace
}  // namespace steptape::tests
