#include "python/engine/step.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "python/engine/arguments.h"
#include "python/engine/followed.h"
#include "python/engine/optimizer_watch.h"
#include "python/engine/watch/watcher.h"
#include "recorder/frontend_hints.h"
#include "session/observe/account.h"
#include "session/observe/journal.h"
#include "steptape/error.h"
#include "trace/refusals.h"

namespace steptape::python {
namespace {

template <typename Enum>
struct Choice {
  const char* name;
  Enum value;
};

template <typename Enum, std::size_t N>
Enum chosen(const py::dict& options, const char* option, const Choice<Enum> (&choices)[N]) {
  const auto found = py::cast<std::string>(options[option]);
  std::string names;
  for (const auto& choice : choices) {
    if (found == choice.name) return choice.value;
    names += (names.empty() ? "'" : ", '") + std::string(choice.name) + "'";
  }
  throw Error(ErrorCode::kInvalidArgument,
              std::string(option) + " is '" + found + "'; it must be one of " + names);
}

Record record_of(const py::dict& record) {
  Record made;
  made.first = py::cast<std::uint64_t>(record["first"]);
  made.every = py::cast<std::uint64_t>(record["every"]);
  for (const py::handle call : py::cast<py::list>(record["at"])) {
    made.at.push_back(py::cast<std::uint64_t>(call));
  }
  made.on_nonfinite = py::cast<bool>(record["on_nonfinite"]);
  made.on_signal = py::cast<int>(record["on_signal"]);
  made.state = py::cast<bool>(record["state"]);
  return made;
}

Options options_of(const py::dict& options) {
  Options made;
  made.trace = py::cast<std::string>(options["trace"]);
  made.verify.first = py::cast<bool>(options["verify_first"]);
  made.verify.rate = py::cast<double>(options["verify_rate"]);
  made.on_divergence = chosen<OnDivergence>(options, "on_divergence",
                                            {{"raise", OnDivergence::kThrow},
                                             {"report", OnDivergence::kReport},
                                             {"restore", OnDivergence::kRestore}});
  made.on_refusal = chosen<OnRefusal>(options, "on_refusal",
                                      {{"eager", OnRefusal::kEager}, {"raise", OnRefusal::kThrow}});
  made.determinism = chosen<Determinism>(
      options, "determinism", {{"listed", Determinism::kListed}, {"strict", Determinism::kStrict}});
  made.host_reads = chosen<HostReads>(
      options, "host_reads", {{"refuse", HostReads::kRefuse}, {"observe", HostReads::kObserve}});
  made.max_variants = py::cast<std::uint32_t>(options["max_variants"]);
  made.static_gradients = py::cast<bool>(options["static_gradients"]);
  made.audit_seed = py::cast<std::uint64_t>(options["audit_seed"]);
  made.log = py::cast<std::string>(options["log"]);
  made.ledger = py::cast<bool>(options["ledger"]);
  made.digests = py::cast<bool>(options["digests"]);
  made.timings = py::cast<bool>(options["timings"]);
  made.resume = py::cast<bool>(options["resume"]);
  made.record = record_of(options["record"]);
  return made;
}

pack::Leaf leaf_of(const std::string& name, const py::object& value) {
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
  if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  int overflow = 0;
  const long long integer =
      PyLong_Check(value.ptr()) ? PyLong_AsLongLongAndOverflow(value.ptr(), &overflow) : 0;
  if (PyLong_Check(value.ptr()) && overflow == 0) return static_cast<std::int64_t>(integer);
  throw Error(ErrorCode::kInvalidArgument,
              "host value \"" + name + "\" is " +
                  (overflow != 0 ? "an int of more than 64 bits" : "a " + type_name(value.ptr())) +
                  "; it must be a bool, an int or a float");
}

py::object object_of_number(const trace::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return py::bool_(*flag);
  if (const auto* integer = std::get_if<std::int64_t>(&value.data)) return py::int_(*integer);
  if (const auto* real = std::get_if<trace::Real>(&value.data)) return py::float_(real->value);
  return py::none();
}

/// None for a plan of the CPU.
py::object as_dict(const DeviceStats& device) {
  if (device.device.empty()) return py::none();
  py::dict dict;
  dict["device"] = device.device;
  dict["graphs"] = device.graphs;
  dict["nodes"] = device.nodes;
  dict["updated"] = device.updated;
  dict["grouped"] = device.grouped;
  dict["groups"] = device.groups;
  dict["ahead"] = device.ahead;
  py::list between;
  for (const std::string& call : device.between) between.append(call);
  dict["between"] = std::move(between);
  dict["captures"] = device.captures;
  dict["captured_for"] = device.captured_for;
  dict["capture_us"] = device.capture_us;
  dict["launch_us"] = device.launch_us;
  dict["pool_bytes"] = device.pool_bytes;
  dict["static_bytes"] = device.static_bytes;
  py::list copies;
  for (const TensorCopy& copy : device.copies) {
    copies.append(py::dict(py::arg("path") = copy.path, py::arg("bytes") = copy.bytes,
                           py::arg("why") = copy.why, py::arg("remedy") = copy.remedy));
  }
  dict["copies"] = std::move(copies);
  return dict;
}

py::dict as_dict(const PlanStats& plan) {
  py::dict dict;
  dict["number"] = plan.number;
  dict["ops"] = plan.ops;
  dict["calls"] = plan.calls;
  dict["prepared"] = plan.prepared;
  dict["stages"] = plan.stages;
  py::dict unprepared;
  for (const CountedReason& each : plan.unprepared) unprepared[py::str(each.reason)] = each.calls;
  dict["unprepared"] = std::move(unprepared);
  dict["lacks_blas"] = plan.lacks_blas;
  dict["device"] = as_dict(plan.device);
  dict["replays"] = plan.replays;
  dict["rebinds"] = plan.rebinds;
  py::list nondeterministic;
  for (const NondeterministicOp& op : plan.nondeterministic) {
    nondeterministic.append(py::dict(py::arg("op") = op.op, py::arg("op_index") = op.op_index,
                                     py::arg("module") = op.module, py::arg("place") = op.place,
                                     py::arg("spread") = op.spread,
                                     py::arg("largest_difference") = op.largest_difference));
  }
  dict["nondeterministic"] = nondeterministic;
  dict["arena_bytes"] = plan.arena_bytes;
  dict["temporary_bytes"] = plan.temporary_bytes;
  dict["max_live_bytes"] = plan.max_live_bytes;
  dict["plan_us"] = plan.plan_us;
  dict["warm_start"] = plan.is_warm_start;
  return dict;
}

py::dict as_dict(const CountedRefusal& counted, const Words& words) {
  const Refusal& refusal = counted.refusal;
  const std::string place = session::line_in(refusal.place);
  const std::size_t colon = place.rfind(':');
  py::dict dict;
  dict["code"] = std::string(name_of(refusal.code));
  dict["reason"] = words.named(refusal.message);
  dict["op"] = refusal.op;
  dict["module"] = refusal.module;
  dict["file"] = place.empty() ? "" : place.substr(0, colon);
  dict["line"] = place.empty() ? 0 : std::stoi(place.substr(colon + 1));
  dict["remedy"] = words.remedy_for(refusal);
  dict["times"] = counted.times;
  return dict;
}

py::dict as_dict(const Verdict& verdict, std::uint64_t last_held, const Words& words) {
  py::dict dict;
  dict["kind"] = std::string(name_of(verdict.kind));
  dict["path"] = words.named(verdict.path);
  dict["expected"] = verdict.expected;
  dict["found"] = verdict.found;
  dict["last_held"] = last_held;
  dict["text"] = words.named(session::text_of(verdict, last_held));
  return dict;
}

py::dict as_dict(const CountedVerdict& counted, const Words& words) {
  py::dict dict = as_dict(counted.verdict, counted.last_held, words);
  dict["times"] = counted.times;
  return dict;
}

py::dict as_dict(const VariantVerdict& verdict, const Words& words) {
  py::dict dict = as_dict(verdict.verdict, verdict.last_held, words);
  dict["variant"] = verdict.variant;
  return dict;
}

template <typename T, typename... Words>
py::list list_of(const std::vector<T>& values, const Words&... words) {
  py::list list;
  for (const T& value : values) list.append(as_dict(value, words...));
  return list;
}

/// A place, as held_at has it: no key is a null one.
struct Place {
  py::object owner, key;
};

/// The place that `keys` lead to inside what another one holds; without an owner where it is gone.
Place inside(Place place, const py::list& keys) {
  for (const py::handle& next : keys) {
    place.owner = held_at(place.owner.ptr(), place.key.ptr());
    if (!place.owner) return {};
    place.key = py::reinterpret_borrow<py::object>(next);
  }
  return place;
}

/// What stands in a place now: one value, or none.
py::list held_in(const Place& place) {
  py::list values;
  if (!place.owner) return values;
  if (const py::object value = held_at(place.owner.ptr(), place.key.ptr())) values.append(value);
  return values;
}

/// The items of a list or deque from `first` on.
py::list items_from(const py::object& owner, std::size_t first) {
  const py::list all(owner);
  return all[py::slice(static_cast<Py_ssize_t>(first), static_cast<Py_ssize_t>(all.size()), 1)];
}

/// Puts followed numbers in the places of those that a step is given, for as long as it is
/// recorded.
class FollowedArguments {
 public:
  FollowedArguments() = default;
  FollowedArguments(const FollowedArguments&) = delete;
  FollowedArguments& operator=(const FollowedArguments&) = delete;
  ~FollowedArguments() { take_back(); }

  /// Whether another number stands now where one of these stood, though it may be an equal one:
  /// in what the arguments hold whose first leaf is the call's `first_leaf`-th.
  bool has_others(const Arguments& now, std::size_t first_leaf) const {
    return std::ranges::any_of(now.numbers, [&](const Arguments::Number& number) {
      const py::object value = held_at(number.holder, number.key.ptr());
      bool is_known = false;
      for (const Place& place : places_) {
        if (place.leaf != first_leaf + number.leaf) continue;
        if (is_as_given(place, value)) return false;
        is_known = true;
      }
      return is_known;
    });
  }

  /// Puts the plain numbers back where the followed ones are still.
  void take_back() {
    for (Place& place : places_) {
      if (!held_at(place.holder.ptr(), place.key.ptr()).is(place.followed)) continue;
      place.plain = FollowedNumbers::current().plain(place.followed.ptr());
      put_at(place.holder.ptr(), place.key.ptr(), place.plain.ptr());
    }
  }

  /// The followed ones again where take_back has put the plain ones.
  void put_again() {
    for (Place& place : places_) {
      if (place.plain) put_at(place.holder.ptr(), place.key.ptr(), place.followed.ptr());
    }
  }

  /// Of the arguments whose first leaf is the call's `first_leaf`-th.
  void put(const Arguments& arguments, recorder::FrontendHints& hints, std::size_t first_leaf) {
    FollowedNumbers& numbers = FollowedNumbers::current();
    for (const auto& [leaf, holder, key] : arguments.numbers) {
      const py::object value = held_at(holder, key.ptr());
      if (numbers.contains(value.ptr())) {  // of a container that is given twice
        numbers.escape(value.ptr());
        continue;
      }
      if (!FollowedNumbers::can_follow(value.ptr())) continue;
      const std::string path = "inputs[" + std::to_string(first_leaf + leaf) + "]";
      py::object followed =
          numbers.follow(value.ptr(), trace::leaf(hints.leaf(trace::LeafKind::kArgument, path)));
      if (followed.is(value)) continue;
      put_at(holder, key.ptr(), followed.ptr());
      places_.push_back({first_leaf + leaf, borrowed(holder), key, std::move(followed)});
    }
  }

 private:
  struct Place {
    std::size_t leaf;  ///< of the call
    py::object holder, key, followed, plain = {};
  };

  /// Whether it is the number that was put there, or what is computed of that alone without effect.
  static bool is_as_given(const Place& place, const py::object& now) {
    const FollowedNumbers& numbers = FollowedNumbers::current();
    PyObject* const given = place.followed.ptr();
    if (!now || now.is(place.followed)) return true;
    // of a container that is reached in another way, too, the number stands there itself
    if (numbers.has_escaped(given) && now.is(numbers.plain(given))) return true;
    const trace::Formula* formula = numbers.formula_of(now.ptr());
    return formula != nullptr && Py_TYPE(now.ptr()) == Py_TYPE(given) &&
           *formula == *numbers.formula_of(given);
  }

  std::vector<Place> places_;
};

/// Holds the containers among the arguments, and tells whether these are the same ones.
class GivenContainers {
 public:
  explicit GivenContainers(const Arguments& arguments) {
    for (PyObject* each : arguments.containers) all_.push_back(borrowed(each));
  }
  bool same(const Arguments& now) const {
    return std::ranges::equal(all_, now.containers, [](const py::object& before, PyObject* after) {
      return before.ptr() == after;
    });
  }

 private:
  std::vector<py::object> all_;
};

/// Which leaves are tensors that ops made out of others which require a gradient.
std::vector<bool> results_in(const Arguments& arguments) {
  std::vector<bool> results;
  for (const pack::Leaf& leaf : arguments.leaves) {
    const auto* tensor = std::get_if<at::Tensor>(&leaf);
    results.push_back(tensor != nullptr && tensor->defined() && !tensor->is_leaf());
  }
  return results;
}

/// What the numbers are called that a value is, or that stand in a tuple, in order; none where
/// there are others in it, deeper down.
std::vector<std::string> names_of_numbers(const py::handle& value, const std::string& name) {
  const auto is_number = [](const py::handle& item) { return is_plain_number(item.ptr()); };
  if (is_number(value)) return {name};
  std::vector<std::string> names;
  if (!PyTuple_CheckExact(value.ptr())) return names;
  for (const py::handle& item : value) {
    if (!is_number(item)) return {};
    names.push_back(name + "[" + std::to_string(names.size()) + "]");
  }
  return names;
}

}  // namespace

/// A place that the step assigned to, whose value is the next part of Note::structure, or a list
/// that as many of them were appended to.
struct Step::Assignment {
  Root owner, key, keys;
  /// The owner is an optimizer, and meant is its dict of this group: a state that is loaded puts
  /// others in their places.
  std::optional<Py_ssize_t> group = {};
  std::optional<std::size_t> appended = {};
  bool is_one = false;  ///< value, which takes the place of another
  /// Which of the places that count as arguments it is, and where its tensors are among the
  /// results.
  std::optional<std::size_t> given = {};
  std::vector<std::size_t> tensors = {};

  /// The very place, without an owner where it is gone.
  Place place() const {
    PyObject* groups = group ? groups_of(owner.get()) : nullptr;
    const bool is_there = groups != nullptr && *group < PyList_GET_SIZE(groups);
    PyObject* at = !group ? owner.get() : is_there ? PyList_GET_ITEM(groups, *group) : nullptr;
    if (at == nullptr) return {};
    return inside({borrowed(at), borrowed(key.get())},
                  py::reinterpret_borrow<py::list>(keys.get()));
  }
};

/// What a replay needs to look like the call that was recorded.
struct Step::Note {
  Structure structure;  ///< the result, then what was assigned
  std::vector<Assignment> assignments = {};
};

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
    const auto called = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(kept->get()));
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
  Arguments arguments;
  std::vector<py::object> places;
  Arguments held = {};  ///< in the places
};

py::object Step::call(const py::args& args, const py::kwargs& kwargs) {
  ++calls_under_way_;
  const auto is_over = c10::make_scope_exit([this] {
    if (--calls_under_way_ == 0 && std::exchange(must_forget_, false)) forget();
  });
  const ChangedArguments* changed = changed_.is_empty() ? nullptr : &changed_;
  const Flatten how{.has_offsets = moving_.compares_offsets(), .changed = changed};
  const Order order = takes_keywords_ ? Order::kGiven : Order::kAny;
  Given given{flatten(args.ptr(), kwargs.ptr(), order, how), moving_.given()};
  py::object result;
  std::vector<PyObject*> containers = std::move(given.arguments.containers);
  std::vector<pack::Leaf> leaves = std::move(given.arguments.leaves);
  if (!given.places.empty()) {
    moving_.note_left(given.places);
    given.held = flatten(given.places, how);
    leaves.insert(leaves.end(), given.held.leaves.begin(), given.held.leaves.end());
    containers.insert(containers.end(), given.held.containers.begin(), given.held.containers.end());
  }
  moving_.set_containers(std::move(containers));
  moving_.set_arguments(leaves);
  // what the step assigns is assigned before anyone looks, who may throw
  life_->call(
      std::move(leaves), [&] { return run(given, args, kwargs, result); },
      [&](const pack::Results& replayed) { result = this->replayed(replayed); });
  return result;
}

void Step::check_arguments(const Arguments& arguments, const std::string& opaque_name,
                           recorder::FrontendHints& hints) {
  const std::unordered_set<PyObject*> known =
      arguments.objects.empty() ? std::unordered_set<PyObject*>() : tracked();
  for (PyObject* object : arguments.objects) {
    given_objects_.try_emplace(object, roots_, object);
    if (is_part_of_model(object) && !known.contains(object)) {
      hints.refuse(trace::make_refusal(
          RefusalCode::kOpaqueArgument,
          "an argument is a " + type_name(object) + " that the first call was not given"));
    }
  }
  if (!arguments.opaque.empty()) {
    hints.refuse(trace::make_refusal(
        RefusalCode::kOpaqueArgument,
        (opaque_name.empty() ? "an argument" : "`" + opaque_name + "`") + std::string(" is a ") +
            arguments.opaque + ", whose content cannot be guarded"));
  }
  if (arguments.has_subclass) {
    hints.refuse(trace::make_refusal(RefusalCode::kTensorKind,
                                     "an argument is of a subclass of torch.Tensor"));
  }
}

namespace {

/// Whether its class, or one that it is made of, is torch's.
bool is_made_by_torch(PyTypeObject* type) {
  for (Py_ssize_t i = 0; type->tp_mro != nullptr && i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    if (is_torchs(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i)))) return true;
  }
  return false;
}

}  // namespace

bool Step::take_changed(const Arguments& before) {
  std::vector<PyObject*> changed = changed_arguments();
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

pack::Results Step::run(const Given& given, const py::args& args, const py::kwargs& kwargs,
                        py::object& result) {
  const Arguments& arguments = given.arguments;
  const auto function = py::reinterpret_borrow<py::object>(function_.get());
  recorder::FrontendHints* hints = recorder::FrontendHints::current();
  assignments_.reset();
  // until it is known what the step leaves: a tuple of its arguments may be among that
  std::optional<FollowedArguments> followed;
  std::size_t first_place = 0;
  if (hints != nullptr && watch::current() != nullptr) {
    // inside another step, whose recording this is: what is called here is code like another
    auto& watcher = static_cast<watch::Watcher&>(*watch::current());
    watcher.mark(function.ptr(), life_->name());
    watcher.called(function.ptr());
    hints = nullptr;
  }
  if (hints == nullptr) {
    result = function(*args, **kwargs);
  } else {
    hints->follow_numbers();
    FollowedNumbers::current().clear();  // of a step that threw
    const auto probe = py::reinterpret_borrow<py::object>(probe_.get());
    const Order order = takes_keywords_ ? Order::kGiven : Order::kAny;
    const ChangedArguments* changed = changed_.is_empty() ? nullptr : &changed_;
    const Flatten by_identity{
        .arrays = Arrays::kByIdentity, .names = &parameters_, .changed = changed};
    const Arguments before = flatten(args.ptr(), kwargs.ptr(), order, by_identity);
    first_place = before.leaves.size();
    const std::vector<std::string> place_names = moving_.names_of_given();
    const Flatten in_places{
        .arrays = Arrays::kByIdentity, .names = &place_names, .changed = changed};
    const Arguments held = flatten(given.places, in_places);
    if (!before.holds_opaque && take_as_programs(before.unguarded)) {
      hints->discard();
    } else {
      check_arguments(arguments, before.opaque_name, *hints);
    }
    check_arguments(given.held, held.opaque_name, *hints);
    words_.names = before.names;
    words_.names.emplace_back();  // their structure
    if (!given.places.empty()) {
      words_.names.insert(words_.names.end(), held.names.begin(), held.names.end());
      words_.names.emplace_back();
    }
    const std::vector<bool> results = results_in(before);
    arrays_ = arguments.arrays;
    arrays_.insert(arrays_.end(), given.held.arrays.begin(), given.held.arrays.end());
    const auto none_is_given = c10::make_scope_exit([this] { arrays_.clear(); });
    followed.emplace();
    followed->put(before, *hints, 0);
    followed->put(held, *hints, before.leaves.size());
    const GivenContainers containers(before);
    const GivenContainers held_containers(held);
    result = probe(function, args, kwargs);
    const auto look = [&] { return flatten(args.ptr(), kwargs.ptr(), order, by_identity); };
    const auto look_in_places = [&] { return flatten(given.places, in_places); };
    const auto is_changed = [&](const Arguments& now, std::size_t first_leaf, const auto& kept) {
      return followed->has_others(now, first_leaf) || !kept.same(now);
    };
    const bool has_changed = is_changed(look(), 0, containers);
    const bool has_held_changed =
        is_changed(look_in_places(), before.leaves.size(), held_containers);
    followed->take_back();
    if (!given.places.empty() && (has_held_changed || !same(given.held, look_in_places()))) {
      std::string names, place;
      for (const std::string& name : place_names) {
        names += (names.empty() ? "`" : " or `") + name + "`";
        if (place.empty()) place = place_of_write(name.substr(name.rfind('.') + 1));
      }
      Refusal refusal =
          trace::make_refusal(RefusalCode::kHostEffect, "the step changes what is in " + names +
                                                            ", where it finds others in each call");
      refusal.place = place;
      hints->refuse(std::move(refusal));
    }
    // the recorder refuses by its name an argument that becomes a result
    const bool changes_arguments =
        results_in(before) == results && (has_changed || !same(before, look()));
    if (changes_arguments && take_changed(before)) {
      hints->discard();
    } else if (changes_arguments) {
      Refusal refusal =
          trace::make_refusal(RefusalCode::kHostEffect,
                              "the step changes a list, a dict or an object that it is given");
      refusal.place = place_of_change();
      hints->refuse(std::move(refusal));
    }
    followed->put_again();  // a tuple of the arguments may be among what the step leaves
  }
  pack::Results flat;
  auto note = std::make_shared<Note>();
  const auto return_number = [hints](std::size_t position, PyObject* number) {
    const trace::Formula* formula = FollowedNumbers::current().formula_of(number);
    if (hints != nullptr && formula != nullptr) hints->return_number(position, *formula);
  };
  if (hints != nullptr) {
    note->structure.ask_whether_known([this](PyObject* object) {
      return has_met(object) || (is_part_of_model(object) && tracked().contains(object));
    });
  }
  note->structure.add(roots_, {result.ptr(), 1}, flat, return_number);
  if (hints == nullptr) {
    moving_.forget_left();
    if (const auto* tried = static_cast<const Note*>(life_->note_of_tried())) {
      return_assigned(*tried, flat);
    }
  } else {
    for (const auto& [place, value] : guarded()) hints->note_guarded(place, value);
    return_assigned(*hints, *note, flat, return_number);
    note_places(*hints, given, first_place, *note, flat.tensors);
    remember_left(*note, flat.tensors);
    followed.reset();
    FollowedNumbers::current().clear();
  }
  flat.note = std::move(note);
  return flat;
}

py::object Step::replayed(const pack::Results& results) {
  const auto& note = *static_cast<const Note*>(results.note.get());
  changed_in_turn_ = 0;
  remember_left(note, results.tensors);
  std::vector<py::object> built = note.structure.build(results);
  auto next = built.begin() + 1;
  for (const Assignment& assignment : note.assignments) {
    const Place place = assignment.place();
    if (!place.owner) throw Error(ErrorCode::kInternal, "a place that the step assigns to is gone");
    if (!assignment.appended) {
      put_at(place.owner.ptr(), place.key.ptr(), (next++)->ptr());
      continue;
    }
    for (std::size_t i = 0; i < *assignment.appended; ++i)
      append_to(place.owner.ptr(), (next++)->ptr());
  }
  return built.front();
}

void Step::remember_left(const Note& note, const std::vector<at::Tensor>& results) {
  for (const Assignment& made : note.assignments) {
    if (!made.given) continue;
    std::vector<MovingPlaces::WeakTensor>& left = moving_.given_at(*made.given).left;
    left.clear();
    for (const std::size_t k : made.tensors) left.emplace_back(results[k].getIntrusivePtr());
  }
}

namespace {

/// The tensors in a value, each by its name in the program; none that it holds anything besides.
std::vector<std::pair<std::string, at::Tensor>> tensors_in(const Arguments& arguments) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (std::size_t i = 0; i + 1 < arguments.leaves.size(); ++i) {
    if (const auto* tensor = std::get_if<at::Tensor>(&arguments.leaves[i]))
      tensors.emplace_back(arguments.names[i], *tensor);
  }
  return tensors;
}

trace::Index index_in(const std::vector<at::Tensor>& results, const at::Tensor& tensor) {
  const auto found = std::ranges::find_if(
      results, [&tensor](const at::Tensor& each) { return each.is_same(tensor); });
  return found == results.end() ? trace::kNone : static_cast<trace::Index>(found - results.begin());
}

}  // namespace

void Step::note_places(recorder::FrontendHints& hints, const Given& given, std::size_t first_place,
                       Note& note, const std::vector<at::Tensor>& results) {
  const std::vector<py::object> left_in = moving_.given();
  std::vector<Arguments> all_left;
  for (std::size_t i = 0; i < left_in.size(); ++i)
    all_left.push_back(flatten(left_in[i], moving_.given_at(i).name));
  for (Assignment& made : note.assignments) {
    const Place at = made.is_one ? made.place() : Place();
    if (at.owner) made.given = moving_.find_given(at.owner.ptr(), at.key.ptr());
    if (!made.given) continue;
    for (const auto& [name, tensor] : tensors_in(all_left[*made.given])) {
      const trace::Index result = index_in(results, tensor);
      if (result != trace::kNone) made.tensors.push_back(result);
    }
  }
  std::size_t leaf = first_place;
  for (std::size_t i = 0; i < given.places.size(); ++i) {
    MovingPlaces::Place& place = moving_.given_at(i);
    const Arguments found = flatten(given.places[i], place.name);
    const Arguments& left = all_left[i];
    auto tensors = tensors_in(left);
    bool are_results = true;  // those that it leaves
    const auto is_tensor_leaf = [](const pack::Leaf& each) {
      return std::holds_alternative<at::Tensor>(each);
    };
    // but for their structures
    const bool has_others =
        !std::all_of(found.leaves.begin(), found.leaves.end() - 1, is_tensor_leaf) ||
        !std::all_of(left.leaves.begin(), left.leaves.end() - 1, is_tensor_leaf);
    for (std::size_t own = 0; own + 1 < found.leaves.size(); ++own, ++leaf) {
      const auto* tensor = std::get_if<at::Tensor>(&found.leaves[own]);
      if (tensor == nullptr) continue;
      trace::HeldInput input{.path = found.names[own],
                             .input = static_cast<trace::Index>(leaf),
                             .is_carried = true,
                             .place = static_cast<trace::Index>(i)};
      const auto now =
          std::ranges::find(tensors, input.path, &std::pair<std::string, at::Tensor>::first);
      input.is_dropped = now == tensors.end();
      if (!input.is_dropped) {
        if (!now->second.is_same(*tensor)) {
          input.result = index_in(results, now->second);
          are_results = are_results && input.result != trace::kNone;
        }
        tensors.erase(now);
      }
      hints.note_place(std::move(input));
    }
    for (const auto& [name, tensor] : tensors) {
      const trace::Index result = index_in(results, tensor);
      are_results = are_results && result != trace::kNone;
      if (result != trace::kNone)
        hints.note_place({.path = name,
                          .result = result,
                          .is_carried = true,
                          .place = static_cast<trace::Index>(i)});
    }
    // players hold no numbers of such places: who sets them does not matter
    place.is_left = place.is_left || has_others;
    const bool is_carried = are_results && !has_others;
    hints.note_held_place(
        {place.name, found.structure(), left.structure(),
         is_carried ? trace::HeldPlace::Rule::kCarried : trace::HeldPlace::Rule::kLost});
  }
}

void Step::return_assigned(recorder::FrontendHints& hints, Note& note, pack::Results& flat,
                           const Structure::OnNumber& on_number) {
  struct Made {
    std::string path, words, place, change;
    std::size_t end;  ///< after the parts of its values
    Before before;
  };
  std::vector<Made> all;
  Structure& structure = note.structure;
  for (const py::handle& item : assignments_.value_or(py::list())) {
    const auto [path, owner, key, keys, kept, place, change, before_number] =
        py::cast<std::tuple<std::string, py::object, py::object, py::list, py::object, std::string,
                            std::string, int>>(item);
    const auto before = static_cast<Before>(before_number);
    const auto group = group_of(owner.ptr());
    Assignment& made = note.assignments.emplace_back(
        Assignment{Root::guarding(roots_, group ? group->first : owner.ptr()),
                   key.is_none() ? Root() : Root(roots_, key.ptr()), Root(roots_, keys.ptr())});
    if (group) made.group = group->second;
    const py::list values =
        kept.is_none() ? held_in(made.place()) : items_from(owner, py::cast<std::size_t>(kept));
    if (!kept.is_none()) made.appended = values.size();
    hints.leave_results(flat.tensors.size(), path);
    made.is_one = kept.is_none() && keys.empty();
    std::string becomes;
    if (kept.is_none() && keys.empty()) {
      PyObject* at = key.is_none() ? nullptr : key.ptr();
      becomes = hints.is_assigned(path) ? path : moving_.name_of(owner.ptr(), at);
    }
    std::vector<std::string> parts =
        becomes.empty() ? std::vector<std::string>() : names_of_numbers(values[0], becomes);
    std::ranges::reverse(parts);
    const auto on_value = [&](std::size_t position, PyObject* number) {
      on_number(position, number);
      if (parts.empty()) {
        // a player does not carry it on: it holds while what it reads there is what it leaves
        if (before == Before::kSame) FollowedNumbers::current().hold(number);
        return;
      }
      hints.become(position, parts.back());
      parts.pop_back();
    };
    std::string words = kept.is_none() ? "" : "appended:";
    for (const py::handle& value : values) {
      // by the place and by `values`
      structure.add(roots_, {value.ptr(), 2, true}, flat, on_value);
      words += (words.empty() ? "" : " ") + structure.text(structure.size() - 1);
    }
    all.push_back({path, words, place, change, structure.size(), before});
  }
  structure.settle([this](PyObject* object) { return holds(object); });
  if (!structure.opaque(0).empty()) {
    hints.refuse(trace::make_refusal(
        RefusalCode::kHostEffect,
        "the step returns a " + structure.opaque(0) + ", which a replay could not make"));
  }
  if (structure.has_subclass(0)) {
    hints.refuse(
        trace::make_refusal(RefusalCode::kTensorKind, "a result is of a subclass of torch.Tensor"));
  }
  hints.add_effect({"results", structure.text(0), "", false});
  std::size_t k = 1;
  for (const Made& made : all) {
    for (; k < made.end; ++k) {
      if (structure.opaque(k).empty() && !structure.has_subclass(k)) continue;
      Refusal refusal = trace::make_refusal(RefusalCode::kHostEffect,
                                            "host state `" + made.path + "` went " + made.change);
      refusal.place = made.place;
      hints.refuse(std::move(refusal));
    }
    hints.add_effect({made.path, made.words, made.place, made.before == Before::kOther});
  }
}

void Step::return_assigned(const Note& tried, pack::Results& flat) {
  std::size_t k = 1;
  for (const Assignment& assignment : tried.assignments) {
    const Place place = assignment.place();
    const std::size_t count = assignment.appended.value_or(1);
    const std::size_t size = assignment.appended ? py::len(place.owner) : 0;
    const py::list values = assignment.appended
                                ? items_from(place.owner, size - std::min(count, size))
                                : held_in(place);
    for (std::size_t i = 0; i < count; ++i) {
      tried.structure.flatten(k++, i < values.size() ? values[i].ptr() : nullptr, flat);
    }
  }
}

std::string Step::explain() const { return life_->explain(); }

py::dict Step::stats() const {
  const Stats stats = life_ == nullptr ? Stats() : life_->stats();
  py::dict dict;
  dict["steps"] = stats.steps;
  dict["recorded"] = stats.recorded;
  dict["trials"] = stats.trials;
  dict["replayed"] = stats.replayed;
  dict["eager"] = stats.eager;
  dict["audits"] = stats.audits;
  dict["variants"] = list_of(stats.variants);
  dict["refusals"] = list_of(stats.refusals, words_);
  dict["fell_back"] = stats.fell_back;
  dict["fallbacks"] = list_of(stats.fallbacks, words_);
  dict["last_verdict"] = stats.last_verdict
                             ? py::object(py::none())
                             : py::object(py::str(words_.named(stats.last_verdict.text())));
  dict["last_verdicts"] = list_of(stats.last_verdicts, words_);
  dict["trace_problem"] = stats.trace_problem;
  dict["ledger_problem"] = stats.ledger_problem;
  dict["log_problem"] = stats.log_problem;
  return dict;
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
  Refusal refusal;
  refusal.code = refusal_code_of(code);
  refusal.message = message;
  refusal.place = place;
  life_->refuse_always(std::move(refusal));
}

void Step::save(const std::string& path, bool with_state) { session_.trace.save(path, with_state); }

}  // namespace steptape::python
