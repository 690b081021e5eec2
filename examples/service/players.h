#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "steptape/player.h"

namespace service {

/// One player that learns, and clones of it that predict, for as many threads as ask.
class Players {
 public:
  /// `path` is a trace, or a snapshot of one that learned already.
  Players(const std::string& path, const steptape::LoadOptions& options, std::size_t clones)
      : learner_(steptape::load(path, options)) {
    for (std::size_t i = 0; i < clones; ++i) idle_.push_back(learner_.clone());
  }

  /// `use(player)` with a clone that nobody else uses meanwhile; waits for one.
  template <typename Use>
  auto predict(Use use) {
    const Lease lease(*this);
    return use(*lease.player);
  }

  /// `use(player)` with the one that learns, one at a time. What it learned is published after it.
  template <typename Use>
  auto learn(Use use) {
    const std::lock_guard lock(learning_);
    auto result = use(learner_);
    learner_.publish();
    return result;
  }

  /// Waits for nobody.
  steptape::PlayerMetrics metrics() const { return learner_.metrics(); }

  /// The same without a publication.
  template <typename Use>
  auto look(Use use) {
    const std::lock_guard lock(learning_);
    return use(learner_);
  }

 private:
  struct Lease {
    explicit Lease(Players& from) : players(from) {
      std::unique_lock lock(players.mutex_);
      players.returned_.wait(lock, [&] { return !players.idle_.empty(); });
      player.emplace(std::move(players.idle_.back()));
      players.idle_.pop_back();
    }
    ~Lease() {
      {
        const std::lock_guard lock(players.mutex_);
        players.idle_.push_back(std::move(*player));
      }
      players.returned_.notify_one();
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    Players& players;
    mutable std::optional<steptape::Player> player;
  };

  std::mutex learning_;
  steptape::Player learner_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<steptape::Player> idle_;
};

}  // namespace service
