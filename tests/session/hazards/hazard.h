#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/session/training.h"

/// The vocabulary of the hazard tests: two twins from one seed train the same way, one eagerly and
/// one through Steptape, with whatever goes wrong in captured training elsewhere done to both.
/// After each step everything that a user can see is compared bit for bit. Each hazard prints one
/// line, which docs/hazards.md is held to.
namespace steptape::tests {

/// Momentum, moments and step counts of all parameters, in the order of the parameters.
std::vector<at::Tensor> optimizer_state(const torch::optim::Optimizer& optimizer);

template <typename Options>
Options& options_of(torch::optim::Optimizer& optimizer) {
  return static_cast<Options&>(optimizer.param_groups()[0].options());
}

at::Tensor loss_of(Net& model, const at::Tensor& images, const at::Tensor& labels);

/// A training that can be one of two twins: a test derives from it and changes the step.
template <typename Training>
struct Twin : Training {
  using Training::Training;

  void track(Session& session) {
    session.track("model", this->model).track("optimizer", this->optimizer);
  }

  std::vector<at::Tensor> state() const {
    std::vector<at::Tensor> tensors = visible_state(*this->model);
    for (at::Tensor& tensor : optimizer_state(this->optimizer)) tensors.push_back(tensor);
    return tensors;
  }

  /// The plain step, but for the loss.
  at::Tensor step_on(const at::Tensor& loss) {
    loss.backward();
    this->optimizer.step();
    return loss;
  }
};

struct SgdTwin : Twin<SgdTraining> {
  explicit SgdTwin(NetOptions net = {}) : Twin(net, torch::optim::SGDOptions(0.1).momentum(0.9)) {}
};

struct AdamTwin : Twin<AdamTraining> {
  explicit AdamTwin(NetOptions net = {}) : Twin(net, torch::optim::AdamOptions(1e-3)) {}
};

/// Writes an element of a tensor of floats as what is not an op does: by a pointer, or a copy of
/// bytes.
void poke(const at::Tensor& tensor, std::int64_t element, float value);
float peek(const at::Tensor& tensor, std::int64_t element);

/// Torch's default generators as one twin sees them: the CPU's, and that of `device()`.
class Lane {
 public:
  Lane();

  template <typename F>
  decltype(auto) run(F&& function) {
    const Inside inside(*this);
    return function();
  }

  const std::vector<at::Tensor>& random_states() const { return states_; }

 private:
  class Inside {
   public:
    explicit Inside(Lane& lane);
    ~Inside();

   private:
    Lane& lane_;
  };

  std::vector<at::Tensor> states_;
};

/// What became of one hazard; the part that does not depend on the twins.
class Verdicts {
 public:
  explicit Verdicts(std::string name) : name_(std::move(name)) {}

  /// Fails the test, once, naming the step.
  void differ(const std::string& what);
  void compare(const std::vector<at::Tensor>& eager, const std::vector<at::Tensor>& taped);
  void count_step() { ++steps_; }

  void expect_replays(const Stats& stats, const std::string& explanation) const;
  void expect_replays_or(std::initializer_list<RefusalCode> codes, const Stats& stats,
                         const std::string& explanation) const;

 private:
  std::string name_;
  int steps_ = 0;
  bool differed_ = false;
};

/// Prints the line that docs/hazards.md is held to: "hazard <name>: <outcome>".
void print_outcome(const std::string& name, const std::string& outcome);

bool has_refusal(const Stats& stats, RefusalCode code);

inline bool same_result(const at::Tensor& a, const at::Tensor& b) { return same_bits(a, b); }

template <typename T>
requires std::is_arithmetic_v<T>
bool same_result(T a, T b) { return std::memcmp(&a, &b, sizeof(T)) == 0; }

template <typename... T>
bool same_result(const std::tuple<T...>& a, const std::tuple<T...>& b) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (same_result(std::get<I>(a), std::get<I>(b)) && ...);
  }
  (std::index_sequence_for<T...>{});
}

template <typename Method>
struct SignatureOf;
template <typename C, typename R, typename... A>
struct SignatureOf<R (C::*)(A...)> {
  using Type = R(A...);
};

/// A step of the twins: a member function, and the same wrapped for the taped one.
template <typename Method>
struct StepOfBoth {
  Method method;
  Step<typename SignatureOf<Method>::Type> taped;
};

/// One hazard: an eager and a taped `T`, side by side. `T` is made by its default constructor,
/// which seeds torch, and has `track(Session&)`, `state()` and the step.
template <typename T>
class Hazard {
 public:
  explicit Hazard(const std::string& name, const Options& options = quiet())
      : session(options), verdicts_(name), main_(wrap("train", &T::step)) {
    taped.track(session);
  }

  /// Another step beside the main one.
  template <typename C, typename R, typename... A>
  StepOfBoth<R (C::*)(A...)> wrap(const std::string& name, R (C::*method)(A...)) {
    auto step = session.wrap(
        name, [this, method](A... arguments) -> R { return (taped.*method)(arguments...); });
    stats_.push_back([step] { return step.stats(); });
    return {method, std::move(step)};
  }

  /// One step of both; results and state must be the same bits. Gives both results, eager first.
  template <typename... A>
  auto step(const A&... arguments) {
    return step_of(main_, arguments...);
  }

  template <typename Method, typename... A>
  auto step_of(const StepOfBoth<Method>& step, const A&... arguments) {
    verdicts_.count_step();
    auto expected = eager_lane_.run([&] { return (eager.*step.method)(arguments...); });
    auto found = taped_lane_.run([&] { return step.taped(arguments...); });
    if (!same_result(expected, found)) verdicts_.differ("results");
    compare_state();
    return std::make_pair(std::move(expected), std::move(found));
  }

  /// One step of the taped twin alone, compared with nothing.
  template <typename... A>
  void step_of_taped(const A&... arguments) {
    taped_lane_.run([&] { main_.taped(arguments...); });
  }

  /// One step that must throw in both, with the same message, and leave the same after.
  template <typename... A>
  void step_that_throws(const A&... arguments) {
    verdicts_.count_step();
    const std::string expected =
        message_of([&] { eager_lane_.run([&] { (eager.*main_.method)(arguments...); }); });
    const std::string found =
        message_of([&] { taped_lane_.run([&] { main_.taped(arguments...); }); });
    if (expected.empty() || expected != found) {
      verdicts_.differ("exceptions, \"" + expected + "\" and \"" + found + "\"");
    }
    compare_state();
  }

  /// Does the same to both twins, each with its own random state.
  template <typename F>
  void both(F change) {
    eager_lane_.run([&] { change(eager); });
    taped_lane_.run([&] { change(taped); });
  }

  /// `count` steps over made-up digits; `before(i)` comes before step i.
  template <typename F>
  void train(int count, F before) {
    for (int i = 0; i < count; ++i) {
      before(i);
      const Batch& batch = batches_[static_cast<std::size_t>(i) % batches_.size()];
      step(batch.images, batch.labels);
    }
  }
  void train(int count) {
    train(count, [](int) {});
  }

  Stats stats() const {
    Stats sum;
    for (const auto& of_step : stats_) {
      const Stats stats = of_step();
      sum.steps += stats.steps;
      sum.recorded += stats.recorded;
      sum.trials += stats.trials;
      sum.audits += stats.audits;
      sum.replayed += stats.replayed;
      sum.refusals.insert(sum.refusals.end(), stats.refusals.begin(), stats.refusals.end());
    }
    return sum;
  }

  /// At least nine in ten of the calls that neither record nor verify are replays.
  void expect_replays() const { verdicts_.expect_replays(stats(), session.explain()); }
  /// The same, or one of these refusals was given.
  void expect_replays_or(std::initializer_list<RefusalCode> codes) const {
    verdicts_.expect_replays_or(codes, stats(), session.explain());
  }

  T eager, taped;
  Session session;

 private:
  void compare_state() {
    verdicts_.compare(eager.state(), taped.state());
    if (!all_same_bits(eager_lane_.random_states(), taped_lane_.random_states())) {
      verdicts_.differ("random states");
    }
  }

  template <typename F>
  static std::string message_of(F function) {
    try {
      function();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  Lane eager_lane_, taped_lane_;
  Verdicts verdicts_;
  std::vector<std::function<Stats()>> stats_;
  std::vector<Batch> batches_ = make_batches(16);
  StepOfBoth<decltype(&T::step)> main_;
};

}  // namespace steptape::tests
