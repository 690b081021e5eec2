#include "replayer/runtime/cpu/lanes/section.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "live/op_digest.h"
#include "live/values.h"
#include "replayer/runtime/cpu/lanes/dependences.h"

namespace steptape::replayer::cpu {
namespace {

/// Between one thread's store and another's load that sees it, with the cache lines of what it did.
constexpr double kHandoffNs = 500;
/// To wake the threads that LibTorch keeps waiting, and to wait for the last.
constexpr double kStartNs = 2000;
/// More threads than this share more memory traffic than work, for what fits a section.
constexpr std::size_t kMostLanes = 8;
/// A schedule that promises less is not tried.
constexpr double kWorthwhile = 0.95;

/// LibTorch has more than one thread.
std::size_t most_lanes() {
  return std::min(static_cast<std::size_t>(at::get_num_threads()), kMostLanes);
}

std::uint64_t ns_since(std::chrono::steady_clock::time_point start) {
  const auto passed = std::chrono::steady_clock::now() - start;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
}

/// The bytes of some tensors as they are now, each once.
class Snapshot {
 public:
  explicit Snapshot(const std::vector<at::Tensor>& tensors) {
    std::vector<std::pair<char*, char*>> spans;
    for (const at::Tensor& tensor : tensors) {
      const Use use = Use::of(tensor, true);
      spans.emplace_back(reinterpret_cast<char*>(use.begin), reinterpret_cast<char*>(use.end));
    }
    std::ranges::sort(spans);
    for (const auto& [begin, end] : spans) {
      if (!regions_.empty() && begin <= regions_.back().second) {
        regions_.back().second = std::max(regions_.back().second, end);
      } else {
        regions_.emplace_back(begin, end);
      }
    }
    for (const auto& [begin, end] : regions_) bytes_.insert(bytes_.end(), begin, end);
  }

  void restore() const {
    const char* from = bytes_.data();
    for (const auto& [begin, end] : regions_) {
      const auto size = static_cast<std::size_t>(end - begin);
      std::memcpy(begin, from, size);
      from += size;
    }
  }

  friend bool operator==(const Snapshot&, const Snapshot&) = default;

 private:
  std::vector<std::pair<char*, char*>> regions_;
  std::vector<char> bytes_;
};

}  // namespace

Section::Section(std::span<const Stage> stages, const std::vector<Call>& calls,
                 const Memory& memory) {
  for (const Stage& stage : stages) {
    if (!stage.chain) {
      stages_.push_back(calls[stage.first].kernel.get());
      parts_.push_back(part_of(calls[stage.first], memory));
      continue;
    }
    stages_.push_back(stage.chain.get());
    add_links(*stage.chain);
  }
}

Section::Part Section::part_of(const Call& call, const Memory& memory) {
  Part part{call.kernel.get(), {}, live::written_tensors(call.callee, call.arguments)};
  for (const trace::TensorId id : call.placed) part.written.push_back(memory.tensor(id));
  for (const at::Tensor& tensor : part.written) part.uses.push_back(Use::of(tensor, true));
  for (const c10::IValue& argument : call.arguments) {
    live::for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (tensor.defined()) part.uses.push_back(Use::of(tensor, false));
    });
  }
  for (const Use& use : call.kernel->own_uses()) part.uses.push_back(use);
  return part;
}

void Section::add_links(const Chain& chain) {
  if (chain.knows_its_numbers()) {
    chains_.push_back(&chain);
    for (const auto& link : chain.links()) {
      parts_.push_back({link.get(), link->uses(), link->written()});
    }
    return;
  }
  // whether its links may be done shows only when it is its turn: it is one part
  Part whole{const_cast<Chain*>(&chain), {}, {}};
  for (const auto& link : chain.links()) {
    for (const auto* uses : {&link->uses(), &link->passing_uses()})
      whole.uses.insert(whole.uses.end(), uses->begin(), uses->end());
    const std::vector<at::Tensor> written = link->written();
    whole.written.insert(whole.written.end(), written.begin(), written.end());
  }
  parts_.push_back(std::move(whole));
}

void Section::run() {
  if (!std::ranges::all_of(chains_, &Chain::is_fit)) return run_in_order();
  if (shares_always_) return lanes_->run();
  if (choice_.next() == Way::kCompared && !lanes_) make_lanes();
  const Way way = choice_.next();
  const auto start = std::chrono::steady_clock::now();
  switch (way) {
    case Way::kByJob:
      run_by_part();
      break;
    case Way::kInOrder:
      run_in_order();
      break;
    case Way::kCompared:
      compare();
      break;
    case Way::kShared:
      lanes_->run();
      break;
  }
  choice_.took(way, ns_since(start));
}

void Section::run_in_order() {
  for (Kernel* kernel : stages_) kernel->run();
}

void Section::run_by_part() {
  // as a lane does them: alone, where other threads have come, too
  Team team(2);
  team.run([&](std::size_t member) {
    if (member != 0) return;
    for (Part& part : parts_) {
      const auto start = std::chrono::steady_clock::now();
      part.kernel->run();
      const auto ns = static_cast<double>(ns_since(start));
      part.ns = part.ns == 0 ? ns : std::min(part.ns, ns);
    }
  });
}

/// Forgets what the parts use: it is asked once.
std::vector<Job> Section::jobs() {
  std::vector<std::vector<Use>> uses;
  for (Part& part : parts_) uses.push_back(std::move(part.uses));
  auto after = dependences_of(uses);
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    jobs.push_back({parts_[i].ns, std::move(after[i])});
  return jobs;
}

void Section::make_lanes() {
  const std::vector<Job> parts = jobs();
  Schedule best;
  double best_ns = static_cast<double>(choice_.in_order_ns()) - kStartNs;
  for (std::size_t count = 2; count <= most_lanes(); ++count) {
    Schedule made = schedule(parts, count, kHandoffNs);
    // a thread more must be worth it, too
    if (made.ns > kWorthwhile * best_ns) continue;
    best_ns = made.ns;
    best = std::move(made);
  }
  if (best.lanes.empty()) return choice_.give_up();
  make_lanes(std::move(best));
}

void Section::make_lanes(Schedule schedule) {
  lane_count_ = schedule.lanes.size();
  std::vector<Kernel*> kernels;
  for (const Part& part : parts_) kernels.push_back(part.kernel);
  lanes_ = std::make_unique<Lanes>(std::move(schedule), std::move(kernels));
}

void Section::share_always() {
  for (Part& part : parts_) part.ns = 1;
  make_lanes(schedule(jobs(), most_lanes(), 0));
  shares_always_ = true;
}

void Section::compare() {
  std::vector<at::Tensor> written;
  for (const Part& part : parts_)
    written.insert(written.end(), part.written.begin(), part.written.end());
  const Snapshot before(written);
  run_in_order();
  const Snapshot in_order(written);
  before.restore();
  lanes_->run();
  if (Snapshot(written) == in_order) return;
  in_order.restore();
  differed_ = true;
  choice_.give_up();
}

SectionStats Section::stats() const {
  return {.stages = stages_.size(),
          .lanes = choice_.shares() || shares_always_ ? lane_count_ : 1,
          .in_order_ns = choice_.in_order_ns(),
          .shared_ns = choice_.shared_ns(),
          .differed = differed_};
}

namespace {

/// Of one call; of several, their chain runs anywhere.
bool runs_anywhere(const Stage& stage, const std::vector<Call>& calls) {
  for (std::size_t i = stage.first; i < stage.first + stage.count; ++i) {
    const Call& call = calls[i];
    if (call.is_once || call.may_throw || !call.kernel || !call.kernel->runs_anywhere())
      return false;
  }
  return true;
}

}  // namespace

std::vector<PlacedSection> sections_of(const std::vector<Stage>& stages,
                                       const std::vector<Call>& calls, std::size_t border,
                                       const Memory& memory, SideBySide side_by_side) {
  std::vector<PlacedSection> sections;
  if (side_by_side == SideBySide::kNever || at::get_num_threads() < 2) return sections;
  std::size_t first = 0;
  const auto end_at = [&](std::size_t end) {
    const std::size_t count = end - first;
    const std::span<const Stage> inside(stages.data() + first, count);
    Section section(inside, calls, memory);
    if (side_by_side == SideBySide::kAlways && section.has_parts()) section.share_always();
    if (section.has_parts()) sections.push_back({first, count, std::move(section)});
    first = end;
  };
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].first == border) end_at(i);
    if (runs_anywhere(stages[i], calls)) continue;
    end_at(i);
    first = i + 1;
  }
  end_at(stages.size());
  return sections;
}

}  // namespace steptape::replayer::cpu
