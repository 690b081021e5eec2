#include "session/declarations.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "guards/mismatch.h"
#include "live/contents.h"
#include "live/tensors.h"
#include "session/arguments.h"
#include "trace/numbers.h"

namespace steptape::session {

bool Declarations::has(const std::string& name) const {
  return std::ranges::find(host_values_, name, &Declaration::name) != host_values_.end() ||
         std::ranges::find(facts_, name, &Declaration::name) != facts_.end();
}

void Declarations::note_use(const std::string& name) {
  const auto found = std::ranges::find(host_values_, name, &Declaration::name);
  if (found != host_values_.end()) found->is_used = true;
}

guards::Declared Declarations::ask() const {
  guards::Declared declared;
  for (const Declaration& value : host_values_) {
    declared.host_values.push_back(argument_of(value.function()).fact);
  }
  for (const Declaration& fact : facts_) {
    declared.facts.push_back(argument_of(fact.function()).fact);
  }
  return declared;
}

Declarations::Call::Call(Declarations& declarations)
    : declarations_(declarations), is_outermost_(!declarations.now_) {
  if (!is_outermost_) return;
  for (Declaration& value : declarations_.host_values_) value.is_used = false;
  declarations_.now_ = declarations_.ask();
}

Declarations::Call::~Call() {
  if (!is_outermost_) return;
  declarations_.last_ = *std::move(declarations_.now_);
  declarations_.now_.reset();
}

void Declarations::describe(const guards::Declared& declared, trace::Recording& recording) const {
  for (std::size_t i = 0; i < host_values_.size(); ++i) {
    const Declaration& value = host_values_[i];
    const bool is_unused = value.tells_use && !value.is_used;
    recording.host_values.push_back(
        {value.name, is_unused ? trace::Value() : declared.host_values[i]});
    if (!value.under.empty()) recording.lookups.push_back({value.name, value.under});
  }
  for (std::size_t i = 0; i < facts_.size(); ++i) {
    recording.facts.push_back({facts_[i].name, declared.facts[i]});
  }
}

namespace {

const Declarations::Held* held_at(const std::vector<Declarations::Held>& all,
                                  const trace::Recording& recording, trace::Index place) {
  if (place == trace::kNone) return nullptr;
  const auto held = std::ranges::find(all, recording.held[place].path, &Declarations::Held::path);
  return held == all.end() ? nullptr : &*held;
}

}  // namespace

void Declarations::describe_places(trace::Recording& recording) const {
  if (recording.held.empty()) return;
  const std::vector<Held> all = look_ ? look_() : std::vector<Held>();
  const auto is_left = [&](trace::Index place) {
    const Held* held = held_at(all, recording, place);
    return held != nullptr && held->is_left;
  };
  for (trace::Index i = 0; i < recording.held.size(); ++i) {
    if (!is_left(i)) recording.held[i].rule = trace::HeldPlace::Rule::kGiven;
  }
  trace::carry_on(recording, [&](const trace::HeldInput& place) { return is_left(place.place); });
}

std::vector<trace::Saved> Declarations::kinds() const {
  std::vector<trace::Saved> saved;
  for (const Held& held : look_ ? look_() : std::vector<Held>()) {
    if (held.is_left) saved.push_back(trace::saved_kind(held.path, held.kind));
  }
  return saved;
}

std::optional<std::vector<trace::Saved>> Declarations::carried(
    const trace::Recording& recording) const {
  std::vector<trace::Saved> saved;
  if (recording.held.empty()) return saved;
  const std::vector<Held> all = look_ ? look_() : std::vector<Held>();
  // as of all that is the program's to say, what stands there as the trace is saved counts
  for (trace::Index i = 0; i < recording.held.size(); ++i) {
    const Held* held = held_at(all, recording, i);
    const bool is_given = recording.held[i].rule == trace::HeldPlace::Rule::kGiven;
    if (is_given && held != nullptr && held->kind != recording.held[i].found) return std::nullopt;
  }
  std::map<std::string, const void*> starts;
  for (const trace::HeldInput& place : recording.places) {
    // it is given what cannot be carried on
    if (!place.is_carried || place.input == trace::kNone) continue;
    const Held* held = held_at(all, recording, place.place);
    if (held == nullptr) return std::nullopt;
    if (held->kind != recording.held[place.place].found) continue;
    const auto found =
        std::ranges::find(held->tensors, place.path, &std::pair<std::string, at::Tensor>::first);
    if (found == held->tensors.end()) return std::nullopt;
    const at::Tensor& tensor = found->second;
    const trace::Tensor& geometry = trace::tensor_in(recording, place);
    const trace::Buffer& buffer = recording.buffers[geometry.buffer];
    if (live::unplannable_kind(tensor) || live::device_of(buffer.device) != tensor.device() ||
        !guards::has_geometry(tensor, geometry, live::scalar_type_of(geometry.dtype)))
      return std::nullopt;
    const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
    const auto width = static_cast<std::int64_t>(tensor.element_size());
    const std::int64_t first = (tensor.storage_offset() - geometry.offset) * width;
    if (first < 0 || static_cast<std::uint64_t>(first) + buffer.bytes > storage.nbytes())
      return std::nullopt;
    const void* start = static_cast<const std::byte*>(storage.data()) + first;
    const std::string& memory = trace::first_in_memory_of(recording, place).path;
    const auto [known, is_new] = starts.try_emplace(memory, start);
    if (known->second != start) return std::nullopt;
    if (!is_new) continue;
    saved.push_back({memory, static_cast<std::uint8_t>(std::bit_cast<std::uintptr_t>(start) % 64),
                     live::blob_of({start, tensor.device(), buffer.bytes})});
  }
  return saved;
}

bool Declarations::fits_places(const trace::Recording& recording) const {
  return carried(recording) &&
         std::ranges::all_of(recording.host_values, [this](const trace::NamedValue& was) {
           const auto place = std::ranges::find(host_values_, was.name, &Declaration::name);
           if (place == host_values_.end() || !place->is_place) return true;
           const trace::Value now = argument_of(place->function()).fact;
           const bool is_of_its_kind = was.value.data.index() == now.data.index();
           return (trace::is_number(was.value) && is_of_its_kind) || was.value == now;
         });
}

std::vector<trace::Saved> Declarations::numbers() const {
  std::vector<trace::Saved> saved;
  const auto add = [&saved](const std::string& path, const trace::Value& value) {
    saved.push_back({path, 0, nullptr, value});
  };
  for (std::size_t i = 0; i < last_.host_values.size(); ++i) {
    const Declaration& declared = host_values_[i];
    trace::for_each_number(
        declared.name,
        declared.is_place ? argument_of(declared.function()).fact : last_.host_values[i], add);
  }
  for (std::size_t i = 0; i < last_.facts.size(); ++i) {
    trace::for_each_number(facts_[i].name, last_.facts[i], add);
  }
  return saved;
}

}  // namespace steptape::session
