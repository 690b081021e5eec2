#pragma once

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/engine/arguments.h"
#include "python/engine/followed.h"
#include "python/engine/module_watch.h"
#include "python/engine/python.h"
#include "python/engine/slots.h"
#include "python/engine/watch/instruction.h"
#include "steptape/refusal.h"

namespace steptape::python::watch {

/// Whether it holds the objects that are put in it: an array of C's makes something else of a
/// number.
bool keeps_items(PyObject* container);
/// Whether it is a list, a dict, a set, a deque, a view of a dict or an array, which guards
/// compare.
bool is_container(PyObject* value);

/// Whether what a descriptor gives is itself, or made by Python's code.
bool is_got_by_python(PyObject* descriptor);

/// Whether a tensor has hooks of Python's.
bool has_hooks(PyObject* tensor);

/// Whether a special method of a class is code of C's, which no instruction shows.
bool is_of_c(PyTypeObject* type, const char* method);

/// How many items a method adds at the end of a list or deque; none where it does something else,
/// or nobody knows how many it adds to a deque. Of a list the count need not be right.
std::optional<Py_ssize_t> appended_by(std::string_view method, PyObject* owner, PyObject* given);

/// What a call is given, borrowed, whether its arguments are spread or not.
struct GivenToCall {
  std::vector<PyObject*> positional, named;
};
GivenToCall given_to(const Instruction& in);

/// Objects that code which nobody watches, torch's or C's, has handed to code of the program's: a
/// hook gets what a partial holds, its object among `*args`. When one is met first nobody knows
/// whether it was there before. One that outlives the call, and is handed on again in another, was.
class HandedObjects {
 public:
  explicit HandedObjects(Roots& roots) : roots_(roots) {}
  /// Whether it was handed in a call before this one. Keeps it until this one ends.
  bool was_there(PyObject* object);
  bool holds(PyObject* object) const { return objects_.contains(object); }
  /// The call ends: drops those that nothing else holds.
  void end_call();

 private:
  Roots& roots_;
  struct Handed {
    Root object;
    bool is_new = true;
  };
  std::unordered_map<PyObject*, Handed> objects_;
};

/// What a Watcher knows for as long as it watches.
struct Met {
  std::vector<py::object> held_;                         ///< references to what is said to have one
  std::unordered_map<PyObject*, std::string> existing_;  ///< with a reference each
  std::unordered_set<PyObject*> hooked_;  ///< tensors whose hooks were looked at, borrowed
  std::unordered_set<PyObject*> fresh_;   ///< made by the step, or for this call; may be gone again
  std::unordered_set<PyObject*> given_containers_;  ///< of `fresh_`, and not met elsewhere
  std::unordered_set<PyObject*> given_methods_;     ///< borrowed from the call
  std::unordered_set<PyObject*> own_cells_;         ///< made by the step, with a reference each
  std::unordered_map<PyObject*, int> given_;  ///< tensors of this call, how often; with a reference
  std::unordered_map<PyObject*, at::Tensor> arrays_;  ///< with a reference each
  enum class Whose { kSteptapes, kTorchs, kPythons, kPrograms };
  struct Code {
    Whose whose = Whose::kPrograms;
    bool is_of_operators = false;  ///< torch/_ops.py
  };
  std::unordered_map<PyCodeObject*, Code> codes_;  ///< with a reference each
  std::pair<PyCodeObject*, const Code*> newest_code_;
  std::unordered_set<PyObject*> called_codes_;  ///< of functions that were noted
  std::unordered_set<PyCodeObject*> entered_;   ///< those of the program's that ran
  std::unordered_set<PyCodeObject*> made_;      ///< of the functions that these may make
  struct ModuleReads {
    bool is_whole = false;                ///< all but those that the step had put there by then
    std::vector<py::object> put;          ///< their names
    std::unordered_set<PyObject*> names;  ///< of code of torch's that ran, which has them
    std::vector<py::object> asked;        ///< those given to getattr
  };
  std::unordered_map<PyObject*, ModuleReads> modules_;
  std::unordered_map<PyTypeObject*, bool> torchs_classes_;  ///< of objects that torch's code met
  std::unordered_map<PyTypeObject*, std::unordered_set<std::string>> names_of_torchs_;
  /// Of objects of torch's, the attributes that its code has read, by their names as it has them.
  std::unordered_map<PyObject*, std::unordered_set<PyObject*>> states_;
  /// By the memory of each state that a generator was asked for in this call: which, borrowed. The
  /// recorder holds on to the memory's address.
  std::unordered_map<const c10::StorageImpl*, PyObject*> states_of_;
  std::vector<std::pair<std::string, py::object>> objects_;
};

/// What the code of a step reads and writes besides tensors, while it is probed: places that
/// existed before, each with what it held when it was first read or written. A place that was read
/// is what a plan depends on; one that was written is what a replay is to write again.
///
/// What existed before is known by the way to it: the step's function, what it is given, and
/// whatever is read from a place that existed and that the step has not written. Everything else
/// the step has made itself, and nothing of it is noted. Objects of torch (tensors; modules and
/// optimizers, which are tracked as a whole) are left to those who look at them.
///
/// Of torch's own code nothing is noted but the numbers that go into ops. Python's own library is
/// watched where code that is watched calls it; this package is not (`Folders`).
///
/// Used by the thread that runs the step, under the GIL. Runs none of the user's code.
class Watcher final : public Listener, private Met {
 public:
  Watcher(Roots& roots, MovingPlaces& moving, const ChangedArguments& changed,
          HandedObjects& handed);
  ~Watcher() override = default;
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The interpreter has told of this event, while code that is watched runs.
  void note_event(std::string_view event);

  /// From here on only numbers are looked after, in all code.
  void look_at_numbers_only() { is_for_numbers_ = true; }

  /// `value` existed before, under the name `path`.
  void mark(PyObject* value, const std::string& path);
  /// The same of a tracked module; which of its attributes torch's code reads is noted.
  void mark_module(PyObject* module, const std::string& path);
  AttributeReads reads_of(PyObject* module) const;
  /// What a function of torch's holds, such as the module that torch.no_grad() was given.
  void mark_closure(PyObject* function, int depth);
  /// A plan depends on the entry of a dict, and on what is in it where that is a container.
  void guard(const std::string& path, PyObject* dict, PyObject* key);
  void note_function(PyObject* function);
  /// `value` is made for this call, with all containers in it: what it is compared by is known
  /// elsewhere, as far as it is not met in a place of the program's, too.
  void give(PyObject* value, int depth = 32);
  /// An array of NumPy that the step is given and that counts as `tensor`, which lies over it. What
  /// torch makes of it is made of that; whatever else looks at it is refused.
  void give_array(PyObject* array, at::Tensor tensor);
  /// `function` is called from outside, with arguments that are marked.
  void called(PyObject* function);
  /// Hooks of the parameters of all modules that are tracked: code that runs in no module's call,
  /// or in torch's, may use one, and those of C's show no instruction.
  void load_hooks_of_models();

  bool wants(PyCodeObject* code, bool by_watched) override;
  bool leads(PyCodeObject* code) override { return whose(code) != Whose::kTorchs; }
  bool before(const Instruction& instruction) override;
  void after(PyObject** result) override;
  void enter(PyObject* function, PyCodeObject* code, PyObject* const* arguments, Py_ssize_t count,
             bool by_watched) override;
  bool awaits_end(PyCodeObject* code) override { return code == call_of_modules(); }
  void leave() override;

  /// The slots, in the order in which they were met. Nothing is noted any more.
  std::unique_ptr<SlotWatch> take();
  struct Finding {
    RefusalCode code;
    std::string message, place;
  };
  /// The step has ended: of what it wrote while it held a lock, nothing may stay.
  void end();
  const std::vector<Finding>& findings() const { return findings_; }
  /// Modules, optimizers, generators and host values that the step has met, by the name it has for
  /// them.
  const std::vector<std::pair<std::string, py::object>>& objects() const { return objects_; }
  /// Optimizers whose step() ran.
  const std::unordered_set<PyObject*>& stepped() const { return stepped_; }
  /// Lets go of all objects; what was found stays.
  void release();
  /// After `release`, and before anything else is made: whether the object was there before the
  /// step, as far as the step has met it.
  bool has_met(PyObject* object) const { return met_.contains(object); }
  /// Whether it is, or holds as a tuple does, a tensor or an object known by its address that the
  /// step was given.
  bool is_given_key(PyObject* key, int depth = 6) const;
  /// Where an attribute or item of this name was assigned, or its content changed by a method; "".
  std::string place_of_write(const std::string& name) const;
  /// Where something that the step is given was written to first; "".
  const std::string& place_of_change() const { return place_of_change_; }
  const std::vector<PyObject*>& changed_arguments() const { return changed_arguments_; }

 private:
  using Kind = Slot::Kind;
  /// What is_given_key asks, from then on; by address, since the step may have let go of some.
  std::unordered_set<const PyObject*> given_keys_;
  std::unordered_set<const PyObject*> met_;  ///< keys of `existing_`, once that is let go of
  struct Id {
    Kind kind;
    PyObject* owner;
    PyObject* type;      ///< of the key, where it is compared by value
    std::int64_t value;  ///< of the key, or its address
    bool operator==(const Id&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Id& id) const noexcept;
  };

  /// What the program has to do with the host reads of an op: it follows what the op gave, is given
  /// it, or sees nothing of it.
  enum class Reads { kNone, kFollowed, kGiven, kInternal };
  /// A call of a function that depends on nothing but numbers.
  struct NumberCall {
    PyObject* function = nullptr;
    std::string path = {};
    std::vector<MovingPlaces::Item::Argument> arguments = {};
    std::vector<double> numbers = {};      ///< what these are
    std::vector<PyObject*> followed = {};  ///< those among them
  };

  static std::optional<trace::Formula> sum_or_mean(const NumberCall& made);

  struct Awaited {
    std::string path;               ///< of what is to be marked when it is there, or ""
    PyTypeObject* makes = nullptr;  ///< a new object of this class
    bool is_kept = false;           ///< no place that was read has held it until now
    py::object listed = {};         ///< the tensor that `tolist` makes a list of
    std::string cached = {};        ///< `functools.lru_cache` gives it, of a call like this
    bool is_unwatched = false;      ///< an import, or a call that is refused whatever it does
    bool gives_objects = false;     ///< it hands what Python's code gives it to a function of C's
    std::optional<FollowedNumbers::Derivation> number = {};  ///< that is computed
    /// What `sum` adds up: the number that it starts from, then what it is given; or all that
    /// `max` or `min` is given, as `is_largest` says.
    std::optional<std::vector<py::object>> added = {};
    std::optional<bool> is_largest = {};
    PyObject* adds = nullptr;  ///< the code that gives it these; of a container null
    // of what does ops
    Reads reads = Reads::kNone;
    bool has_announced = false;
    bool is_made = false;          ///< a tensor of what the host holds, with a memory of its own
    PyObject* state_of = nullptr;  ///< the generator whose state it is
    std::size_t first_read = 0;
    std::optional<double> classes = {};                   ///< of one_hot
    std::optional<FollowedNumbers::OfRead> of_read = {};  ///< what the result is of that
    std::string tested = {};  ///< the function that tells of what class that is
    std::optional<NumberCall> of_numbers = {};
    /// What stands in the list that the result is, by position.
    std::vector<std::pair<Py_ssize_t, FollowedNumbers::Derivation>> items = {};
    /// The array that the result is made of: a slice of it, or a tensor, copied or over its memory.
    PyObject* array = nullptr;
    bool gives_array = false;      ///< the memory of a tensor
    PyObject* imported = nullptr;  ///< the name of the module
    enum class Made { kSlice, kAlias, kCopy } made = Made::kSlice;
  };

  bool look(const Instruction& instruction);
  /// Notes which of the arguments that FollowedNumbers watches it looks at.
  static void look_at_singles(const Instruction& in);
  /// Until the call that begins ends. True: its end is awaited.
  bool leave_unwatched();
  bool look_at_torchs(const Instruction& instruction);
  /// An attribute, or all, that torch's code reads of an object of the program's which it is given.
  void look_at_programs(const Instruction& in);
  /// What a weak proxy, or a proxy of a dict, stands for; any other object itself.
  PyObject* without_proxy(PyObject* object);
  bool may_be_made(PyCodeObject* code);
  void enter_frame(PyObject* function, PyCodeObject* code, PyObject* const* arguments,
                   Py_ssize_t count, bool by_watched);
  /// What code that is not watched gives, `*args` and `**kwargs` one by one.
  void meet(PyObject* given, const std::string& name, bool by_watched, int depth = 4);
  /// What a callable that torch's code calls holds besides code of Python's.
  void load_hooks(PyObject* hooks);
  void load_hooks_of(PyObject* module);
  void load_hooks_of_parameters(PyObject* module);
  /// Those that torch keeps in this module of its own, for all modules or optimizers.
  void load_hooks_of_all(const char* module);
  void load_hooks_of_tensor(PyObject* tensor);

  // what is noted
  static Id id_of(Kind kind, PyObject* owner, PyObject* key);
  std::size_t note(Kind kind, PyObject* owner, PyObject* key, const std::string& path,
                   bool is_read);
  py::object content_before(PyObject* dict) const;
  /// What a slot held as the step began, as far as that is known.
  py::object value_before(const Slot& slot) const;
  /// What a text is made of, or a set.
  void look_at_address(PyObject* value, int depth = 6);
  /// What becomes a key, or goes into a set, or is looked for there: which object a tensor is, or
  /// one that is known by its address.
  void look_at_key(PyObject* value, int depth = 6);
  /// Something is found by this key, or by what it was made of, which is there for as long as it:
  /// a tuple, frozenset or method of an object that has no hash of its own.
  void find_by(PyObject* key, bool is_inside = false, int depth = 6);
  void read(Kind kind, PyObject* owner, PyObject* key, const std::string& path);
  void write(Kind kind, PyObject* owner, PyObject* key, const std::string& path);
  /// Whether what the attribute holds was put there by the step.
  bool has_put(PyObject* object, PyObject* name) const;
  /// Code of torch's or of C's looks for an attribute of what may be a tracked module.
  void ask_module(PyObject* module, PyObject* name);
  void ask_for_all(PyObject* module, ModuleReads& reads);
  /// `appended`: how many items a method has added at the end, if that is what it does.
  void change(PyObject* owner, const std::string& path,
              std::optional<Py_ssize_t> appended = std::nullopt);
  /// What the step has put into a container, and which did not stand there before; borrowed from
  /// it.
  std::unordered_set<PyObject*> put_into(PyObject* container) const;
  /// Something is written to an object that did not exist before, but may be given.
  /// The tensors, lists, dicts and objects that the step is given and that stand in a container of
  /// the program's, in places that do not count as arguments.
  std::vector<py::object> given_in(PyObject* owner) const;
  void change_given(PyObject* object) {
    if (!given_containers_.contains(object)) return;
    if (place_of_change_.empty()) place_of_change_ = locate();
    if (std::ranges::find(changed_arguments_, object) == changed_arguments_.end())
      changed_arguments_.push_back(object);
  }
  void refuse(const std::string& message, RefusalCode code = RefusalCode::kHostEffect);
  void add_object(PyObject* value, const std::string& path);
  /// What is given was met in a place of the program's: it existed before, too.
  void take_back(PyObject* value);
  /// Functions, classes and the like in what stands in a place that counts as an argument, which
  /// other calls are held to.
  void mark_fixed_in(PyObject* value, const std::string& path);
  bool exists(PyObject* value) const { return existing_.contains(value); }
  /// The same, or whether the step is given it.
  bool was_there(PyObject* value) const {
    return exists(value) || given_containers_.contains(value);
  }
  std::string path_of(PyObject* value) const;
  std::string path_of_item(PyObject* owner, PyObject* key) const;

  // reads and writes of the language (reads.cc, classes.cc)
  void load_global(const Instruction& in);
  /// What the interpreter has under the name of a module, and under that of the package it is in.
  /// `is_found`: it was imported.
  void load_imported(PyObject* name, bool is_found);
  /// Attributes of tracked modules, which the code of torch's modules reads.
  void look_at_module(const Instruction& in);
  /// What torch's code assigns before it reads it, is not what a plan depends on.
  void look_at_state(const Instruction& in);
  /// Code that nobody watches may read all attributes of a module, or of those in it.
  void read_module(PyObject* value);
  /// Values of modules and classes, by which code of torch's may decide. What it writes itself in
  /// the step, such as a count of its own, is none.
  void look_at_switch(const Instruction& in);
  void load_attribute(PyObject* object, PyObject* name);
  void load_of_class(PyObject* type, PyObject* name);
  /// All that the class itself holds.
  void load_members(PyObject* type);
  /// Which classes a class, or that of an object, is made of.
  void load_order(PyObject* object);
  /// Of what the class has under this name, which may be a descriptor.
  void load_descriptor(PyTypeObject* type, PyObject* name);
  /// What is asked of a class, or of those in a tuple, that another one is made of.
  void make_class(PyObject* bases);
  /// The hash of a tuple is made of those of its items.
  void load_hashed(PyObject* value);
  void load_of_super(PyObject* super, PyObject* name);
  /// What super(`from`, `object`) finds, which is an instance or a class.
  void load_behind(PyObject* from, PyObject* object, PyObject* name);
  void load_of_instance(PyObject* object, PyObject* name);
  /// The dict of the object, borrowed, or null.
  PyObject* load_namespace(PyObject* object);
  /// `method` is what the class may have of its own to do it; null: that has been called.
  void store_attribute(PyObject* object, PyObject* name, const char* method = "__setattr__");
  void delete_attribute(PyObject* object, PyObject* name, const char* method = "__delattr__");
  /// Whether code of Python's does it for objects of the class, whose own reads and writes are
  /// seen: it may look at what is there, put it elsewhere, or not at all.
  bool is_done_by_code(PyObject* object, const char* method);
  /// The dict of an object that did not exist before, where the step has given it one of the
  /// program's (`self.__dict__ = shared`), borrowed; or null.
  PyObject* dict_from_outside(PyObject* object) const;
  /// An entry is taken out of a dict: if it was there before, the order of all tells whether it
  /// came again.
  void take_entry(PyObject* dict, PyObject* key, const std::string& path);
  /// Whether the step has put it there, where there was none.
  bool has_added(PyObject* dict, PyObject* key) const;
  /// Whether the step has assigned the entry, or deleted it.
  bool has_written(PyObject* dict, PyObject* key) const;
  /// Whether the class has special methods that are compiled: they may look at all of the object.
  bool has_compiled_methods(PyTypeObject* type);
  /// What C keeps of an object, such as `__class__`, is assigned to.
  void refuse_member(PyObject* object, PyObject* member);
  /// Whether the class of an object has code of C's as one of these methods, other than object's;
  /// it is then called with these.
  bool ask_own(PyObject* object, const char* method, std::vector<PyObject*> arguments);
  bool call_own(PyObject* callee, std::vector<PyObject*> arguments);
  void load_item(PyObject* object, PyObject* key);
  /// What an array is indexed with: a list, a mask, an array of indices.
  void load_index(PyObject* object, PyObject* key);
  /// `method` as of store_attribute.
  void store_item(PyObject* object, PyObject* key, const char* method = "__setitem__");
  /// What goes into an item, or into several, which code of C's takes apart.
  void load_stored(PyObject* object, PyObject* key, PyObject* value);
  void load_content(PyObject* container);
  bool has_written_entries(PyObject* dict) const;
  void load_size(PyObject* container);
  /// Where the slot is of what a container holds, which the step has changed; none otherwise.
  std::optional<std::size_t> changed_content(PyObject* container) const;
  /// How many items a list, deque, dict or set had as the call began, to the end of which the step
  /// may have added some; none where it has done something else to it.
  std::optional<Py_ssize_t> size_before(PyObject* container) const;
  /// Where the item that is at this position of a list or deque was as the call began, counted from
  /// the same end; none where the step has appended it.
  std::optional<Py_ssize_t> position_before(PyObject* sequence, Py_ssize_t at) const;
  /// Whether the step has assigned an item, or changed it in another way than by appending.
  bool has_written_items(PyObject* container) const;
  /// An item is assigned of a list or deque that the step has changed otherwise: one that it has
  /// added is added as it is in the end, and others may not stand where they stood. False: this one
  /// does.
  bool store_in_changed(PyObject* sequence, PyObject* key);
  /// An item of a list or deque that the step has assigned, counted from one end, may be the one at
  /// this position, counted from the other, for as long as their number is the same.
  void look_at_ends(PyObject* sequence, PyObject* key);
  /// The item of a list or deque at this position.
  void load_item_at(PyObject* sequence, PyObject* key);
  /// An item of a list or deque is asked for that is counted from its end, or several of a list:
  /// whether numbers are awaited that are followed. None where nothing has been seen to.
  std::optional<bool> follow_from_the_end(PyObject* sequence, PyObject* key);
  /// The numbers in a deque with a limit, which move up in each call, are followed: those that are
  /// found stand in it while the step runs.
  void lend_windows();
  /// What is in one is read: whether that is numbers that are followed, and such as the step has
  /// put there.
  bool load_window(PyObject* deque);
  std::optional<FollowedNumbers::Derivation> follow_item_from_the_end(PyObject* sequence,
                                                                      Py_ssize_t at);
  std::optional<bool> follow_slice(PyObject* list, PyObject* slice);
  /// What a container held there, or the size that it had, as the call began (see `find_item`).
  const MovingPlaces::Item* find_held(PyObject* container,
                                      std::vector<MovingPlaces::Item::Argument> at, double newest,
                                      PyObject* now);
  static FollowedNumbers::Derivation follow_held(const MovingPlaces::Item& item, PyObject* now);
  /// Its size, which is a number that moves.
  std::optional<FollowedNumbers::Derivation> follow_size(PyObject* container);
  /// Whether that is not 0 is asked. False where the size is not followed.
  bool test_size(PyObject* container);
  /// `len` is asked: whether the number that it gives is awaited.
  bool call_len(PyObject* object);
  /// Marks the globals that a frame shows, and refuses the frames of those that called the step.
  void load_of_frame(PyObject* frame, PyObject* name);
  /// Of a frame or generator that was there before and has not ended.
  void refuse_running(const std::string& path, const std::string& attribute);
  /// Refuses a frame that is none of those from what runs now back to where the step was called.
  void refuse_outer(PyFrameObject* frame);
  /// The exception that is being handled, if that is its caller's.
  void load_handled();
  /// The objects in `value` with all that is in them.
  void load_objects(PyObject* value);
  /// What an object of torch's holds, which its own code reads and writes unwatched.
  /// Adds to `more` the objects of torch's that it holds. Of one whose class is the program's only
  /// what that code has names for: the rest is read by the program's.
  void load_state(PyObject* object, std::vector<PyObject*>& more);
  /// The object with all its attributes, those in slots too.
  void load_object(PyObject* value, std::vector<PyObject*>& more);
  /// The same of one that is known by its identity, a class with all that its own are found in.
  void load_fixed(PyObject* value);
  /// Numbers in a module or an optimizer, which is compared as a whole, and in what is registered
  /// there, escape.
  void load_part_of_model(PyObject* part);
  /// What code of C's may look at in `value`: the items of containers, and of those in them.
  void load_whole(PyObject* value);
  /// How many containers that were there before, for which equal ones do, are in a value.
  std::size_t count_containers(PyObject* value);
  /// What code of C's may look at that compares or shows `value`: all that is in it, and in
  /// namespaces. `compares`: which weak reference one is may count.
  void load_deep(PyObject* value, bool compares = false);
  /// The same of what torch is given, which follows numbers.
  void load_given(PyObject* value);
  void load_iterator(PyObject* iterator);
  /// Refuses what code of C's gives of an object that was there before, its items or its memory, if
  /// nobody knows what that is.
  void refuse_opaque(PyObject* object);
  void look_at_memory(PyObject* array);
  void refuse_unknown(const std::string& name, PyObject* self);
  /// What is called `path` is another one in each thread.
  void look_at_thread(const std::string& path);
  void refuse_memory(PyObject* value);
  /// `does`: "reads", "writes an attribute of".
  void refuse_incomparable(const std::string& does, PyObject* object);
  void look_up(PyObject* object, const char* name);
  /// What an object of C's calls with what it is called with, as wrapt's wrappers do.
  void load_wrapped(PyObject* wrapper, const char* name);
  /// Its class's special methods: which of them are asked for, code of C's decides.
  void load_methods(PyObject* object);
  /// Of all that the interpreter may ask for one as it runs this.
  void load_methods_of_operands(const Instruction& in);
  void class_of(PyObject* object);
  /// The attributes that a class pattern names by position.
  void load_matched(const Instruction& in);
  /// The step asks whether a tensor or object is another one, or among those of a container: of one
  /// that it is given nobody can tell for other calls.
  void look_which(PyObject* object, PyObject* among);
  void mark_one(PyObject* value, const std::string& path);
  void mark_items(PyObject* container);
  /// Visits `value` and what it holds: `visit(each, more)` tells whether what code of C's finds in
  /// `each` comes next, and adds to `more` what comes besides. No object but a tensor is visited
  /// twice, and no number or text at all.
  template <typename Visit>
  void for_each_in(PyObject* value, Visit&& visit);
  /// Of a tensor, what shows nothing of what it holds.
  void load_of_tensor(PyObject* tensor, PyObject* name, const std::string& path);

  // calls (calls.cc)
  struct Call;
  bool call(const Instruction& in);
  bool call(const Call& made, int depth);
  bool call_builtin(const Call& made, const std::string& name, PyObject* self);
  bool call_method(const Call& made, const std::string& name, PyObject* self);
  void load_arguments(const Call& made, bool escapes = true);
  /// What a function of C's, that another one is given, may look at.
  void load_callable(PyObject* value);
  /// What `sorted`, `min` or `max` reads of each item by the attrgetter that is its key, and
  /// nothing else. False where that is something else, or cannot be told.
  bool load_by_getter(const Call& made);
  static void escape(const Call& made);
  /// None where the callee is not from functools or operator.
  std::optional<bool> call_of_functools(const Call& made, int depth);
  bool is_from_outside(const Call& made, const std::string& name, PyObject* self);
  void take_lock(PyObject* lock);
  /// False: it was taken otherwise than by `with`, or the step has computed meanwhile.
  bool give_back_lock(PyObject* lock, const std::string& method);
  void refuse_lock(PyObject* lock);
  /// False: nothing is awaited.
  bool refuse_output(std::string_view name);

  // arrays of NumPy (arrays.cc)
  /// True where the instruction was seen to, and its result is awaited.
  bool look_at_arrays(const Instruction& in);
  bool is_given_array(PyObject* value, int depth = 0) const;
  bool call_with_arrays(const Instruction& in);
  /// The tensor of the array whose items a call gives as Python's numbers, which are followed as
  /// those of a tensor are: `array.tolist()`, `array.item()`, `float(array)`. Null for any other.
  const at::Tensor* array_read_by(const Instruction& in) const;
  /// An array of one number beside a plain number, as PPO looks at its divergence: a read of the
  /// tensor, which a replay does too. False for anything else.
  bool compare_array(const Instruction& in);
  /// Tensors take the place of arrays in an index of a tensor.
  bool put_tensors(const Instruction& in);
  void take_array(const Awaited& awaited, PyObject** result);
  static void leave_out_ops(bool are_left_out);
  void refuse_array();
  /// Code of NumPy's asks for the memory of a tensor (`Tensor.__array__`), which it copies, unless
  /// all that it does is to make an array of it.
  void ask_for_array();

  // numbers that go into ops and come out of them (numbers.cc)
  bool look_at_numbers(const Instruction& in);
  /// Whether the result is awaited.
  bool follow(const Instruction& in);
  /// The same of an item under a key that may be followed.
  bool follow_item(PyObject* container, PyObject* key);
  /// None where the function is not known to compute with numbers, or none of them is followed.
  std::optional<bool> compute(std::string_view name, std::string_view module,
                              std::span<PyObject* const> arguments);
  /// The same of a function of `operator`.
  std::optional<bool> compute_of_tensor(std::string_view name,
                                        std::span<PyObject* const> arguments);
  std::optional<bool> compute_operator(std::string_view name, std::span<PyObject* const> arguments);
  /// The same of `sum`.
  std::optional<bool> compute_sum(std::span<PyObject* const> arguments);
  /// Of any other function that gives the same for the same numbers and does nothing besides:
  /// whether the number that it gives is awaited, to be followed.
  bool follow_call(const Call& made);
  /// Whether it is `np.isfinite`, `np.isnan` or `np.isinf` of a followed number: what that found is
  /// required.
  bool test_by_numpy(const Call& made);
  /// The same of an operator that NumPy computes in its own way.
  bool follow_operator(const Instruction& in);
  void end_call(const NumberCall& made, PyObject** result);
  /// Whether a call of `sum` that waits for its end adds up what leaves its frame.
  bool add_up(const Instruction& in);
  void end_sum(const Awaited& awaited, PyObject** result);
  /// The followed number takes the place of the result, which may be null or hold null.
  static void take_number(const FollowedNumbers::Derivation& derivation, PyObject** result);
  /// Shows the program its own objects where it asks whether one is another.
  static void show_own(const Instruction& in);
  bool operation_of_torch(const Instruction& in);
  /// Reads all numbers of a tensor as the step would: a plan holds for these. For what torch reads
  /// in ways that no op shows.
  void read_content(const at::Tensor& tensor);
  /// The step asks where in its memory a tensor lies, which may be an argument's.
  void look_where(PyObject* value);
  /// Of the tensors in lists and tuples, of which a tensor is made.
  /// The same of what stands in lists and tuples; those of one item are numbers that something is
  /// made of, where these are asked for.
  void read_data(PyObject* data, std::vector<recorder::FrontendHints::Number>* numbers = nullptr,
                 int depth = 8);
  std::vector<recorder::FrontendHints::Number> numbers_of_data(
      std::span<PyObject* const> arguments);
  /// Whether what it holds may be read item by item.
  static bool is_short(const at::Tensor& tensor);
  static trace::Formula newest_read();
  static void follow_list(PyObject** list, const at::Tensor& tensor);
  static void follow_list(PyObject** list, std::span<const at::Tensor>& items);
  /// Whether it is torch.Tensor or one of its like, such as torch.LongTensor.
  static bool makes_tensors(PyObject* type);
  /// One is called with these. Whether what it gives is waited for.
  bool begin_tensor(std::span<PyObject* const> arguments);
  /// Of those in lists that index a tensor.
  void read_index(PyObject* index);
  bool call_of_torch(const Call& made, const std::string& name);
  void look_at_graph(PyObject* roots);
  void enter_torch(PyCodeObject* code);
  /// The code of torch.nn.Module that calls the forward and its hooks.
  static PyCodeObject* call_of_modules();
  void enter_module(PyObject* module);
  /// A method of a generator of torch's is called: whether its result is awaited.
  bool call_of_generator(PyObject* generator, std::string_view name,
                         std::span<PyObject* const> arguments);
  void refuse_untold(PyObject* function);
  /// One without its object stands for another such, where nothing asks which one it is.
  void look_at_reference(PyObject* value);
  void look_at_references(PyObject* value);
  /// Code of the program's calls torch's own `__setattr__` or `__delattr__` of a module.
  void set_by_torch(const Call& made);
  void note_step(PyObject* optimizer);
  bool call_of_torch(PyObject* callee, std::string_view name, std::span<PyObject* const> arguments);
  /// `function`: FrontendHints::announce.
  bool begin_ops(std::span<PyObject* const> values, Reads reads, std::string_view function = "");
  bool announce(std::vector<recorder::FrontendHints::Number> numbers, Reads reads,
                std::string_view function = "");
  bool begin_item(PyObject* index, PyObject* value);
  void end_ops(const Awaited& awaited, PyObject** result);
  /// one_hot reads the least and the greatest label, and does nothing else with them than to see
  /// whether they are among as many classes as it is given. (ATen/native/Onehot.cpp)
  static void require_classes(const Awaited& awaited);

  Roots& roots_;
  MovingPlaces& moving_;
  const ChangedArguments& changed_;
  HandedObjects& handed_;
  std::unique_ptr<SlotWatch> slots_;
  const std::uint64_t first_node_ = at::sequence_number::peek();  ///< of autograd's in the step
  PyObject* handled_;  ///< by the caller of the step, an exception or None; borrowed from it
  std::unordered_map<Id, std::size_t, Hash> noted_;
  /// By the dict: the slots of its entries that the step has written.
  std::unordered_map<PyObject*, std::vector<std::size_t>> written_entries_;
  /// By the list or deque: the slots of its items that the step has assigned.
  std::unordered_map<PyObject*, std::vector<std::size_t>> written_items_;
  /// By the container that the step changes as a whole: what it is given was in there before, as
  /// long as the step only appends.
  std::unordered_map<PyObject*, std::vector<py::object>> given_in_changed_;
  bool is_torchs_class(PyTypeObject* type);
  /// Whether torch's code works on what its instances hold, though the class may be the program's.
  bool is_made_of_torchs_class(PyTypeObject* type);
  /// Names that the code of those classes of torch's has which one of the program's is made of.
  const std::unordered_set<std::string>& names_of_torchs(PyTypeObject* type);
  std::unordered_map<PyTypeObject*, bool> compiled_;
  std::unordered_set<PyObject*> given_to_compiled_;  ///< that were there before, borrowed
  std::unordered_set<PyObject*> got_dicts_;          ///< made by the step, and may be gone again
  struct Switch {
    Id id;
    Slot slot;
    py::object value;
  };
  std::vector<Switch> switches_;
  std::unordered_set<Id, Hash> seen_switches_;  ///< those that torch's code wrote, too
  std::vector<std::pair<PyObject*, std::string>> to_mark_;
  static Code code_in(std::string_view file);
  const Code& known(PyCodeObject* code);
  Whose whose(PyCodeObject* code) { return known(code).whose; }
  std::unordered_set<PyObject*> globals_;  ///< of the code that ran, borrowed
  PyObject* newest_globals_ = nullptr;
  std::unordered_map<std::string, std::string> writes_;
  std::string place_of_change_;
  std::size_t came_ = 0;                      ///< entries to dicts
  std::vector<PyObject*> changed_arguments_;  ///< that are compared by what they hold
  std::vector<Finding> findings_;
  struct Lock {
    PyObject* lock;
    std::size_t ops;  ///< that had been recorded when it was taken
  };
  std::vector<Lock> locks_;                                            ///< that the step holds
  std::vector<std::pair<std::size_t, PyObject*>> written_under_lock_;  ///< slots
  std::unordered_set<PyObject*> seen_objects_;
  std::unordered_set<PyObject*> stepped_;  ///< borrowed: they are tracked, or known by nobody
  std::vector<Awaited> awaited_;
  std::vector<PyObject*> called_modules_;  ///< those whose call has not ended, borrowed
  bool is_for_numbers_ = false;
  PyObject* calling_ = nullptr;  ///< the code that the newest call instruction enters
  /// Of the newest instruction, if it is a call: what is called, and its first argument. Borrowed.
  PyObject* newest_callee_ = nullptr;
  PyObject* newest_argument_ = nullptr;
  PyObject* outermost_ = nullptr;  ///< that of the step's function
  // calls that are under way
  int unwatched_ = 0;
  int gives_objects_ = 0;
};

}  // namespace steptape::python::watch
