#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "steptape/error.h"
#include "steptape/options.h"
#include "steptape/pack.h"
#include "steptape/stats.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace steptape {

class StepCore;

/// A wrapped step: called like the function, with the same results, bit for bit. Made by
/// Session::wrap, valid while its session lives; copies share one step.
template <typename Signature>
class Step;

/// Records the steps of one training loop and replays them.
///
/// A replay does not run the step function: whatever the function does besides computing on its
/// arguments and on tracked objects (counting, logging, stepping a scheduler, appending to a list)
/// happens only in the first, recorded calls and in audits; `observe` is for looking. C++ closures
/// cannot be inspected, so a captured number that changes later is not noticed either: pass it as
/// an argument, or declare it with `host` or `guard`. docs/blind_spots.md lists what Steptape
/// cannot see.
///
/// While recording, ops of the calling thread (and of the threads autograd runs for it) are written
/// down; while replaying, a plan made of them runs on the live tensors. Not thread-safe: one thread
/// calls a session's steps at a time; several sessions may train in several threads, over different
/// objects. Objects tracked by reference must outlive the last call of a step; objects tracked by
/// shared_ptr may die before, and a later call is then an Error (failed_precondition).
class Session {
 public:
  explicit Session(Options options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Names an object that steps read or write: modules with their parameters and buffers,
  /// optimizers with their hyperparameters and state, tensors (one that requires grad with its
  /// gradient), CPU generators. Must precede the first call of a step. Throws Error
  /// (invalid_argument) when the name is taken or is not an identifier, (failed_precondition) after
  /// the first call.
  Session& track(const std::string& name, torch::nn::Module& module);
  Session& track(const std::string& name, std::shared_ptr<torch::nn::Module> module);
  Session& track(const std::string& name, torch::optim::Optimizer& optimizer);
  Session& track(const std::string& name, std::shared_ptr<torch::optim::Optimizer> optimizer);
  Session& track(const std::string& name, at::Tensor tensor);
  Session& track(const std::string& name, at::Generator generator);
  /// For a TORCH_MODULE holder: tracks the module it holds.
  template <typename Holder>
  requires requires(const Holder& holder) { holder.ptr()->named_parameters(); }
  Session& track(const std::string& name, const Holder& holder) {
    return track(name, std::shared_ptr<torch::nn::Module>(holder.ptr()));
  }
  template <typename T>
  requires std::is_convertible_v<T*, torch::nn::Module*> Session& track(const std::string& name,
                                                                        std::shared_ptr<T> module) {
    return track(name, std::shared_ptr<torch::nn::Module>(std::move(module)));
  }
  template <typename T>
  requires std::is_convertible_v<T*, torch::optim::Optimizer*> Session& track(
      const std::string& name, std::shared_ptr<T> optimizer) {
    return track(name, std::shared_ptr<torch::optim::Optimizer>(std::move(optimizer)));
  }

  /// Binds `function` as the step `name`; no other call can replay its plans. `function` is kept by
  /// value and must have one signature (no generic lambda). Arguments are tensors and host values
  /// (which a plan guards by value); results are tensors. Throws Error (invalid_argument) when the
  /// name is taken, or ends in ".step()" as those of `update` do.
  template <typename Function>
  auto wrap(const std::string& name, Function function,
            std::source_location location = std::source_location::current());

  /// Declares a number of the program's own that steps use: `function` is called once a step,
  /// before anything else, in eager and replayed steps alike, and gives a bool, an integer or a
  /// floating-point number. Scalars that have its bits in every probe, while it changes, follow it
  /// from then on; a step that uses it in another way holds for its recorded value alone. This is
  /// how a schedule, a clock or a random number of the host enters. Must precede the first call of
  /// a step. Throws Error (invalid_argument) when the name is taken.
  template <typename Function>
  Session& host(const std::string& name, Function function) {
    static_assert(std::is_arithmetic_v<std::decay_t<decltype(function())>>,
                  "steptape: a host value is one number; declare each by a name of its own");
    return declare_host(name, [function = std::move(function)]() mutable {
      std::vector<pack::Leaf> leaves;
      pack::Argument<std::decay_t<decltype(function())>>::flatten(function(), leaves);
      return std::move(leaves.at(0));
    });
  }

  /// Declares a fact that plans depend on and that Steptape cannot see, such as a member of the
  /// program's own module: `function` is called once a step and gives a number, an enum or a
  /// string; a plan holds for the value it was recorded with. Must precede the first call of a
  /// step.
  template <typename Function>
  Session& guard(const std::string& name, Function function) {
    using Fact = std::decay_t<decltype(function())>;
    static_assert(
        std::is_arithmetic_v<Fact> || std::is_enum_v<Fact> || std::is_same_v<Fact, std::string>,
        "steptape: a fact is one number, enum or string; declare each by its own name");
    return declare_fact(name, [function = std::move(function)]() mutable {
      std::vector<pack::Leaf> leaves;
      pack::Argument<std::decay_t<decltype(function())>>::flatten(function(), leaves);
      return std::move(leaves.at(0));
    });
  }

  /// Called inside a step function: `function` gets the value of `tensor` after the step, in eager
  /// and replayed steps alike. For logging and assertions: what it throws reaches the caller of the
  /// step, which has been done. It is kept for replays, so what it refers to must outlive the
  /// session. Outside a step it is called at once.
  void observe(const at::Tensor& tensor, std::function<void(const at::Tensor&)> function);

  /// Called inside a step function in place of `optimizer.step()`: the optimizer is stepped when
  /// the function has returned, whether that was replayed or not. So both ways of replaying half a
  /// step: where Steptape has no formulas for the optimizer's class, all before the update replays;
  /// where the function cannot be replayed, the update of a tracked optimizer replays alone, as the
  /// step "optimizer.step()". In a step inside another it comes after the outer one. `optimizer`
  /// must outlive the session. Outside a step it is stepped at once.
  void update(torch::optim::Optimizer& optimizer);

  /// Drops all plans; the next calls are recorded again. `why` appears in explain(). For changes
  /// that guards cannot see, such as another captured object.
  void invalidate(const std::string& why);

  enum class State { kWithout, kWith };
  /// Writes the trace of all steps to `path`, atomically; with the bytes of parameters, module
  /// buffers, optimizer state, gradients and generators when `state` says so, so that a process
  /// without the model code can go on from here. Throws Error (io, failed_precondition).
  void save(const std::string& path, State state = State::kWith) const;

  /// All steps: counts by outcome, refusals with remedies, last verdict.
  std::string explain() const;

 private:
  template <typename Signature>
  friend class Step;
  Session& declare_host(const std::string& name, std::function<pack::Leaf()> function);
  Session& declare_fact(const std::string& name, std::function<pack::Leaf()> function);
  std::shared_ptr<StepCore> make_step(const std::string& name,
                                      const std::source_location& location);
  template <typename R, typename... A>
  Step<R(A...)> bind(const std::string& name, std::function<R(A...)> function,
                     const std::source_location& location);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The part of a step that does not depend on its signature.
class StepCore {
 public:
  virtual ~StepCore() = default;
  /// Runs one step. `eager` runs the user's function and gives its results flat; it is called at
  /// most once. Returns the results of a replay, or none when `eager` ran and its results stand.
  virtual std::optional<pack::Results> call(std::vector<pack::Leaf> arguments,
                                            const std::function<pack::Results()>& eager) = 0;
  virtual Stats stats() const = 0;
  virtual std::string explain() const = 0;
};

template <typename R, typename... A>
class Step<R(A...)> {
 public:
  /// Records, verifies, replays or runs eagerly: the same bits. Exceptions of the function pass
  /// through.
  R operator()(std::type_identity_t<A>... arguments) const {
    std::vector<pack::Leaf> leaves;
    leaves.reserve(sizeof...(A));
    (pack::Argument<std::decay_t<A>>::flatten(arguments, leaves), ...);
    if constexpr (std::is_void_v<R>) {
      core_->call(std::move(leaves), [&]() -> pack::Results {
        function_(arguments...);
        return {};
      });
    } else {
      std::optional<R> result;
      auto replayed = core_->call(std::move(leaves), [&] {
        result.emplace(function_(arguments...));
        pack::Results results;
        pack::Result<R>::flatten(*result, results);
        return results;
      });
      if (!replayed) return *std::move(result);
      pack::Unpacking unpacking(*std::move(replayed));
      return pack::Result<R>::unflatten(unpacking);
    }
  }

  Stats stats() const { return core_->stats(); }
  std::string explain() const { return core_->explain(); }

 private:
  friend class Session;
  Step(std::shared_ptr<StepCore> core, std::function<R(A...)> function)
      : core_(std::move(core)), function_(std::move(function)) {}

  std::shared_ptr<StepCore> core_;
  std::function<R(A...)> function_;
};

template <typename Function>
auto Session::wrap(const std::string& name, Function function, std::source_location location) {
  static_assert(
      requires { std::function{std::declval<Function>()}; },
      "steptape: a step function has one signature; give the lambda's parameters types (no auto)");
  return bind(name, std::function{std::move(function)}, location);
}

template <typename R, typename... A>
Step<R(A...)> Session::bind(const std::string& name, std::function<R(A...)> function,
                            const std::source_location& location) {
  static_assert(
      ((!std::is_lvalue_reference_v<A> || std::is_const_v<std::remove_reference_t<A>>)&&...),
      "steptape: a step takes its arguments by value or const reference; a replay does not run the "
      "function, so what it assigns to a reference would be lost: return it instead");
  return Step<R(A...)>(make_step(name, location), std::move(function));
}

}  // namespace steptape
