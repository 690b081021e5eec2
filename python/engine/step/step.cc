#include "python/engine/step/step.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <variant>

#include "python/engine/arguments.h"
#include "python/engine/followed.h"
#include "python/engine/step/followed_arguments.h"
#include "python/engine/step/options.h"
#include "python/engine/step/outcome.h"
#include "python/engine/step/stats.h"
#include "python/engine/structure.h"
#include "python/engine/watch/watcher.h"
#include "steptape/error.h"
#include "trace/refusals.h"

namespace steptape::python {
namespace {

pack::Leaf leaf_of(const std::string& name, const py::object& value) {
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
  if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  if (const auto integer = int64_of(value.ptr())) return *integer;
  const bool is_int = PyLong_Check(value.ptr());
  throw Error(ErrorCode::kInvalidArgument,
              "host value \"" + name + "\" is " +
                  (is_int ? "an int of more than 64 bits" : "a " + type_name(value.ptr())) +
                  "; it must be a bool, an int or a float");
}

py::object object_of_number(const trace::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return py::bool_(*flag);
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return py::int_(*integer);
  if (const auto* real = std::get_if<trace::Real>(&value.data)) return py::float_(real->value);
  return py::none();
}

/// The containers among the arguments, held.
std::vector<py::object> containers_of(const Arguments& arguments) {
  std::vector<py::object> all;
  for (PyObject* each : arguments.containers) all.push_back(borrowed(each));
  return all;
}

/// What stands in each of these places, which count as arguments.
std::vector<Arguments> flatten_each(const std::vector<py::object>& places) {
  std::vector<Arguments> each;
  for (const py::object& held : places)
    each.push_back(flatten(std::span(&held, 1), {.arrays = Arrays::kByIdentity}));
  return each;
}

/// Which of them, the last one first, hold something else than before.
std::vector<std::size_t> changed_in(const std::vector<py::object>& places,
                                    const std::vector<Arguments>& before) {
  const std::vector<Arguments> now = flatten_each(places);
  std::vector<std::size_t> changed;
  for (std::size_t i = places.size(); i-- > 0;) {
    if (!same(before[i], now[i])) changed.push_back(i);
  }
  return changed;
}

/// Which leaves are tensors that ops made out of others which require a gradient.
std::vector<bool> results_in(const Arguments& arguments) {
  std::vector<bool> results;
  for (const pack::Leaf& leaf : arguments.leaves) {
    const auto* tensor = std::get_if<at::Tensor>(&leaf);
    results.push_back(tensor != nullptr && tensor->defined() && !tensor->is_leaf());
  }
  return results;
}

}  // namespace

Step::Step(const py::dict& options) {
  session_.set_options(options_of(options));
  session_.wording = &words_;
  session_.without_lock = [](const std::function<void()>& run) {
    if (PyGILState_Check() == 0) return run();
    const py::gil_scoped_release released;
    run();
  };
}

Step::~Step() {
  session_.trace.finish();
  if (life_ != nullptr) life_->orphan();
}

void Step::add_host_value(const std::string& name, const py::function& function) {
  const auto ask = [name, kept = std::make_shared<Root>(roots_, function.ptr())] {
    const auto called = stolen(PyObject_CallNoArgs(kept->get()));
    if (!called) throw py::error_already_set();
    return leaf_of(name, called);
  };
  session_.declarations.add_host_value({.name = name, .function = ask, .tells_use = true});
}

py::object Step::host_value(const std::string& name) {
  const auto& now = session_.declarations.now();
  if (!now) return py::none();
  session_.declarations.note_use(name);
  const auto& declared = session_.declarations.host_values();
  const auto value = std::ranges::find(declared, name, &session::Declarations::Declaration::name);
  if (value == declared.end()) return py::none();
  return object_of_number(now->host_values[static_cast<std::size_t>(value - declared.begin())]);
}

void Step::bind(const std::string& name, const std::string& place, const py::object& function,
                const py::object& probe, bool takes_keywords, std::vector<std::string> parameters) {
  takes_keywords_ = takes_keywords;
  parameters_ = std::move(parameters);
  function_ = Root(roots_, function.ptr());
  probe_ = Root(roots_, probe.ptr());
  given_objects_.clear();  // the step has no plan yet
  if (life_ != nullptr) return;
  life_ = std::make_shared<session::StepLife>(session_, name, place);
  session_.steps.push_back(life_);
}

/// What a call is given: its arguments, and what stands in places that count as such.
struct Step::Given {
  PyObject* positional;
  PyObject* keywords;
  Order order;
  Arguments arguments = {};
  std::vector<py::object> places = {};
  Arguments held = {};  ///< in the places

  Arguments flattened(const Flatten& how) const {
    return flatten(positional, keywords, order, how);
  }
};

py::object Step::call(const py::args& args, const py::kwargs& kwargs) {
  ++calls_under_way_;
  const auto is_over = c10::make_scope_exit([this] {
    if (--calls_under_way_ == 0 && std::exchange(must_forget_, false)) forget();
  });
  if (calls_under_way_ == 1) moving_.exchange();
  const ChangedArguments* changed = changed_.is_empty() ? nullptr : &changed_;
  const Flatten in_places{.has_offsets = moving_.compares_offsets(), .changed = changed};
  Flatten how = in_places;
  how.unread = &unread_;
  Given given{args.ptr(), kwargs.ptr(), takes_keywords_ ? Order::kGiven : Order::kAny};
  given.arguments = given.flattened(how);
  // of the call that this one is made in, if there is one
  const std::optional<py::dict> outer =
      calls_under_way_ == 1 ? std::nullopt : std::optional(unread_.copy_of_values());
  const auto is_outer_again = c10::make_scope_exit(
      [&, outer_containers = outer ? moving_.containers() : std::vector<PyObject*>()]() mutable {
        if (!outer) return;
        unread_.take(*outer);
        moving_.set_containers(std::move(outer_containers));
      });
  unread_.begin(given.arguments.singles);
  look_at_places(given, in_places);
  py::object result;
  std::vector<PyObject*> containers = std::move(given.arguments.containers);
  std::vector<pack::Leaf> leaves = std::move(given.arguments.leaves);
  if (!given.places.empty()) {
    moving_.note_left(given.places);
    leaves.insert(leaves.end(), given.held.leaves.begin(), given.held.leaves.end());
    containers.insert(containers.end(), given.held.containers.begin(), given.held.containers.end());
  }
  moving_.set_containers(std::move(containers));
  // what the step assigns is assigned before anyone looks, who may throw
  life_->call(
      std::move(leaves), [&] { return run(given, result); },
      [&](const pack::Results& replayed) { result = this->replayed(replayed); });
  return result;
}

void Step::look_at_places(Given& given, const Flatten& how) {
  const auto look = [&](std::vector<py::object> places) {
    given.places = std::move(places);
    if (!given.places.empty()) given.held = flatten(given.places, how);
    if (moving_.items().empty()) return;
    std::vector<pack::Leaf> leaves = given.arguments.leaves;
    leaves.insert(leaves.end(), given.held.leaves.begin(), given.held.leaves.end());
    moving_.set_arguments(leaves);
  };
  moving_.set_arguments(given.arguments.leaves);
  if (!moving_.looks_up_by_places(given.arguments.leaves.size())) return look(moving_.given());
  // a number in one place may say which item stands in another, whose numbers may be of the call
  // before so far
  look(moving_.left());
  for (std::size_t left = given.places.size() + 1; left > 0; --left) {
    std::vector<py::object> places = moving_.given();
    const bool is_same = std::ranges::equal(
        places, given.places, [](const auto& a, const auto& b) { return a.ptr() == b.ptr(); });
    if (is_same) return;
    look(std::move(places));
  }
  moving_.lose_items();
  look(moving_.left());
}

void Step::check_arguments(const Arguments& arguments, const std::string& opaque_name,
                           recorder::FrontendHints& hints) {
  const std::unordered_set<PyObject*> known =
      arguments.objects.empty() ? std::unordered_set<PyObject*>() : tracked();
  for (PyObject* object : arguments.objects) {
    given_objects_.try_emplace(object, Root::pinned(roots_, object));
    if (is_part_of_model(object) && !known.contains(object)) {
      hints.refuse(RefusalCode::kOpaqueArgument,
                   "an argument is a " + type_name(object) + " that the first call was not given");
    }
  }
  if (!arguments.opaque.empty()) {
    hints.refuse(RefusalCode::kOpaqueArgument,
                 (opaque_name.empty() ? "an argument" : "`" + opaque_name + "`") +
                     std::string(" is a ") + arguments.opaque +
                     ", whose content cannot be guarded");
  }
  if (arguments.has_subclass) {
    hints.refuse(RefusalCode::kTensorKind, "an argument is of a subclass of torch.Tensor");
  }
}

namespace {

/// Whether its class, or one that it is made of, is torch's.
bool is_made_by_torch(PyTypeObject* type) {
  return std::ranges::any_of(bases_of(type), [](PyTypeObject* base) { return is_torchs(base); });
}

}  // namespace

bool Step::take_changed(const Arguments& before) {
  std::vector<PyObject*> changed = watcher().changed_arguments();
  if (changed
          .empty()) {  // by torch's own code, which is not watched: a scheduler, a scaler of losses
    std::ranges::copy_if(before.containers, std::back_inserter(changed),
                         [](PyObject* object) { return is_made_by_torch(Py_TYPE(object)); });
  }
  std::vector<std::pair<PyObject*, std::string>> found;
  for (PyObject* object : changed) {
    const auto at = std::ranges::find(before.containers, object);
    if (at == before.containers.end()) return false;
    const auto position = static_cast<std::size_t>(at - before.containers.begin());
    found.emplace_back(object, before.names_of_containers[position]);
  }
  return take_as_programs(found);
}

bool Step::take_as_programs(const std::vector<std::pair<PyObject*, std::string>>& objects) {
  // with another object in each call, nothing would be gained
  if (objects.empty() || changed_in_turn_ == kMostChangedInTurn) return false;
  for (const auto& [object, name] : objects) {
    const py::object dropped = changed_.add(roots_, object, name);
    if (dropped) moving_.forget(dropped.ptr());
  }
  ++changed_in_turn_;
  return true;
}

pack::Results Step::run(const Given& given, py::object& result) {
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  assignments_.reset();
  if (hints != nullptr && watch::current() == nullptr) return run_recorded(*hints, given, result);
  const auto function = borrowed(function_.get());
  if (hints != nullptr) {
    // inside another step, whose recording this is: what is called here is code like another
    auto& watcher = static_cast<watch::Watcher&>(*watch::current());
    watcher.mark(function.ptr(), life_->name());
    watcher.called(function.ptr());
  }
  result = stolen(PyObject_Call(function.ptr(), given.positional, given.keywords));
  if (!result) throw py::error_already_set();
  moving_.forget_left();
  pack::Results flat;
  auto outcome = std::make_shared<Outcome>();
  if (const auto* tried = static_cast<const Outcome*>(life_->note_of_tried())) {
    outcome->add_tried_result(roots_, *tried, moving_.containers(), result.ptr(), flat);
  } else {
    outcome->add_result(roots_, result.ptr(), flat, [](std::size_t, PyObject*) {});
  }
  flat.note = std::move(outcome);
  return flat;
}

pack::Results Step::run_recorded(recorder::FrontendHints& hints, const Given& given,
                                 py::object& result) {
  hints.said.follows_numbers = true;
  FollowedNumbers::current().clear();  // of a step that threw
  const ChangedArguments* changed = changed_.is_empty() ? nullptr : &changed_;
  const std::vector<std::string> place_names = moving_.names_of_given();
  const Flatten how{
      .arrays = Arrays::kByIdentity, .names = &parameters_, .changed = changed, .unread = &unread_};
  const Flatten in_places{.arrays = Arrays::kByIdentity, .names = &place_names, .changed = changed};
  const Arguments before = given.flattened(how);
  const Arguments held = flatten(given.places, in_places);
  check_given(given, before, held, hints);
  arrays_ = given.arguments.arrays;
  arrays_.insert(arrays_.end(), given.held.arrays.begin(), given.held.arrays.end());
  const auto none_is_given = c10::make_scope_exit([this] { arrays_.clear(); });
  // until it is known what the step leaves: a tuple of its arguments may be among that
  std::optional<FollowedArguments> followed(std::in_place);
  for (const Arguments::Single& single : before.singles)
    FollowedNumbers::current().watch(single.object);
  followed->put(before, hints, 0);
  followed->put(held, hints, before.leaves.size());
  for (const MovingPlaces::Item& item : moving_.items()) {  // which this call may not ask for
    if (item.moves && !item.is_argument) hints.leaf(trace::LeafKind::kHostValue, item.name);
  }
  const std::vector<py::object> containers = containers_of(before);
  const std::vector<py::object> held_containers = containers_of(held);
  const std::vector<Arguments> each_held = flatten_each(given.places);
  const std::vector<bool> results = results_in(before);
  const auto was_read = [](PyObject* object) {
    return FollowedNumbers::current().was_read(object);
  };
  std::set<std::size_t> guarded;
  at_end_of_watch_ = [&](watch::Watcher& watcher) {
    unread_.for_each_read(before.singles, was_read, [&](std::size_t i, const std::string& name) {
      watcher.guard(name, unread_.values().ptr(), py::int_(i).ptr());
      guarded.insert(i);
    });
  };
  const auto is_over = c10::make_scope_exit([this] { at_end_of_watch_ = nullptr; });
  result = borrowed(probe_.get())(borrowed(function_.get()), borrowed(given.positional),
                                  borrowed(given.keywords));
  const auto is_it = [](const py::object& one, PyObject* other) { return one.ptr() == other; };
  const auto is_changed = [&](const Arguments& now, std::size_t first_leaf, const auto& kept) {
    return followed->has_others(now, first_leaf) ||
           !std::ranges::equal(kept, now.containers, is_it);
  };
  const bool has_changed = is_changed(given.flattened(how), 0, containers);
  const bool has_held_changed =
      is_changed(flatten(given.places, in_places), before.leaves.size(), held_containers);
  followed->take_back();
  const bool have_places_changed =
      !given.places.empty() &&
      (has_held_changed || !same(given.held, flatten(given.places, in_places)));
  const std::vector<std::size_t> changed_places = changed_in(given.places, each_held);
  // the recorder refuses by its name an argument that becomes a result
  if (results_in(before) == results && (has_changed || !same(before, given.flattened(how)))) {
    take_or_refuse_changed(before, hints);
  }
  followed->put_again();
  pack::Results flat = outcome_of(hints, given, before.leaves.size(), result);
  // what the step only leaves, as its result or in a place
  unread_.for_each_read(before.singles, was_read, [&](std::size_t i, const std::string& name) {
    if (guarded.insert(i).second) guard(name, unread_.values().ptr(), py::int_(i).ptr());
  });
  if (have_places_changed) take_or_refuse_changed_places(given, changed_places, hints);
  if (!unread_.settle(before.singles, was_read)) hints.discard();
  followed.reset();
  FollowedNumbers::current().clear();
  return flat;
}

void Step::check_given(const Given& given, const Arguments& before, const Arguments& held,
                       recorder::FrontendHints& hints) {
  if (!before.holds_opaque && take_as_programs(before.unguarded)) {
    hints.discard();
  } else {
    check_arguments(given.arguments, before.opaque_name, hints);
  }
  check_arguments(given.held, held.opaque_name, hints);
  words_.names = before.names;
  words_.names.emplace_back();  // their structure
  if (given.places.empty()) return;
  words_.names.insert(words_.names.end(), held.names.begin(), held.names.end());
  words_.names.emplace_back();
}

void Step::take_or_refuse_changed_places(const Given& given,
                                         const std::vector<std::size_t>& changed,
                                         recorder::FrontendHints& hints) {
  bool has_taken = false;
  for (const std::size_t i : changed) has_taken |= moving_.make_object(i, given.places[i].ptr());
  if (has_taken) return hints.discard();
  std::string names, line;
  for (const std::string& name : moving_.names_of_given()) {
    names += (names.empty() ? "`" : " or `") + name + "`";
    if (line.empty()) line = place_of_write(name.substr(name.rfind('.') + 1));
  }
  hints.refuse(RefusalCode::kHostEffect,
               "the step changes what is in " + names + ", where it finds others in each call",
               line);
}

void Step::take_or_refuse_changed(const Arguments& before, recorder::FrontendHints& hints) {
  if (take_changed(before)) return hints.discard();
  hints.refuse(RefusalCode::kHostEffect,
               "the step changes a list, a dict or an object that it is given",
               watcher().place_of_change());
}

pack::Results Step::outcome_of(recorder::FrontendHints& hints, const Given& given,
                               std::size_t first_place, const py::object& result) {
  const auto return_number = [&hints](std::size_t position, PyObject* number) {
    const trace::Formula* formula = FollowedNumbers::current().formula_of(number);
    if (formula != nullptr) hints.said.returned.emplace_back(position, *formula);
  };
  pack::Results flat;
  auto outcome = std::make_shared<Outcome>();
  outcome->add_recorded_result(*this, moving_.containers(), result.ptr(), flat, return_number);
  for (const auto& [place, value] : guarded()) hints.said.guarded[place] = value;
  outcome->add_assigned(*this, hints, flat, return_number);
  outcome->note_places(moving_, hints, given.places, first_place, flat.tensors);
  outcome->remember_left(moving_, flat.tensors);
  flat.note = std::move(outcome);
  return flat;
}

py::object Step::replayed(const pack::Results& results) {
  const auto& outcome = *static_cast<const Outcome*>(results.note.get());
  changed_in_turn_ = 0;
  outcome.remember_left(moving_, results.tensors);
  return outcome.put(results, moving_.containers());
}

std::string Step::explain() const { return life_->explain(); }

py::dict Step::stats() const {
  const Stats stats = life_ == nullptr ? Stats() : life_->stats();
  return as_dict(stats, words_);
}

void Step::invalidate(const std::string& why) {
  session_.invalidations.push_back(why);
  moving_.forget_left();
  life_->invalidate(why);
  // the step that is under way may be the one that says so
  if (calls_under_way_ == 0) {
    forget();
  } else {
    must_forget_ = true;
  }
}

void Step::refuse_always(const std::string& code, const std::string& message,
                         const std::string& place) {
  Refusal refusal = trace::make_refusal(refusal_code_of(code), message);
  refusal.place = place;
  life_->refuse_always(std::move(refusal));
}

void Step::save(const std::string& path, bool with_state) {
  moving_.exchange();
  session_.trace.save(path, with_state);
}

}  // namespace steptape::python
