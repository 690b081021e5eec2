#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "replayer/player/publication.h"
#include "steptape/player.h"
#include "storage/trace/snapshot_folder.h"
#include "trace/model.h"

namespace steptape::replayer {

/// The memory that a player owns: parameters, module buffers, optimizer state, gradients and
/// generator states, by the paths that recordings give their buffers.
class PlayerState {
 public:
  /// Where each buffer lies, by its path.
  using Devices = std::map<std::string, c10::Device>;

  /// Copies the bytes of `saved` into memory with the address remainders they had. Saved entries
  /// are memory where `buffers` has their path, whatever it looks like. Throws Error (data_loss)
  /// when a generator's state is none.
  PlayerState(const std::vector<trace::Saved>& saved, const Devices& buffers);
  /// Of a clone: numbers and generators of `other` as they are now, and memory that is read as it
  /// was published.
  PlayerState(const PlayerState& other, std::shared_ptr<Publication> publication);
  ~PlayerState();
  PlayerState(const PlayerState&) = delete;
  PlayerState& operator=(const PlayerState&) = delete;

  /// Whether its memory is read as others write it, and must not be written.
  bool is_shared() const { return publication_ != nullptr; }
  /// Takes up what was published last. After it `version` is another where that is new; storages of
  /// the host that were found before may then be written by others. On a device graphs know the
  /// memory by its address: there it is copied into that of the clone.
  void renew();
  std::uint64_t version() const { return version_; }

  bool holds(const std::string& path) const { return buffers_.contains(path); }
  /// Whether a parameter has the gradient of this path: of a clone, had it when it was published.
  bool has_gradient(const std::string& path) const {
    return publication_ ? reading_.from->gradients.contains(path) : holds(path);
  }
  const c10::Storage& storage(const std::string& path) const { return buffers_.at(path); }
  void put(const std::string& path, const c10::Storage& storage);
  void erase(const std::string& path) { buffers_.erase(path); }

  /// A tensor at a place of the program's, as a step finds it.
  struct Carried {
    std::string path;  ///< of its memory; "" where it is the program's to say
    trace::Tensor geometry;
    std::uint64_t bytes = 0;  ///< of its memory
    c10::Device device = c10::kCPU;
    friend bool operator==(const Carried&, const Carried&) = default;
  };
  /// False where another recording has found it otherwise.
  bool carry(const std::string& place, const Carried& found) {
    const auto [known, is_new] = carried_.try_emplace(place, found);
    return is_new || known->second == found;
  }
  /// As `carry` was told; null where no recording finds it.
  const Carried* carried(const std::string& place) const {
    const auto found = carried_.find(place);
    return found == carried_.end() ? nullptr : &found->second;
  }
  /// Of what kind what stands in a place is (trace::HeldPlace); null where that was not saved.
  const std::string* kind(const std::string& place) const {
    const auto found = kinds_.find(place);
    return found == kinds_.end() ? nullptr : &found->second;
  }
  void set_kind(const std::string& place, const std::string& kind) { kinds_[place] = kind; }
  const std::map<std::string, std::string>& kinds() const { return kinds_; }
  /// A step finds or leaves something of this kind there.
  void know_kind(const std::string& place, const std::string& kind) {
    known_kinds_.emplace(place, kind);
  }
  bool knows_kind(const std::string& place, const std::string& kind) const {
    return known_kinds_.contains({place, kind});
  }

  /// A hyperparameter, step counter, declared value or argument; null where there is none. Stays
  /// where it is as long as this object.
  trace::Value* number(const std::string& path);
  std::vector<std::string> numbers() const;
  /// Those of a place and of what is in it: "o.param_groups[0].betas[1]".
  std::vector<std::string> numbers_at(const std::string& place) const;
  const std::map<std::string, trace::Value>& saved_numbers() const { return numbers_; }
  /// Why a number of this path cannot become `value`: "2.5 is not an integer"; empty: it can, or
  /// there is none.
  std::string mismatch(const std::string& path, const trace::Value& value) const;
  /// Sets one that exists, keeping its kind; `value` must fit. False where there is none.
  bool set_number(const std::string& path, const trace::Value& value);
  /// Whether it was set since it was saved.
  bool was_set(const std::string& path) const { return set_.contains(path); }
  /// A declared value or an argument: stays as recorded until it is set.
  void declare(const std::string& name, const trace::Value& recorded, const trace::Recording& by) {
    if (numbers_.try_emplace(name, recorded).second) declared_by_.emplace(name, &by);
  }
  /// A declared value that the program looks up under other numbers of this object's, by their
  /// paths: it is right where all were saved or are of one recording, while those are what they
  /// were then, or when the value was set last.
  void declare_lookup(const std::string& name, std::vector<std::string> under);
  /// Before a call: the number that leads elsewhere than to the looked-up value; "" where none
  /// does.
  std::string stale_under(const std::string& name);

  /// A tracked generator of the trace, the player's own, or the process's default one of a device.
  /// Throws Error (unsupported) when the trace holds no state for it.
  at::Generator generator(const std::string& path);
  /// "default" and those of the trace.
  std::vector<std::string> generators() const;
  /// The state of one of them, bytes.
  at::Tensor generator_state(const std::string& path) const;
  /// Throws c10::Error when it is none.
  void set_generator_state(const std::string& path, const at::Tensor& state);
  /// Whether the generator can be in this state.
  bool takes_generator_state(const std::string& path, const at::Tensor& state) const;
  /// Seeds all of them.
  void seed(std::uint64_t value);

  /// How often a step ran on this state. Stays where it is as long as this object.
  std::uint64_t& runs_of(const std::string& step) { return runs_[step]; }

  const Publication::Memory& memory() const { return buffers_; }
  /// Of all of it.
  std::uint64_t bytes() const;

  /// What a trace of this moment holds.
  std::vector<trace::Saved> save() const;

  /// Runs ops with the player's default generators in place of the process's, which are put back.
  /// One thread at a time: others wait.
  class DefaultGenerator {
   public:
    explicit DefaultGenerator(PlayerState& state);
    ~DefaultGenerator();
    DefaultGenerator(const DefaultGenerator&) = delete;
    DefaultGenerator& operator=(const DefaultGenerator&) = delete;

   private:
    std::unique_lock<std::mutex> lock_;
    void exchange();

    PlayerState& state_;
    std::map<std::string, at::Tensor> others_;  ///< states of those that are not in use
  };

 private:
  /// One of the same kind, which nobody draws from.
  at::Generator like(const std::string& generator) const;

  Publication::Memory buffers_;
  std::map<std::string, Carried> carried_;
  std::map<std::string, std::string> kinds_;
  std::set<std::pair<std::string, std::string>> known_kinds_;
  std::map<std::string, trace::Value> numbers_;
  std::map<std::string, at::Generator> generators_;
  std::map<std::string, at::Tensor> default_generators_;  ///< states, of the CPU's and of devices'
  std::map<std::string, std::uint64_t> runs_;
  std::set<std::string> set_;
  std::map<std::string, const trace::Recording*> declared_by_;  ///< of those that were not saved
  struct Lookup {
    std::vector<std::string> under;
    std::vector<std::optional<trace::Value>> at;  ///< what they were; none: not known
    bool is_set = false;                          ///< since it was asked for last
  };
  /// The first that leads elsewhere, or "".
  std::string stale_under(const Lookup& lookup) const;
  std::map<std::string, Lookup> lookups_;
  std::shared_ptr<Publication> publication_;
  Publication::Reading reading_;
  std::uint64_t version_ = 0;
};

/// When snapshots of a player are due, and where they are.
class Snapshots {
 public:
  /// Makes the folder and takes it; `runs` as in `path_of`. Throws Error: (invalid_argument);
  /// (failed_precondition) when another player has it, or when it holds a whole snapshot of more
  /// runs; (io).
  Snapshots(const SnapshotOptions& options, std::uint64_t runs);

  /// A step wrote state; whether a snapshot is due for it.
  bool is_due_after_step();
  /// Where the snapshot of a state belongs on which steps ran so often in all. One of the same
  /// number is replaced.
  std::string path_of(std::uint64_t runs) const { return folder_.path_of(runs).string(); }
  /// It was written: the next one is due from now on, and the oldest go.
  void written(std::uint64_t runs);

 private:
  SnapshotOptions options_;
  storage::SnapshotFolder folder_;
  std::uint64_t steps_ = 0;  ///< since the last one
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace steptape::replayer
