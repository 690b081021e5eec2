#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "steptape/error.h"
#include "steptape/metrics.h"
#include "steptape/stats.h"
#include "steptape/verdict.h"

namespace steptape {

/// What a step of a trace takes or gives.
struct TensorSpec {
  std::string path;   ///< "inputs[0]", "model.fc1.weight"
  std::string dtype;  ///< "float32"
  std::vector<std::int64_t> sizes;
  /// Of integral inputs: the range seen while recording; low > high when none was.
  std::int64_t low = 1, high = 0;
};

enum class Environment {
  kExact,  ///< refuse a trace recorded with another torch, CPU capability, BLAS or thread count
  kAny,    ///< accept it: results may differ in their last bits
};

/// Something that a player did.
struct PlayerEvent {
  enum class Kind {
    kRan,
    kRefused,  ///< a guard did not hold; `text` is the verdict
    kFailed,   ///< an op threw; `text` says what
    kPublished,
    kWeightsLoaded,   ///< `text` is the file
    kSnapshot,        ///< `text` is the file
    kSnapshotFailed,  ///< `text` says why
  };
  Kind kind;
  std::string_view step;  ///< empty where it was none
  double us = 0;          ///< how long it took
  std::string_view text = {};

  /// On one line: {"event":"refused","step":"learn","us":3.1,"text":"inputs[0].size(0): 64 → 17"}
  std::string json() const;
};
/// The stable name of a kind: "ran", "snapshot_failed", ...
std::string_view name_of(PlayerEvent::Kind kind) noexcept;

struct LoadOptions {
  Environment environment = Environment::kExact;
  /// How many threads LibTorch uses in this process from now on, as at::set_num_threads; 0: as
  /// many as it does.
  int threads = 0;
  /// Where the steps were recorded, as "cpu" or "cuda:0": a trace of another device is refused.
  /// Empty: wherever that was.
  std::string device = {};
  /// Told of all that the player and its clones do, in the threads that do it; must be callable
  /// from several. What it throws is dropped.
  std::function<void(const PlayerEvent&)> on_event = {};
};

/// Which state a file of weights holds, and by which names.
struct WeightsOptions {
  /// A tracked name: the file holds what lies below it, and its names begin after it. With "model"
  /// they are those of the module's own state_dict(): "fc1.weight". Empty: all that is tracked, by
  /// recorded names: "model.fc1.weight".
  std::string of = {};
  /// Also buffers that a state dict leaves out, optimizer state, hyperparameters and step counts
  /// (as tensors without dimensions) and, where `of` is empty, generators:
  /// "optimizer.state[model.fc1.weight].exp_avg", "optimizer.param_groups[0].lr",
  /// "generator.default". When loading, what the file holds of them is taken whatever this says.
  bool everything = false;
  /// When loading: every parameter and persistent buffer must be in the file, and nothing that the
  /// player does not have.
  bool strict = true;
};

/// When a player writes snapshots of itself, and how many it leaves.
struct SnapshotOptions {
  std::string folder;  ///< made where it does not exist
  /// After a step that wrote state, where so many did since the last snapshot; 0: not for that.
  std::uint64_t every_steps = 0;
  /// The same by seconds since the last one.
  double every_seconds = 0;
  std::size_t keep = 3;  ///< the newest; at least 1
};

/// Bytes that a player takes. Known when it is loaded: steps allocate their results and, with
/// training steps, gradients beyond that.
struct PlayerMemory {
  std::uint64_t state = 0;      ///< parameters, module buffers, optimizer state
  std::uint64_t arenas = 0;     ///< planned memory of all variants
  std::uint64_t constants = 0;  ///< the trace's own tensors
  std::uint64_t published = 0;  ///< what clones read: versions of the state
};

/// A step that a trace holds, with the state of its Player. Valid while the player lives.
class PlayerStep {
 public:
  /// Runs the step: state moves on by one step, the results are returned. Throws Error
  /// (failed_precondition) with the verdict when a guard does not hold; every byte of state is then
  /// as it was, as it is when an op throws. A step that was recorded with Session::update steps the
  /// optimizer after it; what that one throws comes when the step itself has run.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);
  /// The same, and what each part of it took, which makes it a little slower; steps of optimizers
  /// after it not among them.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs, std::vector<StageTime>& times);
  /// The same into memory of the caller's: `results` has a tensor of the recorded dtype, sizes and
  /// strides for each result, which does not require grad, and lies over nothing that the step
  /// reads or writes. Where kernels do all of the step (`PlanStats::unprepared` is empty) nothing
  /// is allocated from the third run on. Throws Error (invalid_argument) when a result does not
  /// fit, before anything is run.
  void run_into(std::span<const at::Tensor> inputs, std::span<const at::Tensor> results);
  /// The call of the program whose recording the last `run` replayed, counted from 1; 0: no run
  /// yet.
  std::uint64_t recorded_call() const;
  /// The numbers that the step returned in the last `run`.
  const std::vector<double>& numbers() const;
  /// The same for a step with exactly one result.
  template <typename... Tensors>
  at::Tensor operator()(const Tensors&... inputs) {
    return single(run({inputs...}));
  }
  /// Whether `run` would hold for these inputs, and what stands against it. Where several variants
  /// do not hold for their shapes, the verdict names the shapes that there are.
  Verdict check(const std::vector<at::Tensor>& inputs) const;
  /// Why the last run was not done, or undone in mid-run; holds when it was done.
  const Verdict& last_verdict() const;

  const std::string& name() const;
  /// Whether a run writes state: parameters, module buffers, optimizer state, gradients, counters.
  bool writes_state() const;
  /// How often it ran on this state: in this player, and in those whose snapshots it goes on from.
  std::uint64_t runs() const;
  /// Of the first variant. Not listed are host values, and tensors that the program keeps from one
  /// call to the next in a place of its own, such as a hidden state: these are the player's state.
  std::vector<TensorSpec> inputs() const;
  std::vector<TensorSpec> results() const;
  /// Of each variant, in the order of `variants`.
  std::vector<std::vector<TensorSpec>> inputs_of_variants() const;
  std::vector<PlanStats> variants() const;
  /// What a switch around the step was set to while recording ("threads", "default_dtype", ...),
  /// which `run` needs it to be; empty when the trace does not say.
  std::string ambient(const std::string& name) const;

  /// How the results of the newest run (before one, of the first variant) stood in what the step
  /// returned, as the front end of another language wrote it: "(tensor, {'loss': float})". Empty
  /// for a step of C++.
  std::string structure() const;
  /// Those of each variant, in the order of `variants`.
  std::vector<std::string> structures() const;

  struct Impl;

 private:
  friend class Player;
  explicit PlayerStep(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  static at::Tensor single(std::vector<at::Tensor> results);
  std::shared_ptr<Impl> impl_;
};

/// A trace opened for replay in a process that holds no model code: it owns parameters, module
/// buffers, optimizer state and generators, filled from the trace. One thread at a time calls it
/// and its steps; its clones are players of their own for other threads.
class Player {
 public:
  Player(Player&&) noexcept;
  Player& operator=(Player&&) noexcept;
  ~Player();

  /// Which recording the trace is of, in words; equal for a trace and all snapshots that go on from
  /// it: "host web1, pid 4711, start_unix_s 1795377341, ...".
  std::string origin() const;
  std::vector<std::string> steps() const;
  /// Throws Error: (invalid_argument) that lists the steps there are when none has this name;
  /// (failed_precondition) for a step that writes state, of a clone.
  PlayerStep step(const std::string& name);
  /// Parameters, module buffers, optimizer state, and tensors that steps leave for their next call,
  /// by path.
  std::vector<TensorSpec> state() const;
  /// The parameters among them.
  std::vector<TensorSpec> parameters() const;
  /// Shares the player's memory, that of a tensor which a step leaves for its next call until then;
  /// of a clone, a copy.
  at::Tensor tensor(const std::string& path) const;
  /// Hyperparameters, step counters and declared values that can be set:
  /// "optimizer.param_groups[0].lr", "optimizer.state[model.fc1.weight].step", "tau".
  std::vector<std::string> scalars() const;
  double scalar(const std::string& path) const;
  /// For the steps from now on. Throws Error (invalid_argument) when there is no such number, or
  /// when it is an integer and `value` is none. A value that no variant of a step was recorded for
  /// makes that step throw its verdict.
  void set(const std::string& path, double value);
  /// Seeds the player's default generator and each that was tracked.
  void seed(std::uint64_t value);

  /// Writes the trace with the state as it is now, atomically. Throws Error (io).
  void save(const std::string& path) const;
  /// Writes the state for other programs: safetensors where the name ends in ".safetensors", else a
  /// state dict, which `torch.load(path, weights_only=True)` reads. Atomically. Throws Error: (io);
  /// (unsupported) for a dtype that the format does not know; (failed_precondition) where a trace
  /// or no regular file has that name; (invalid_argument) where nothing lies below
  /// `WeightsOptions::of`.
  void save_weights(const std::string& path, const WeightsOptions& options = {}) const;
  /// Takes the state from such a file, for the steps from now on; clones read it when it is
  /// published. Nothing is changed when this throws Error: (io), (data_loss), (unsupported) of the
  /// file; (invalid_argument) that lists every name, dtype and shape that does not fit.
  void load_weights(const std::string& path, const WeightsOptions& options = {});

  /// From now on writes itself into a folder when a step that writes state has run and the time has
  /// come. What cannot be written is told by events and metrics and tried again by the next step
  /// that is due; training goes on. Throws Error: (invalid_argument); (failed_precondition) when
  /// another player keeps snapshots there, or when it holds one of a training that went further:
  /// go on from that one, or choose another folder; (io) when it cannot be made.
  void keep_snapshots(const SnapshotOptions& options);
  /// Writes one now and returns its path, which is named by how many steps wrote state: one of the
  /// same number is replaced. Throws Error: (failed_precondition) without
  /// keep_snapshots; (io).
  std::string snapshot();

  /// Another player, for another thread, of the steps that write no state. It reads parameters and
  /// module buffers as they were last published, whole, a first time here; arenas, generators (as
  /// they are now) and numbers are its own. Steps of several clones run at the same time, and
  /// beside this player's.
  Player clone();
  /// What clones read from their next call on: the state as it is now. They do not wait, and those
  /// in a call end it on what they began with.
  void publish();

  /// From any thread.
  PlayerMetrics metrics() const;
  PlayerMemory memory() const;
  /// Steps, variants, plans, and in what this process differs from the recording one, in words.
  std::string explain() const;

 private:
  friend Player load(const std::string& path, const LoadOptions& options);
  struct Impl;
  explicit Player(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Opens a trace. Throws Error: (io) no such file; (data_loss) the file is damaged or no trace;
/// (unsupported) an op does not exist in this torch or has another schema, the environment differs,
/// or the trace was saved without state; all reasons at once; (invalid_argument) of the options.
Player load(const std::string& path, const LoadOptions& options = {});

/// The newest whole snapshot in a folder of Player::keep_snapshots, for `load`; empty when there is
/// none. A damaged one, as a loss of power may leave it, is passed over.
std::string newest_snapshot(const std::string& folder);

}  // namespace steptape
