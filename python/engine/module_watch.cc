#include "python/engine/module_watch.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "python/engine/arguments.h"
#include "python/engine/followed.h"
#include "python/engine/structure.h"
#include "trace/path.h"

namespace steptape::python {
namespace {

DictWatch::Rule rule_of_module(std::string_view name) {
  static constexpr std::array<std::string_view, 3> kMembers = {"_parameters", "_buffers",
                                                               "_modules"};
  if (std::ranges::find(kMembers, name) != kMembers.end()) return DictWatch::Rule::kMembers;
  // torch.nn.Module keeps its hooks in dicts of such names
  if (name.starts_with('_') && name.find("_hooks") != name.npos) {
    return DictWatch::Rule::kHooks;
  }
  return DictWatch::Rule::kPlain;
}

/// Whether tensors took the place of others, or a container that of another one (`is_new`); the
/// change is then of the place that they stand in.
bool moves_inside(HostChange& at, bool is_new) {
  if (!may_be_argument(at.change.after.ptr(), is_new)) return false;
  for (const py::handle& next : at.change.keys) {
    const py::object holder = held_at(at.owner.ptr(), at.key.ptr());
    if (!holder || (!PyList_Check(holder.ptr()) && !PyDict_Check(holder.ptr()))) return false;
    at.owner = holder;
    at.key = borrowed(next.ptr());
  }
  at.change.keys = py::list();
  return true;
}

}  // namespace

HeldContainer::HeldContainer(Roots& roots, PyObject* value, int depth) {
  const bool is_list = value != nullptr && PyList_CheckExact(value);
  if (depth == 0 || value == nullptr || (!is_list && !PyDict_Check(value))) return;
  if (size_of(value) > Plain::kMostItems) return;
  object_ = Root(roots, value);
  address_ = value;
  size_ = size_of(value);
  const auto add = [&](py::object key, PyObject* item) {
    HeldContainer held(roots, item, depth - 1);
    if (held.address_ != nullptr) inner_.emplace_back(std::move(key), std::move(held));
  };
  if (is_list) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i)
      add(py::int_(i), PyList_GET_ITEM(value, i));
  } else {
    for (const auto& [key, item] : entries_of(value)) add(borrowed(key), item);
  }
}

std::optional<HeldContainer::Replaced> HeldContainer::replaced_at(PyObject* now,
                                                                  const py::list& keys) const {
  const HeldContainer* held = this;
  py::object at = borrowed(now);
  for (std::size_t depth = 0; held->address_ != nullptr; ++depth) {
    if (at.ptr() != held->address_) {
      const bool is_container = PyList_Check(at.ptr()) || PyDict_Check(at.ptr());
      return Replaced{depth, !is_container || size_of(at.ptr()) != held->size_};
    }
    if (depth == keys.size()) return std::nullopt;
    const py::object key = keys[depth];
    const auto inner = std::ranges::find_if(held->inner_, [&key](const auto& each) {
      return is_same_key(each.first.ptr(), key.ptr());
    });
    if (inner == held->inner_.end()) return std::nullopt;
    held = &inner->second;
    at = held_at(at.ptr(), key.ptr());
    if (!at) return std::nullopt;
  }
  return std::nullopt;
}

bool HeldContainer::is_another(PyObject* now) const {
  return now != nullptr && replaced_at(now, py::list()).has_value() && may_be_argument(now);
}

std::optional<HeldContainer::Replaced> HeldContainer::widen(Change& change, PyObject* now) const {
  const std::optional<Replaced> replaced = replaced_at(now, change.keys);
  if (!replaced) return std::nullopt;
  py::object after = borrowed(now);
  py::list keys;
  std::string path;
  for (std::size_t i = 0; i < replaced->depth; ++i) {
    const py::object key = change.keys[i];
    path += "[" + shown(key.ptr()) + "]";
    keys.append(key);
    after = held_at(after.ptr(), key.ptr());
  }
  // of an attribute nothing else can differ
  change = {std::move(path), change.was, std::move(after), std::move(keys),
            change.is_whole || replaced->depth == 0};
  return replaced;
}

void HeldContainer::let_go() {
  object_.reset();
  for (auto& [key, held] : inner_) held.let_go();
}

Plain DictWatch::made(Roots& roots, PyObject* value, Rule rule) {
  switch (rule) {
    case Rule::kMembers:
      return {roots, value, 1};  // keys, values and order of the dict by identity
    case Rule::kHooks:
      // some are lists: _comm_hooks of DistributedDataParallel, _replace_hooks of torch.fx
      if (value != nullptr && value != Py_None && !PyDict_Check(value)) break;
      return Plain::hooks(roots, value);
    case Rule::kPlain:
    case Rule::kSkip:
    case Rule::kMoves:
      break;
  }
  return {roots, value};
}

DictWatch::DictWatch(Roots& roots, MovingPlaces& moving, PyObject* dict, RuleOf rule_of)
    : moving_(moving), rule_of_(rule_of) {
  if (dict == nullptr) return;
  entries_.reserve(static_cast<std::size_t>(PyDict_GET_SIZE(dict)));
  for (const auto [key, value] : Entries(dict)) {
    Rule rule = rule_of_(view_of(key));
    const bool moves =
        moving.is_argument(dict, key) || (is_plain_number(value) && moving.contains(dict, key));
    if (rule == Rule::kPlain && moves) rule = Rule::kMoves;
    const bool is_attribute = rule == Rule::kPlain || rule == Rule::kMoves;
    entries_.push_back({Root(roots, key), rule,
                        made(roots, rule == Rule::kSkip ? nullptr : value, rule),
                        HeldContainer(roots, is_attribute ? value : nullptr)});
    entries_.back().plain.let_move(value, moving);
  }
}

void DictWatch::compare_only(const AttributeReads& reads) {
  compares_all_ = reads.are_all;
  std::unordered_map<std::string_view, PyObject*> open;
  for (const py::object& name : reads.names) open.emplace(view_of(name.ptr()), name.ptr());
  for (Entry& entry : entries_) {
    const bool is_named = open.erase(view_of(entry.key.get())) != 0;
    entry.is_compared = entry.rule != Rule::kPlain || is_named != reads.are_all;
  }
  if (reads.are_all) return;
  for (const auto& [text, name] : open) absent_.push_back(borrowed(name));
}

bool DictWatch::same(PyObject* dict) const {
  if (dict == nullptr) return entries_.empty();
  const auto size = static_cast<Py_ssize_t>(entries_.size());
  if (compares_all_ && PyDict_GET_SIZE(dict) != size) return false;
  if (const auto remembered = memo_.same(dict)) return *remembered;
  memo_.begin();
  for (const py::object& name : absent_) {
    if (PyDict_GetItemWithError(dict, name.ptr()) != nullptr) return false;
  }
  for (const Entry& entry : entries_) {
    if (!entry.is_compared) continue;
    PyObject* found = PyDict_GetItemWithError(dict, entry.key.get());
    if (found == nullptr) return false;
    if (entry.rule == Rule::kSkip || entry.rule == Rule::kMoves) continue;
    if (!entry.plain.same(found)) return false;
    memo_.add(entry.plain, found);
  }
  memo_.keep(dict);
  return true;
}

std::vector<HostChange> DictWatch::changes(PyObject* dict, bool with_equal) const {
  std::vector<HostChange> changes;
  if (dict == nullptr) return changes;
  for (const Entry& entry : entries_) {
    PyObject* found = PyDict_GetItemWithError(dict, entry.key.get());
    if (entry.rule == Rule::kSkip) continue;
    // a number that the step has put there may be the one that was there by chance
    const bool is_same = entry.plain.same(found);
    const bool is_other = with_equal && is_same && entry.held.is_another(found);
    if (is_same && !is_other && (found == nullptr || !holds_followed(found))) continue;
    if (add_moved_buffers(entry, found, changes)) continue;
    HostChange& change = changes.emplace_back(
        HostChange{text_of(entry.key.get()), borrowed(dict), borrowed(entry.key.get()),
                   is_other ? Change{"", shown(found), borrowed(found), py::list()}
                            : entry.plain.change_of_place(found)});
    change.before = before_of(entry.rule == Rule::kPlain && entry.is_compared, is_same);
    if (found == nullptr) continue;
    const auto replaced = entry.held.widen(change.change, found);
    if (is_same || entry.rule != Rule::kPlain) continue;
    change.moves = entry.plain.is_number() ? is_plain_number(found)
                                           : moves_inside(change, replaced && !replaced->has_grown);
  }
  for (const auto [key, value] : Entries(dict)) {
    const bool known = std::ranges::any_of(entries_, [name = key](const Entry& entry) {
      return entry.key.get() == name || view_of(entry.key.get()) == view_of(name);
    });
    if (known || rule_of_(view_of(key)) == Rule::kSkip) continue;
    changes.push_back({text_of(key),
                       borrowed(dict),
                       borrowed(key),
                       {"", "nothing", borrowed(value), py::list()}});
    changes.back().before = before_of(!compares_all_ && compares(changes.back()), false);
  }
  return changes;
}

/// Other tensors in the places of buffers, each of which counts as an argument from here on. False
/// where that is not all that differs.
bool DictWatch::add_moved_buffers(const Entry& entry, PyObject* found,
                                  std::vector<HostChange>& changes) {
  const std::string name = text_of(entry.key.get());
  if (entry.rule != Rule::kMembers || name != "_buffers" || found == nullptr) return false;
  const auto keys = entry.plain.changed_items(found);
  if (!keys || keys->empty()) return false;
  const auto is_tensors = [found](const py::object& key) {
    const py::object held = held_at(found, key.ptr());
    return held && is_tensor(held.ptr());
  };
  if (!std::ranges::all_of(*keys, is_tensors)) return false;
  for (const py::object& key : *keys) {
    const py::object held = held_at(found, key.ptr());
    changes.push_back(
        {text_of(key.ptr()), borrowed(found), key, {"", "a tensor", held, py::list()}, true});
  }
  return true;
}

std::optional<HostChange> DictWatch::mismatch(PyObject* dict) const {
  for (HostChange& change : changes(dict)) {
    if (compares(change)) return std::move(change);
  }
  return std::nullopt;
}

bool DictWatch::compares(const HostChange& change) const {
  const auto is_its = [&change](const Entry& entry) {
    return text_of(entry.key.get()) == change.path;
  };
  const auto entry = std::ranges::find_if(entries_, is_its);
  if (entry != entries_.end()) return entry->is_compared;
  return compares_all_ || std::ranges::any_of(absent_, [&change](const py::object& name) {
           return text_of(name.ptr()) == change.path;
         });
}

void DictWatch::note_moving(const std::string& path, PyObject* dict) const {
  for (const HostChange& change : changes(dict)) {
    if (!change.moves || !compares(change)) continue;
    moving_.note(trace::join_path(path, change.path) + change.change.path, change.owner.ptr(),
                 change.key.ptr());
  }
}

ModuleWatch::ModuleWatch(Roots& roots, MovingPlaces& moving, TypeWatches& types, std::string path,
                         PyObject* module)
    : path_(std::move(path)),
      module_(roots, module),
      type_(types.of(Py_TYPE(module))),
      attributes_(roots, moving, dict_of(module), &rule_of_module) {}

Verdict check_object(const std::string& path, PyObject* object, const TypeWatch& type,
                     bool types_same, const DictWatch& attributes) {
  if (Py_TYPE(object) != type.type()) {
    return {path + ".__class__", type_name(type.type()), type_name(object)};
  }
  if (!types_same && !type.same()) {
    return {path + ".__class__." + type.changed_name(), "what it was when it was recorded",
            "another"};
  }
  PyObject* dict = dict_of(object);
  if (attributes.same(dict)) return {};
  const auto mismatch = attributes.mismatch(dict);
  if (!mismatch) {
    return {path + ".__dict__", "the attributes it had when it was recorded", "others"};
  }
  attributes.note_moving(path.empty() ? path : path.substr(1), dict);
  const Change& change = mismatch->change;
  return {path + "." + trace::path_component(mismatch->path) + change.path, change.was,
          shown(change.after.ptr())};
}

Verdict ModuleWatch::check(bool types_same) const {
  return check_object(path_, module_.get(), *type_, types_same, attributes_);
}

void ModuleWatch::note_moving() const {
  attributes_.note_moving(path_.empty() ? path_ : path_.substr(1), dict_of(module_.get()));
}

std::vector<HostChange> ModuleWatch::changes() const {
  return attributes_.changes(dict_of(module_.get()), true);
}

}  // namespace steptape::python
