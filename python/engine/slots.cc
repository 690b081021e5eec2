#include "python/engine/slots.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "python/engine/arguments.h"
#include "python/engine/followed.h"
#include "python/engine/structure.h"
#include "python/engine/type_watch.h"

namespace steptape::python {
namespace {

py::object part_of_function(PyObject* function, const std::string& name) {
  if (name == "__code__") return borrowed(PyFunction_GET_CODE(function));
  return borrowed(name == "__defaults__" ? PyFunction_GET_DEFAULTS(function)
                                         : PyFunction_GET_KW_DEFAULTS(function));
}

/// How often a cache was emptied, as far as it shows: it counts its calls anew then, and has fewer
/// than when anyone looked last.
std::uint64_t generation_of(PyObject* function, long long calls) {
  struct Seen {
    PyObject* weak = nullptr;  ///< never let go of
    long long calls = 0;
    std::uint64_t generation = 0;
  };
  static auto* all = new std::unordered_map<PyObject*, Seen>();
  Seen& seen = (*all)[function];
  if (seen.weak == nullptr || referent_of(seen.weak) != function) {
    seen = {PyWeakref_NewRef(function, nullptr), 0, seen.generation + 1};
    PyErr_Clear();
  }
  if (calls < seen.calls) ++seen.generation;
  seen.calls = calls;
  return seen.generation;
}

/// Its misses and its size: while these stay, and it was not emptied, it gives for an argument what
/// it gave before.
py::object cached_by(PyObject* function) {
  const py::object info = taken(PyObject_CallMethod(function, "cache_info", nullptr));
  if (!info || !PyTuple_Check(info.ptr()) || PyTuple_GET_SIZE(info.ptr()) != 4) return {};
  const auto counted = py::cast<std::tuple<long long, long long, py::object, long long>>(info);
  const auto [hits, misses, most, size] = counted;
  return py::make_tuple(misses, size, generation_of(function, hits + misses));
}

py::object has(PyObject* holder, PyObject* key) {
  const int found =
      PyAnySet_Check(holder) ? PySet_Contains(holder, key) : PyDict_Contains(holder, key);
  if (found < 0) PyErr_Clear();
  return py::bool_(found == 1);
}

Slot::Kind kind_of_place(PyObject* owner, PyObject* key) {
  using Kind = Slot::Kind;
  if (is_member(key)) return Kind::kMember;
  if (PyCell_Check(owner)) return Kind::kCell;
  if (PyDict_Check(owner)) return Kind::kEntry;
  if (PyType_Check(owner)) return Kind::kAttribute;
  return PyList_Check(owner) || is_deque(owner) ? Kind::kItem : Kind::kMember;
}

/// Of each object the first one that is the same.
std::vector<std::size_t> first_alike(const std::vector<PyObject*>& objects) {
  std::vector<std::size_t> first;
  for (PyObject* object : objects)
    first.push_back(static_cast<std::size_t>(std::ranges::find(objects, object) - objects.begin()));
  return first;
}

/// Whether an assignment left what a guard has found there already: `self.list += [x]`. Numbers and
/// texts are assigned again all the same, which costs little.
bool is_as_found(const Slot& slot, PyObject* value) {
  return slot.is_guarded && !is_atom(value) && !holds_followed(value);
}

/// The keys of a dict, in its order; null of any other object.
py::object keys_of(PyObject* dict) {
  if (!PyDict_Check(dict) || !has_own_order(dict)) return taken(PyDict_Keys(dict));
  py::list keys;
  for (const auto& [key, value] : entries_of(dict)) keys.append(borrowed(key));
  return keys;
}

}  // namespace

py::object Slot::value() const {
  PyObject* holder = owner.get();
  if (holder == nullptr) return {};
  switch (kind) {
    case Kind::kEntry:
    case Kind::kState:
    case Kind::kCell:
    case Kind::kItem:
    case Kind::kAttribute:
    case Kind::kMember:
      return held_at(holder, key.get());
    case Kind::kSize:
      return py::int_(std::max<Py_ssize_t>(0, size_of(holder)));
    case Kind::kMost:
      return py::float_(most_of(holder));
    case Kind::kHas:
      return has(holder, key.get());
    case Kind::kKeys:
      return keys_of(holder);
    case Kind::kContent:
    case Kind::kWhole:
      return borrowed(holder);
    case Kind::kClass:
      return borrowed(reinterpret_cast<PyObject*>(Py_TYPE(holder)));
    case Kind::kFunction:
      return part_of_function(holder, text_of(key.get()));
    case Kind::kNamespace:
      return borrowed(dict_of(holder));
    case Kind::kVariable: {
      PyObject* held = nullptr;
      if (PyContextVar_Get(holder, nullptr, &held) != 0) PyErr_Clear();
      return stolen(held);
    }
    case Kind::kCache:
      return cached_by(holder);
    case Kind::kReferent:
      return borrowed(referent_of(holder));
    case Kind::kHandled:
      return handled_exception();
    case Kind::kRunning:
      return taken(PyObject_CallNoArgs(holder));
    case Kind::kLocked:
      return borrowed(holder).attr("locked")();
    case Kind::kHolder:
      return borrowed(holder_of(holder, key.get()));
    case Kind::kMethods:
      return methods_of(as_type(holder));
  }
  return {};
}

Plain Slot::plain(Roots& roots, const py::object& value) const {
  if (kind == Kind::kContent || kind == Kind::kKeys) return Plain::content(roots, value.ptr());
  if (kind == Kind::kWhole) return Plain::whole(roots, value.ptr());
  if (kind == Kind::kState) return {roots, value.ptr()};
  return Plain::reference(roots, value.ptr());
}

SlotWatch::SlotWatch(Roots& roots, MovingPlaces& moving) : roots_(roots), moving_(moving) {
  for (const MovingPlaces::Place& place : moving.places()) {
    if (place.owner.get() == nullptr || place.is_object()) continue;
    Slot slot{kind_of_place(place.owner.get(), place.key.get()), place.name,
              Root::guarding(roots, place.owner.get()), Root(roots, place.key.get()), false};
    const py::object held = slot.value();
    slots_.push_back(std::move(slot));
    values_.push_back(place.is_argument ? Plain::identity(roots, held.ptr())
                                        : Plain::reference(roots, held.ptr()));
  }
}

std::size_t SlotWatch::add(Slot slot, const py::object& value) {
  values_.push_back(slot.plain(roots_, value));
  values_.back().let_move(value.ptr(), moving_);
  const bool may_be_replaced = slot.is_assignable() && slot.kind != Slot::Kind::kAttribute &&
                               slot.kind != Slot::Kind::kMember;
  // what one that the step has changed held before is not known any more
  const auto is_changed = [this](PyObject* each) { return is_changed_in_place(each); };
  if (value && may_be_replaced && is_compared_by_content(value.ptr()) &&
      are_parts_apart(value.ptr(), is_changed)) {
    // what is in it by value, or as the very object, which slots of its own go on asking
    containers_.emplace_back(slots_.size(), Plain(roots_, value.ptr()));
    containers_.back().second.let_move(value.ptr(), moving_);
  }
  slots_.push_back(std::move(slot));
  return slots_.size() - 1;
}

bool SlotWatch::same(std::size_t position) const {
  const Slot& slot = slots_[position];
  const bool has_version = slot.kind == Slot::Kind::kMethods && slot.owner.get() != nullptr;
  auto* type = as_type(slot.owner.get());
  if (has_version && slot.version != 0 && slot.version == type->tp_version_tag) return true;
  const bool is_same = values_[position].same(slot.value().ptr());
  if (has_version && is_same) slot.version = version_of(type);
  return is_same;
}

bool SlotWatch::is_gone(std::size_t position) const {
  const Slot& slot = slots_[position];
  return slot.kind == Slot::Kind::kItem && slot.is_written && held_some(position) && !slot.value();
}

Verdict SlotWatch::mismatch(std::size_t position) const {
  const Slot& slot = slots_[position];
  const py::object now = slot.value();
  const Change change = values_[position].change(now.ptr());
  return {"." + slot.path + change.path, change.was, shown(change.after.ptr())};
}

bool SlotWatch::was_replaced(std::size_t position, PyObject* now) const {
  if (holds_containers_ || now == nullptr) return false;
  const auto found = std::ranges::lower_bound(containers_, position, {},
                                              [](const auto& entry) { return entry.first; });
  return found != containers_.end() && found->first == position && found->second.same(now) &&
         are_parts_apart(now);
}

bool SlotWatch::moves(std::size_t position) const {
  const Slot& slot = slots_[position];
  if (!slot.is_guarded || !slot.is_assignable()) return false;
  // what code of C's makes of the object, such as `maxlen`
  if (slot.kind == Slot::Kind::kMember && Py_TYPE(slot.key.get()) != &PyMemberDescr_Type)
    return false;
  const py::object now = slot.value();
  if (!now || values_[position].same(now.ptr())) return false;
  // made when it was first needed, as the scale of a GradScaler: it may stay that object from now
  // on
  if (values_[position].is_none() && is_tensor(now.ptr())) return false;
  const bool is_looked_up =
      slot.kind == Slot::Kind::kItem && is_from_the_end(slot.key.get()) && !slot.is_written;
  if (values_[position].is_number()) return is_plain_number(now.ptr()) && !is_looked_up;
  // a record that the step itself puts in the place of the one before
  PyObject* const before = values_[position].object();
  const bool is_changed = slot.is_written && is_changed_in_place(before);
  if (is_changed && !is_plain_object(before)) return false;  // the other one stands for it
  const bool is_record = slot.is_written && !is_changed && before != nullptr &&
                         Py_TYPE(before) == Py_TYPE(now.ptr()) &&
                         (PyTuple_Check(now.ptr()) || is_plain_object(now.ptr()));
  return may_be_argument(now.ptr(), is_record || values_[position].is_replaced_by(now.ptr()));
}

bool SlotWatch::is_exchanged(std::size_t position) const {
  const Slot& slot = slots_[position];
  if (!slot.is_guarded || !slot.is_assignable()) return false;
  // one that the step puts there may be the same each time
  if (slot.is_written && !is_changed_in_place(values_[position].object())) return false;
  const py::object now = slot.value();
  return now && values_[position].may_be(now.ptr());
}

/// Whether the step changes what is in a container or object.
bool SlotWatch::is_changed_in_place(PyObject* held) const {
  if (held == nullptr) return false;
  PyObject* const attributes = dict_of(held);
  return std::ranges::any_of(slots_, [held, attributes](const Slot& slot) {
    PyObject* const owner = slot.owner.get();
    return (slot.is_changed || slot.is_written) && owner != nullptr &&
           (owner == held || owner == attributes);
  });
}

void SlotWatch::note_moving() const {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (moves(i)) {
      moving_.note(slots_[i].path, slots_[i].owner.get(), slots_[i].key.get(), values_[i].object());
    } else if (is_exchanged(i)) {
      moving_.note_object(slots_[i].path, slots_[i].owner.get(), slots_[i].key.get(),
                          values_[i].object());
    }
    if (is_written_array(i)) moving_.note(slots_[i].path, slots_[i].owner.get(), nullptr);
    for (const py::object& key : moving_items(i)) {
      moving_.note(slots_[i].path + "[" + shown(key.ptr()) + "]", slots_[i].owner.get(), key.ptr());
    }
  }
}

/// Its items are other ones now.
bool SlotWatch::is_written_array(std::size_t position) const {
  PyObject* owner = slots_[position].owner.get();
  return slots_[position].kind == Slot::Kind::kContent && slots_[position].is_guarded &&
         owner != nullptr && is_array(owner) && !values_[position].same(owner) &&
         may_be_argument(owner);
}

std::vector<py::object> SlotWatch::moving_items(std::size_t position) const {
  const Slot& slot = slots_[position];
  if (slot.kind != Slot::Kind::kContent || !slot.is_guarded) return {};
  const py::object now = slot.value();
  if (!now || values_[position].same(now.ptr())) return {};
  std::vector<py::object> keys =
      values_[position].changed_items(now.ptr()).value_or(std::vector<py::object>());
  // numbers of a queue with a limit that the step does nothing but add to are looked up from its
  // end
  const bool moves_up = slot.is_changed && slot.is_appended_to && is_bounded(now.ptr()) &&
                        std::ranges::none_of(slots_, [&now](const Slot& other) {
                          return other.is_written && other.owner.get() == now.ptr();
                        });
  std::erase_if(keys, [&](const py::object& key) {
    const py::object item = held_at(now.ptr(), key.ptr());
    if (!item) return true;
    if (!values_[position].is_number_at(key)) return !may_be_argument(item.ptr());
    return moves_up || !is_plain_number(item.ptr());
  });
  return keys;
}

void SlotWatch::know(const std::vector<std::pair<PyObject*, std::string>>& objects) {
  for (const auto& [object, path] : objects)
    known_.push_back({Root::guarding(roots_, object), path});
  for (PyObject* argument : moving_.containers()) known_arguments_.push_back(known(argument));
  alike_ = first_alike(moving_.containers());
}

const SlotWatch::Known* SlotWatch::known(PyObject* argument) const {
  if (positions_.empty() || times_replaced_ != roots_.times_replaced()) {
    positions_.clear();
    for (std::size_t i = 0; i < known_.size(); ++i)
      positions_.try_emplace(known_[i].object.get(), i);
    times_replaced_ = roots_.times_replaced();
  }
  const auto found = positions_.find(argument);
  if (found == positions_.end()) return nullptr;
  const Known& object = known_[found->second];
  return object.object.get() == argument ? &object : nullptr;
}

Verdict SlotWatch::check_known() const {
  const std::vector<PyObject*>& now = moving_.containers();
  const auto in_words = [](const Known* known) {
    return known == nullptr ? std::string("an object of its own") : "`" + known->path + "`";
  };
  for (std::size_t i = 0; i < std::min(known_arguments_.size(), now.size()); ++i) {
    const Known* const found = known(now[i]);
    if (known_arguments_[i] == found) continue;
    return {" (an argument)", in_words(known_arguments_[i]), in_words(found)};
  }
  // one may stand in a place that counts as an argument, too
  if (now.size() == alike_.size() && first_alike(now) != alike_)
    return {" (an argument)", "which other argument it is", "another one"};
  return {};
}

Verdict SlotWatch::check() const {
  if (has_tracer())
    return {" (sys.gettrace, sys.getprofile)", "none", "a function of the program's"};
  if (!known_arguments_.empty()) {
    if (Verdict verdict = check_known(); !verdict) return verdict;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].is_guarded) {
      if (is_gone(i)) return mismatch(i);
      continue;
    }
    if (same(i)) continue;
    if (was_replaced(i, slots_[i].value().ptr())) continue;
    // all that move with it; what else does is noted when the next recording begins
    if (moves(i) || is_exchanged(i) || is_written_array(i) || !moving_items(i).empty())
      note_moving();
    return mismatch(i);
  }
  return {};
}

std::map<std::string, std::string> SlotWatch::guarded() const {
  std::map<std::string, std::string> guarded;
  std::map<std::string, int> met;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    std::string token = slot.is_guarded ? values_[i].token() : "";
    if (token.empty()) continue;
    // whatever object stands there: one may stand for another
    const std::string place = slot.path + " " + std::to_string(static_cast<int>(slot.kind));
    guarded[place + " " + std::to_string(met[place]++)] = std::move(token);
  }
  for (std::size_t i = 0; i < known_arguments_.size(); ++i) {
    const Known* const object = known_arguments_[i];
    const auto address =
        reinterpret_cast<std::uintptr_t>(object == nullptr ? nullptr : object->object.get());
    guarded["argument " + std::to_string(i)] = std::to_string(address);
  }
  return guarded;
}

/// Whether the step has read what changes as it appends to this container.
bool SlotWatch::is_seen_growing(PyObject* container) const {
  return moving_.is_seen_growing(container) ||
         std::ranges::any_of(slots_, [container](const Slot& slot) {
           const bool grows = slot.kind == Slot::Kind::kSize ||
                              (slot.kind == Slot::Kind::kItem && is_from_the_end(slot.key.get()));
           return grows && slot.is_guarded && slot.owner.get() == container;
         });
}

/// Whether the step has read the place: by itself, or with all that its container holds.
bool SlotWatch::is_read(const Slot& slot) const {
  const auto shows = [&slot](PyObject* container) {
    const bool is_itself = PyDict_Check(container) || PyList_Check(container) ||
                           PyTuple_Check(container) || PyAnySet_Check(container) ||
                           is_deque(container);
    return !is_itself || container == slot.owner.get();  // a view may be of any
  };
  return slot.is_guarded || std::ranges::any_of(slots_, [&shows](const Slot& other) {
           return other.kind == Slot::Kind::kContent && other.is_guarded &&
                  shows(other.owner.get());
         });
}

bool SlotWatch::is_by_own_entries(std::size_t position) const {
  const Slot& slot = slots_[position];
  PyObject* const dict = slot.owner.get();
  const bool is_size = slot.kind == Slot::Kind::kSize || slot.kind == Slot::Kind::kKeys;
  if (dict == nullptr || !PyDict_Check(dict) || (!is_size && slot.kind != Slot::Kind::kHas))
    return false;
  Py_ssize_t added = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& entry = slots_[i];
    const bool is_own = entry.kind == Slot::Kind::kEntry && entry.is_written &&
                        entry.owner.get() == dict &&
                        (is_size || is_same_key(entry.key.get(), slot.key.get()));
    if (is_own) added += (entry.value() ? 1 : 0) - (held_some(i) ? 1 : 0);
  }
  if (slot.kind == Slot::Kind::kHas) return added == 1;
  const py::object was = values_[position].before();
  if (slot.kind == Slot::Kind::kSize) return size_of(dict) == PyLong_AsSsize_t(was.ptr()) + added;
  // those that were there in their order, then the new ones
  const py::object before = list_of(was.ptr());
  std::size_t same = 0;
  for (const auto& [key, item] : entries_of(dict)) {
    if (same == py::len(before) ||
        !is_same_key(PyList_GET_ITEM(before.ptr(), static_cast<Py_ssize_t>(same)), key))
      break;
    ++same;
  }
  return same == py::len(before) && size_of(dict) == static_cast<Py_ssize_t>(same) + added;
}

bool SlotWatch::is_set_in_base(const Slot& slot) const {
  PyObject* const type = slot.owner.get();
  PyObject* const holder = type == nullptr ? nullptr : holder_of(type, slot.key.get());
  return holder != type && std::ranges::any_of(slots_, [&](const Slot& other) {
           return other.kind == Slot::Kind::kAttribute && other.is_written &&
                  other.owner.get() == holder && is_same_key(other.key.get(), slot.key.get());
         });
}

std::vector<SlotWatch::SlotChange> SlotWatch::changes() const {
  std::vector<SlotChange> changes;
  // as others are added, items that were assigned stand elsewhere
  std::unordered_set<PyObject*> moved_up;
  for (const Slot& slot : slots_) {
    if (slot.kind != Slot::Kind::kItem || !slot.is_written) continue;
    if (is_bounded(slot.owner.get()) || is_from_the_end(slot.key.get())) {
      moved_up.insert(slot.owner.get());
    }
  }
  std::unordered_set<PyObject*> appended_to;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].is_changed) continue;
    PyObject* const owner = slots_[i].owner.get();
    slots_[i].is_guarded |= moved_up.contains(owner) || !appended(i, slots_[i].value()).has_value();
    if (!slots_[i].is_guarded) appended_to.insert(owner);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.is_looked_after) continue;
    // that others were added is done again, and nothing else was done to it
    const bool grows = slot.kind == Slot::Kind::kSize || slot.kind == Slot::Kind::kItem;
    if (grows && !slot.is_written && appended_to.contains(slot.owner.get())) continue;
    if (slot.kind == Slot::Kind::kAttribute && !slot.is_written && is_set_in_base(slot)) continue;
    const py::object now = slot.value();
    const bool is_same = values_[i].same(now.ptr());
    // put there and taken away again: so would be what the program may have put there meanwhile
    if (slot.is_written && is_same && !now) slots_[i].is_guarded = true;
    if (slot.kind == Slot::Kind::kContent && now && (slot.is_changed || !is_same)) {
      add_content_changes(i, now, changes);
    } else if (!is_same && !is_by_own_entries(i)) {
      changes.push_back({&slot,
                         values_[i].change_of_place(now.ptr()),
                         moves(i),
                         {},
                         before_of(is_read(slot), false)});
    } else if (now && (slot.is_written ? !is_as_found(slot, now.ptr()) : is_followed(now.ptr()))) {
      changes.push_back({&slot,
                         {"", shown(now.ptr()), now, py::list()},
                         false,
                         {},
                         before_of(is_read(slot), true)});
    }
  }
  put_in_order(changes);
  return changes;
}

void SlotWatch::put_in_order(std::vector<SlotChange>& changes) const {
  std::unordered_map<PyObject*, std::vector<std::size_t>> written;  // by the dict: which changes
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const Slot& slot = *changes[i].slot;
    // places that move are noted in the order in which they were read
    if (slot.kind == Slot::Kind::kEntry && changes[i].change.after && !changes[i].moves)
      written[slot.owner.get()].push_back(i);
  }
  for (const auto& [dict, places] : written) {
    if (places.size() < 2) continue;
    std::vector<std::pair<std::size_t, SlotChange>> in_order;
    for (const std::size_t i : places) {
      std::size_t turn = 0;
      for (const std::size_t other : places) {  // a place that moves may have been met, too
        const Slot& slot = *changes[other].slot;
        if (is_same_key(slot.key.get(), changes[i].slot->key.get()))
          turn = std::max(turn, slot.came);
      }
      in_order.emplace_back(turn, changes[i]);
    }
    std::ranges::stable_sort(in_order, {}, [](const auto& each) { return each.first; });
    for (std::size_t k = 0; k < places.size(); ++k)
      changes[places[k]] = std::move(in_order[k].second);
  }
}

std::optional<Py_ssize_t> SlotWatch::appended(std::size_t position, const py::object& now) const {
  const Slot& slot = slots_[position];
  if (!slot.is_changed || !slot.is_appended_to) return std::nullopt;
  return values_[position].appended(now.ptr(), slot.appended);
}

/// Each item that is another one, or a number which may be another one in the next call.
void SlotWatch::add_content_changes(std::size_t position, const py::object& now,
                                    std::vector<SlotChange>& changes) const {
  const Slot& slot = slots_[position];
  const bool is_same = values_[position].same(now.ptr());
  const auto from = slot.is_guarded ? std::nullopt : appended(position, now);
  const auto keys = values_[position].changed_items(now.ptr());
  if (is_same && !from && !keys) return;
  Change whole =
      is_same ? Change{"", shown(now.ptr()), now, py::list()} : values_[position].change(now.ptr());
  // in a full deque all items are others after that
  if (from || !keys || (keys->empty() && !is_same)) {
    const bool is_read = slot.is_guarded || (from && is_seen_growing(slot.owner.get()));
    // more than this one item, which the step may have assigned, too
    if (slot.is_changed && !whole.is_whole) whole.keys = py::list();
    changes.push_back({&slot, std::move(whole), false, from, before_of(is_read, is_same)});
    return;
  }
  const std::vector<py::object> moving = moving_items(position);
  for (const py::object& key : *keys) {
    const py::object item = held_at(now.ptr(), key.ptr());
    Change change{"[" + shown(key.ptr()) + "]", whole.was, item, py::list()};
    change.keys.append(key);
    const bool moves =
        std::ranges::any_of(moving, [&key](const auto& other) { return other.is(key); });
    changes.push_back({&slot, std::move(change), moves, {}, before_of(slot.is_guarded, is_same)});
  }
}

}  // namespace steptape::python
