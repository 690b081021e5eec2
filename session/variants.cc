#include "session/variants.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "session/variant.h"
#include "trace/compare/compare.h"

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

void Mismatches::begin(std::uint64_t call) {
  call_ = call;
  all_.clear();
}

void Mismatches::add(const Variant& variant, Verdict verdict) {
  std::erase_if(all_, [&](const VariantVerdict& other) { return other.variant == variant.number; });
  const std::uint64_t last_held = variant.last_held == 0 ? 0 : call_ - variant.last_held;
  all_.push_back({variant.number, std::move(verdict), last_held});
}

namespace {

std::size_t count_unreturned(const std::vector<Room::Held>& held) {
  return static_cast<std::size_t>(
      std::ranges::count_if(held, [](const Room::Held& each) { return !each.is_returned; }));
}

}  // namespace

Room::Answer Room::ask(const std::vector<Held>& held, std::uint64_t now) {
  const bool has_unreturned = count_unreturned(held) >= kMostUnreturned;
  std::size_t count = held.size();
  std::uint64_t bytes = 0;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < held.size(); ++i) {
    bytes += held[i].bytes;
    order.push_back(i);
  }
  // where none of many was of use, it is one of those that leaves
  std::ranges::stable_sort(order, {}, [&](std::size_t i) {
    return std::pair(has_unreturned && held[i].is_returned, held[i].last_use);
  });
  Answer answer;
  const auto is_full = [&] {
    return count >= most_ || (count >= kMostOfAnySize && bytes >= kMostBytes) ||
           (has_unreturned && answer.leaving.empty());
  };
  for (const std::size_t i : order) {
    if (!is_full()) break;
    answer.leaving.push_back(i);
    --count;
    bytes -= held[i].bytes;
  }
  answer.is_free = !is_full() && (answer.leaving.empty() || pay(held[answer.leaving.back()], now));
  if (!answer.is_free) unpaid_ = 0;
  return answer;
}

bool Room::pay(const Held& leaving, std::uint64_t now) {
  if (credit_ >= kWorth) {
    credit_ -= kWorth;
    return true;
  }
  if (leaving.last_use + kLong >= now || unpaid_ >= kMostUnpaid) return false;
  ++unpaid_;
  return true;
}

}  // namespace steptape::session
