#include "session/variants.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "trace/compare/compare.h"
#include "trace/compare/entry.h"

namespace steptape::session {
namespace {

bool is_among(const Variants::Tried& tried, const Variant& variant) {
  return std::ranges::find(tried, &variant, &std::shared_ptr<const Variant>::get) != tried.end();
}

}  // namespace

std::shared_ptr<Variant> Variants::find(const std::vector<live::Argument>& arguments,
                                        const guards::Declared& declared, const Tried& tried,
                                        std::uint64_t now, guards::Entry& entry,
                                        Mismatches& mismatches) {
  for (const auto& variant : variants_) {
    if (is_among(tried, *variant) || now < variant->resumes_at) continue;
    Verdict found = variant->guards->check(arguments, declared, entry);
    if (found) return variant;
    mismatches.add(*variant, std::move(found));
  }
  return nullptr;
}

void Variants::reset_penalties(const Tried& tried) {
  for (const auto& variant : variants_) {
    if (is_among(tried, *variant) && variant->changes > 0) --variant->changes;
  }
}

void Variants::back_off(Variant& variant, const replayer::AssumptionViolated& changed,
                        std::uint64_t now) {
  constexpr std::uint64_t kCalls = 4;
  // another shape is no other way that the program may take again
  if (changed.code == RefusalCode::kHostRead) variant.resumes_at = now + kCalls;
}

bool Variants::resumes(const trace::Recording& recording, std::uint64_t now) {
  for (const auto& variant : variants_) {
    if (now >= variant->resumes_at) continue;
    if (!trace::same_entry(*variant->recording, recording, trace::Numbers::kAny)) continue;
    if (trace::first_difference(*variant->recording, recording)) continue;
    variant->resumes_at = 0;
    return true;
  }
  return false;
}

bool Variants::note_change(Variant& variant) {
  constexpr std::uint64_t kPatience = 32;
  ++variant.changes;
  if (variant.changes > std::max(kPatience, variant.replays / 4)) return true;
  std::ranges::stable_sort(variants_, std::greater<>(),
                           [](const auto& other) { return other->replays; });
  return false;
}

bool Variants::make_room(std::uint64_t now, std::vector<std::shared_ptr<Variant>>& left) {
  std::vector<Room::Held> held;
  for (const auto& variant : variants_) {
    held.push_back(
        {variant->last_use, variant->executor->program().arena_bytes, variant->last_held != 0});
  }
  const Room::Answer answer = room_.ask(held, now);
  if (!answer.is_free) return false;
  for (const std::size_t position : answer.leaving) left.push_back(variants_[position]);
  for (const auto& variant : left) drop(*variant);
  return true;
}

void Variants::drop(const Variant& variant) {
  std::erase_if(variants_, [&](const auto& other) { return other.get() == &variant; });
}

}  // namespace steptape::session
