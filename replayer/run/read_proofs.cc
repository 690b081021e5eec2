#include "replayer/run/read_proofs.h"

#include <utility>

#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

thread_local const ReadProofs* current_proofs = nullptr;

}  // namespace

ReadProofs::ReadProofs(const trace::Recording& recording) {
  for (const trace::HostRead& read : recording.reads)
    numbers_.push_back({trace::read_path(read.op)});
  add(numbers_at(recording));
}

bool ReadProofs::holds(trace::Index read, double value) const {
  const Read& number = numbers_[read];
  return number.is_pinned ? number.proved.is_among(value) : number.proved.holds(value);
}

void ReadProofs::add(const Numbers& numbers) {
  for (Read& read : numbers_) {
    const auto found = numbers.find(read.path);
    if (found != numbers.end()) read.proved.add(found->second);
  }
}

bool ReadProofs::pin_others(const Numbers& numbers) {
  bool any = false;
  for (Read& read : numbers_) {
    const auto found = numbers.find(read.path);
    if (found == numbers.end() || read.is_pinned || read.proved.holds(found->second)) continue;
    any = read.is_pinned = true;
  }
  return any;
}

const ReadProofs* ReadProofs::current() noexcept { return current_proofs; }

ReadProofs::Scope::Scope(const ReadProofs* proofs)
    : previous_(std::exchange(current_proofs, proofs)) {}

ReadProofs::Scope::~Scope() { current_proofs = previous_; }

}  // namespace steptape::replayer
