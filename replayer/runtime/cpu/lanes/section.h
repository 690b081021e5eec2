#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "replayer/runtime/cpu/lanes/choice.h"
#include "replayer/runtime/cpu/lanes/lanes.h"
#include "replayer/runtime/cpu/lanes/section_stats.h"
#include "replayer/runtime/cpu/stages.h"
#include "replayer/runtime/memory.h"

namespace steptape::replayer::cpu {

/// Stages that follow each other, by kernels that run anywhere. Runs them in order at first, and
/// takes the time of each of their independent parts; then, where a schedule for several threads
/// promises to gain by it, shared out, if the trial run leaves the same bits and is faster indeed.
class Section {
 public:
  /// The stages and their calls must stay where they are and outlive it.
  Section(std::span<const Stage> stages, const std::vector<Call>& calls, const Memory& memory);

  /// From now on it is shared out, whether that is faster or not. Its trial is left out.
  void share_always();

  /// Their memory is made. Throws what a kernel throws.
  void run();

  /// Whether there is anything to share out.
  bool has_parts() const { return parts_.size() > 1; }
  SectionStats stats() const;

 private:
  /// A part that one thread does.
  struct Part {
    Kernel* kernel = nullptr;
    std::vector<Use> uses;
    std::vector<at::Tensor> written;
    double ns = 0;  ///< the least it took
  };

  static Part part_of(const Call& call, const Memory& memory);
  void add_links(const Chain& chain);
  void run_in_order();
  void run_by_part();
  std::vector<Job> jobs();
  void make_lanes();
  void make_lanes(Schedule schedule);
  void compare();

  std::vector<Kernel*> stages_;
  std::vector<const Chain*> chains_;  ///< whose links are parts
  std::vector<Part> parts_;
  std::size_t lane_count_ = 1;
  bool shares_always_ = false;
  Choice choice_;
  std::unique_ptr<Lanes> lanes_;
  bool differed_ = false;
};

/// A section and the stage it begins with.
struct PlacedSection {
  std::size_t first = 0;
  std::size_t count = 0;
  Section section;
};

/// The sections of a plan, in order. In none are stages that are done once, that a thread of
/// LibTorch's cannot do beside others, and that may throw because of what they read. None reaches
/// over the call `border`. Where LibTorch has one thread there are none.
std::vector<PlacedSection> sections_of(const std::vector<Stage>& stages,
                                       const std::vector<Call>& calls, std::size_t border,
                                       const Memory& memory, SideBySide side_by_side);

}  // namespace steptape::replayer::cpu
