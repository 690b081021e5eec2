#include "python/engine/optimizer_watch.h"

#include <algorithm>
#include <utility>

#include "python/engine/followed.h"
#include "trace/path.h"

namespace steptape::python {
namespace {

constexpr std::size_t kAllRead = live::ForeignWatch::kAllRead;

DictWatch::Rule rule_of_optimizer(std::string_view name) {
  if (name == "param_groups" || name == "state") return DictWatch::Rule::kSkip;
  if (name.ends_with("_hooks")) return DictWatch::Rule::kHooks;
  return DictWatch::Rule::kPlain;
}

PyObject* attribute(PyObject* optimizer, const char* name) {
  PyObject* dict = dict_of(optimizer);
  return dict == nullptr ? nullptr : PyDict_GetItemString(dict, name);
}

/// Whether a value that has changed to `now` is another one in the layout too.
bool is_in_layout(PyObject* now) {
  return now == nullptr || now == Py_None || PyBool_Check(now) || is_plain_number(now) ||
         PyUnicode_CheckExact(now);
}

double number(PyObject* object) {
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  const double value = PyLong_AsDouble(object);
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return value;
}

}  // namespace

PyObject* groups_of(PyObject* optimizer) {
  PyObject* groups = attribute(optimizer, "param_groups");
  return groups != nullptr && PyList_Check(groups) ? groups : nullptr;
}

PyObject* state_of(PyObject* optimizer) {
  PyObject* state = attribute(optimizer, "state");
  return state != nullptr && PyDict_Check(state) ? state : nullptr;
}

OptimizerWatch::OptimizerWatch(Roots& roots, MovingPlaces& moving, TypeWatches& types,
                               PyObject* optimizer, bool is_idle)
    : optimizer_(roots, optimizer),
      type_(types.of(Py_TYPE(optimizer))),
      is_idle_(is_idle),
      moving_(moving),
      attributes_(roots, moving, dict_of(optimizer), &rule_of_optimizer) {
  if (PyObject* groups = groups_of(optimizer)) {
    groups_ = PyList_GET_SIZE(groups);
    for (Py_ssize_t g = 0; g < groups_; ++g) {
      PyObject* group = PyList_GET_ITEM(groups, g);
      if (!PyDict_Check(group)) continue;
      add_dict(roots, ".param_groups[" + std::to_string(g) + "]", g, nullptr, group);
    }
  }
  if (PyObject* state = is_idle ? nullptr : state_of(optimizer)) {
    state_ = PyDict_Size(state);
    for (const auto [key, value] : Entries(state)) {
      if (PyDict_Check(value)) add_dict(roots, "", -1, key, value);
    }
  }
  name([](const at::Tensor&) { return std::string("…"); });
  recorded_.resize(numbers_.size());
  newest_.resize(numbers_.size());
  read(recorded_);
}

void OptimizerWatch::add_dict(Roots& roots, std::string path, Py_ssize_t group, PyObject* parameter,
                              PyObject* dict) {
  Fixed& fixed = fixed_.emplace_back();
  fixed.path = std::move(path);
  fixed.key = Root(roots, parameter);
  fixed.group = group;
  fixed.size = PyDict_GET_SIZE(dict);
  fixed.first = numbers_.size();
  for (const auto [key, value] : Entries(dict)) {
    const bool is_named = PyUnicode_Check(key) != 0;
    if (FollowedNumbers::can_follow(value)) {
      // another one is of the program's places, where the step reads it
      if (is_named) add_number(roots, key, value);
      continue;
    }
    constexpr Py_ssize_t kMost = 8;
    bool all_numbers = is_named && PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) > 0 &&
                       PyTuple_GET_SIZE(value) <= kMost;
    for (Py_ssize_t i = 0; all_numbers && i < PyTuple_GET_SIZE(value); ++i) {
      all_numbers = is_plain_number(PyTuple_GET_ITEM(value, i));
    }
    if (!all_numbers) {
      if (moving_.is_argument(dict, key)) continue;
      fixed.entries.push_back({Root(roots, key), Plain(roots, value), HeldContainer(roots, value)});
      continue;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      add_number(roots, key, PyTuple_GET_ITEM(value, i), i, PyTuple_GET_SIZE(value));
    }
  }
}

void OptimizerWatch::add_number(Roots& roots, PyObject* key, PyObject* value, Py_ssize_t item,
                                Py_ssize_t items) {
  ++fixed_.back().numbers;
  numbers_.push_back({fixed_.size() - 1, Root(roots, key), item, items, Py_TYPE(value)});
}

void OptimizerWatch::name(const live::PathOf& path_of) {
  for (Fixed& fixed : fixed_) {
    PyObject* parameter = fixed.key.get();
    if (parameter == nullptr) continue;
    fixed.path =
        ".state[" + (is_tensor(parameter) ? path_of(tensor_of(parameter)) : shown(parameter)) + "]";
  }
  names_.clear();
  for (const Number& number : numbers_) {
    const std::string item = number.item < 0 ? "" : "[" + std::to_string(number.item) + "]";
    const std::string& path = fixed_[number.dict].path;
    names_.push_back(trace::join_path(path, text_of(number.key.get())) + item);
  }
}

void OptimizerWatch::find_dicts() const {
  PyObject* groups = groups_of(optimizer_.get());
  PyObject* state = state_of(optimizer_.get());
  dicts_.resize(fixed_.size());
  std::size_t k = 0;
  for (; k < fixed_.size() && fixed_[k].key.get() == nullptr; ++k) {
    dicts_[k] = nullptr;
    if (groups == nullptr || fixed_[k].group >= PyList_GET_SIZE(groups)) continue;
    PyObject* dict = PyList_GET_ITEM(groups, fixed_[k].group);
    if (PyDict_Check(dict)) dicts_[k] = dict;
  }
  const std::uint64_t version = state == nullptr ? 0 : version_of(state);
  if (version != 0 && version == state_version_) return;
  state_version_ = version;
  std::fill(dicts_.begin() + static_cast<std::ptrdiff_t>(k), dicts_.end(), nullptr);
  // by its place and not by its key: a look-up would call Tensor.__hash__, which is Python
  for (const auto [key, value] : Entries(state)) {
    if (!PyDict_Check(value)) continue;
    if (k >= fixed_.size()) return;
    if (fixed_[k].key.get() == key) dicts_[k] = value;
    ++k;
  }
}

PyObject* OptimizerWatch::value_of(const Number& number) const {
  PyObject* dict = dicts_[number.dict];
  PyObject* value = dict == nullptr ? nullptr : PyDict_GetItemWithError(dict, number.key.get());
  if (value == nullptr || number.item < 0) return value;
  const bool fits = PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) == number.items;
  return fits ? PyTuple_GET_ITEM(value, number.item) : nullptr;
}

std::size_t OptimizerWatch::read(std::span<double> values) const {
  if (numbers_.empty()) return kAllRead;
  find_dicts();
  for (std::size_t k = 0; k < fixed_.size(); ++k) {
    if (fixed_[k].numbers == 0) continue;
    const std::uint64_t version = dicts_[k] == nullptr ? 0 : version_of(dicts_[k]);
    if (version != 0 && version == fixed_[k].version) continue;
    fixed_[k].version = 0;
    if (const std::size_t other = read_numbers(fixed_[k]); other != kAllRead) return other;
    fixed_[k].version = version;
  }
  std::ranges::copy(newest_, values.begin());
  return kAllRead;
}

void OptimizerWatch::advance(std::size_t k, std::int64_t by) const {
  find_dicts();
  PyObject* value = value_of(numbers_[k]);
  if (value == nullptr || numbers_[k].item >= 0) return;
  const auto added = borrowed(value) + py::int_(by);
  if (PyDict_SetItem(dicts_[numbers_[k].dict], numbers_[k].key.get(), added.ptr()) != 0) {
    throw py::error_already_set();
  }
}

std::size_t OptimizerWatch::read_numbers(const Fixed& fixed) const {
  for (std::size_t k = fixed.first; k < fixed.first + fixed.numbers; ++k) {
    PyObject* value = value_of(numbers_[k]);
    if (value == nullptr || !FollowedNumbers::can_follow(value) ||
        Py_TYPE(value) != numbers_[k].type) {
      return k;
    }
    newest_[k] = number(value);
  }
  return kAllRead;
}

bool OptimizerWatch::same_entries(Fixed& fixed, PyObject* dict) {
  if (const auto remembered = fixed.memo.same(dict)) return *remembered;
  fixed.memo.begin();
  for (const auto& [name, plain, held] : fixed.entries) {
    PyObject* item = PyDict_GetItemWithError(dict, name.get());
    if (!plain.same(item)) return false;
    fixed.memo.add(plain, item);
  }
  fixed.memo.keep(dict);
  return true;
}

Verdict OptimizerWatch::check() const {
  if (Verdict verdict = check_object("", optimizer_.get(), *type_, false, attributes_); !verdict)
    return verdict;
  return first_change(false).value_or(Verdict());
}

std::optional<Verdict> OptimizerWatch::first_change(bool of_state) const {
  PyObject* optimizer = optimizer_.get();
  PyObject* groups = groups_of(optimizer);
  const Py_ssize_t found = groups == nullptr ? 0 : PyList_GET_SIZE(groups);
  if (found != groups_ && !of_state) {
    return Verdict{".param_groups.size", std::to_string(groups_), std::to_string(found)};
  }
  PyObject* state = is_idle_ ? nullptr : state_of(optimizer);
  const Py_ssize_t states = state == nullptr ? 0 : PyDict_Size(state);
  if (states != state_)
    return Verdict{".state.size", std::to_string(state_), std::to_string(states)};
  find_dicts();
  for (std::size_t k = 0; k < fixed_.size(); ++k) {
    Fixed& fixed = fixed_[k];
    if (of_state && fixed.group >= 0) continue;
    PyObject* now = dicts_[k];
    if (now == nullptr) return Verdict{fixed.path, "there", "gone"};
    if (PyDict_GET_SIZE(now) != fixed.size) {
      return Verdict{fixed.path + ".size", std::to_string(fixed.size),
                     std::to_string(PyDict_Size(now))};
    }
    if (same_entries(fixed, now)) continue;
    for (const auto& [name, plain, held] : fixed.entries) {
      PyObject* item = PyDict_GetItemWithError(now, name.get());
      if (plain.same(item)) continue;
      const Change change = plain.change(item);
      return Verdict{trace::join_path(fixed.path, text_of(name.get())) + change.path, change.was,
                     shown(change.after.ptr())};
    }
  }
  return std::nullopt;
}

void OptimizerWatch::let_go() {
  attributes_.let_go();
  for (Fixed& fixed : fixed_) {
    for (Fixed::Entry& entry : fixed.entries) entry.held.let_go();
  }
}

void OptimizerWatch::note_moving() const { attributes_.note_moving("", dict_of(optimizer_.get())); }

std::vector<HostChange> OptimizerWatch::changes() const {
  std::vector<HostChange> changes = attributes_.changes(dict_of(optimizer_.get()), true);
  for (HostChange& change : changes) {
    change.path = "." + trace::path_component(change.path);
  }
  const auto cast = [](const Number& kind, double value) -> py::object {
    if (kind.type == &PyLong_Type) return py::int_(static_cast<long long>(value));
    return py::float_(value);
  };
  find_dicts();
  for (std::size_t k = 0; k < numbers_.size(); ++k) {
    PyObject* value = value_of(numbers_[k]);
    const bool same =
        is_plain_number(value) && trace::Real{number(value)} == trace::Real{recorded_[k]};
    if (same) continue;
    // the layout of the optimizer says it of a group
    if (fixed_[numbers_[k].dict].group >= 0) continue;
    const auto if_whole = [item = numbers_[k].item](PyObject* object) {
      return item < 0 ? borrowed(object) : py::object();
    };
    changes.push_back({names_[k],
                       if_whole(dicts_[numbers_[k].dict]),
                       if_whole(numbers_[k].key.get()),
                       {"", shown(cast(numbers_[k], recorded_[k]).ptr()),
                        borrowed(value == nullptr ? Py_None : value), py::list()}});
  }
  for (std::size_t k = 0; k < fixed_.size(); ++k) {
    if (dicts_[k] != nullptr) add_changes(fixed_[k], dicts_[k], changes);
  }
  return changes;
}

/// Of what is not a number.
void OptimizerWatch::add_changes(const Fixed& fixed, PyObject* dict,
                                 std::vector<HostChange>& changes) {
  const bool is_group = fixed.group >= 0;
  for (const auto& [key, plain, held] : fixed.entries) {
    PyObject* now = PyDict_GetItemWithError(dict, key.get());
    const bool is_same = plain.same(now);
    const bool is_other = is_same && !is_group && held.is_another(now);
    if (is_same && !is_other) continue;
    if (now != nullptr && is_tensor(now)) {  // in place of another: it counts as an argument
      changes.push_back({trace::join_path(fixed.path, text_of(key.get())), borrowed(dict),
                         borrowed(key.get()), plain.change_of_place(now), true});
      continue;
    }
    // the layout of the optimizer says it of a group, but where two values look alike in it
    if (is_group && (is_in_layout(now) || text_of(key.get()) == "params")) continue;
    const auto if_state = [is_group](PyObject* object) {
      return is_group ? py::object() : borrowed(object);
    };
    Change change =
        is_other ? Change{"", shown(now), borrowed(now), py::list()} : plain.change(now);
    if (now != nullptr) held.widen(change, now);
    changes.push_back({trace::join_path(fixed.path, text_of(key.get())), if_state(dict),
                       if_state(key.get()), std::move(change), false, before_of(true, is_same)});
  }
}

}  // namespace steptape::python
