#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "steptape/refusal.h"
#include "trace/account.h"
#include "trace/digest.h"
#include "trace/formula.h"
#include "trace/proved_values.h"
#include "trace/value.h"

/// The model of a trace: plain values that any part may hold, compare and copy. While recording,
/// the recorder fills a Recording; while replaying, the replayer reads one. Nothing here knows
/// LibTorch or files. Ids are positions in the vectors of the same Recording; a Recording that
/// `validate` accepted holds only ids and ranges that exist.
namespace steptape::trace {

using BufferId = std::uint32_t;

/// Bytes shared between copies of a value; null means "not kept".
using Blob = std::shared_ptr<const std::vector<std::byte>>;
Blob make_blob(const void* data, std::size_t bytes);

/// What a buffer is to the step. Numbers are those of the trace file.
enum class Role : std::uint8_t {
  kParameter = 1,
  kModuleBuffer,
  kGradient,  ///< `.grad` of a parameter, at entry or at exit
  kOptimizerState,
  kInput,
  kConstant,  ///< made outside the step or by the host, equal bytes in every probe
  kCarried,   ///< tracked or outside tensor whose bytes change between steps
  kTemporary,
  kResult,
};

std::string_view name_of(Role role) noexcept;

/// One storage. Geometry of what lies in it is the tensors' matter.
struct Buffer {
  std::uint64_t bytes = 0;
  Device device;
  std::uint8_t address_mod_64 =
      0;  ///< of the first byte; alignment changes the bits of some kernels
  Role role = Role::kTemporary;
  /// The live object: "model.fc1.weight", "model.fc1.weight.grad", "inputs[0]", "results[0]",
  /// "optimizer.state[model.fc1.weight].momentum_buffer", "outside[0]", "optimizer.<unnamed 1>";
  /// empty for a temporary and for a tensor that the host made inside the step.
  std::string path;
  /// Of all bytes at the moment the recorder first saw them; for buffers made outside the step.
  std::optional<Digest> digest;
  /// The bytes of a constant, or of whatever else the step found, where that was asked for.
  Blob content;
  friend bool operator==(const Buffer& a, const Buffer& b);
};

/// Buffer and geometry. Two tensor objects with equal values are one Tensor.
struct Tensor {
  BufferId buffer = kNone;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  ///< in elements
  std::int64_t offset = 0;            ///< in elements from the start of the buffer
  bool conj = false;
  bool neg = false;
  bool wrapped_number =
      false;  ///< a Python or C++ number that took part in an op; changes type promotion
  friend bool operator==(const Tensor&, const Tensor&) = default;

  std::int64_t numel() const noexcept;
  /// Whether its elements lie in order without gaps.
  bool is_contiguous() const noexcept;
  /// Half-open byte range in the buffer that the tensor's elements span; {0, 0} when it has none.
  /// Throws Error (data_loss) when the range overflows or starts before the buffer.
  std::pair<std::uint64_t, std::uint64_t> byte_range() const;
};

/// An operator as the recording process knew it.
struct Operator {
  std::string name;      ///< "aten::add_"
  std::string overload;  ///< "Tensor", may be empty
  std::string schema;    ///< the whole schema as LibTorch prints it
  friend bool operator==(const Operator&, const Operator&) = default;
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }
};

enum class Phase : std::uint8_t { kForward = 1, kBackward };

/// One dispatcher call below autograd.
struct Op {
  Index op = kNone;            ///< in Recording::operators
  std::vector<Value> inputs;   ///< one for each argument of the schema
  std::vector<Value> outputs;  ///< one for each return of the schema
  /// Inputs whose bytes the op was seen, or is known, to write though its schema does not say so.
  std::vector<TensorId> unannotated_writes;
  Index module =
      kNone;  ///< in Recording::modules: the innermost that issued the op, or its forward op
  std::uint32_t call = 0;  ///< of `module` in this step, from 1; 0 where the module is unknown
  Index scope = kNone;     ///< in Recording::scopes
  Phase phase = Phase::kForward;
  /// Autograd's sequence number, counted from the start of the step: equal for a forward op and the
  /// backward ops that belong to it; -1 where autograd had no part.
  std::int64_t sequence = -1;
  friend bool operator==(const Op&, const Op&) = default;
};

/// The generator was set, not drawn from, before op `before_op` (or before the end of the step).
struct Seek {
  Index before_op = 0;
  std::string generator;
  Digest state;
  /// The state is one that the generator had before in the step: after the draw of op `after_op`,
  /// or when the step began (kNone). It is that one in each step, whatever its bits are.
  bool is_earlier = false;
  Index after_op = kNone;
  friend bool operator==(const Seek&, const Seek&) = default;
};

/// A generator when the step began.
struct GeneratorState {
  std::string path;  ///< "default", or that of a tracked one
  Digest digest;     ///< of its state
  Blob content;      ///< the state; null: not kept
  friend bool operator==(const GeneratorState& a, const GeneratorState& b);
};

/// A tensor that was tracked when the step began.
struct Tracked {
  std::string path;
  Role role = Role::kParameter;
  TensorId tensor = kNoTensor;  ///< at entry; kNoTensor for a gradient that was None
  bool requires_grad = false;
  /// Other paths that lead to the same tensor (tied weights), in the order in which they are met.
  std::vector<std::string> aliases = {};
  /// False of a module's buffer that its state dict leaves out (`persistent=False`).
  bool in_state_dict = true;
  friend bool operator==(const Tracked&, const Tracked&) = default;
};

/// `.grad` of a tracked parameter when the step ended.
/// What stands in a parameter's `.grad` when the step ends; or a tracked tensor which the step gave
/// other memory (`p.data = value`, `set_data`).
struct ExitGradient {
  std::string parameter;        ///< its path
  TensorId tensor = kNoTensor;  ///< kNoTensor: None
  bool is_memory = false;       ///< of the tracked tensor itself
  std::string path() const { return is_memory ? parameter : parameter + ".grad"; }
  friend bool operator==(const ExitGradient&, const ExitGradient&) = default;
};

struct Input {
  std::string path;  ///< "inputs[0]"
  Value value;       ///< a TensorRef, or a fact that must stay as it is
  bool requires_grad = false;
  /// Of integral tensors: smallest and largest element, so that inputs can be made up later.
  std::optional<std::pair<std::int64_t, std::int64_t>> range;
  /// The path of the first input, or of the tracked tensor, that is this very tensor; "" for none.
  std::string same_as = {};
  /// The step leaves it requiring grad where it did not, or the other way round.
  bool changes_requires_grad = false;
  /// When the step ends, though it has none when the step begins.
  bool may_have_grad() const { return requires_grad || changes_requires_grad; }
  friend bool operator==(const Input&, const Input&) = default;
};

struct NamedValue {
  std::string name;
  Value value;
  friend bool operator==(const NamedValue&, const NamedValue&) = default;
};

struct Module {
  std::string path;  ///< "model", "model.fc1"
  std::string type;  ///< "torch::nn::LinearImpl"
  bool training = true;
  std::vector<NamedValue> options = {};  ///< public ones: "in_features" = 784
  /// Other paths that lead to the same module, in the order in which they are met.
  std::vector<std::string> aliases = {};
  friend bool operator==(const Module&, const Module&) = default;
};

/// Call `call` of module `module`, counted from 1, issued its ops from `first_op` on.
struct ModuleAccess {
  Index module = kNone;
  std::uint32_t call = 1;
  Index first_op = 0;
  friend bool operator==(const ModuleAccess&, const ModuleAccess&) = default;
};

/// Something that a step did to the host besides tensors, as a front end saw it.
struct Effect {
  std::string name;   ///< "host.mode", "results"
  std::string value;  ///< in words: what it was set to, how the results stood
  std::string place;  ///< "train.py:41", or empty
  /// The step has read what was there before, which was something else: what it leaves decides
  /// about the next call.
  bool decides = false;
  friend bool operator==(const Effect&, const Effect&) = default;
};

struct ParameterGroup {
  std::vector<NamedValue> hyperparameters;
  std::vector<std::string> parameters;  ///< paths, in the group's order
  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

struct OptimizerStateEntry {
  std::string parameter;  ///< path
  std::string key;        ///< "momentum_buffer", "step"
  Value value;            ///< a TensorRef, or a host number
  friend bool operator==(const OptimizerStateEntry&, const OptimizerStateEntry&) = default;
};

struct OptimizerLayout {
  std::string path;  ///< "optimizer"
  std::string type;  ///< "torch::optim::SGD"
  /// Its hyperparameters enter the step through formulas and predicates alone, so that a plan holds
  /// for any values of them; else a plan holds for the recorded ones.
  bool has_formulas = false;
  std::vector<ParameterGroup> groups;
  std::vector<OptimizerStateEntry> state;
  friend bool operator==(const OptimizerLayout&, const OptimizerLayout&) = default;
};

/// A host number of an op that a replay computes anew: a scalar argument, or an element of a tensor
/// that the host made inside the step.
struct ScalarSite {
  Index op = kNone;        ///< kNone: it is the content of `buffer`
  Index argument = kNone;  ///< of the op
  Index item = kNone;      ///< of that argument or buffer, where it is a list or has several
  BufferId buffer = kNone;
  Index formula = kNone;  ///< in Recording::formulas
  friend bool operator==(const ScalarSite&, const ScalarSite&) = default;
};

/// What an op gives that selects or slices, at a place that numbers say, memory that the step
/// finds. Its buffer stands for those bytes of the one that the op's first argument lies in: no
/// call of the plan makes it, and each run finds it anew (trace/windows.h). Nothing in the
/// recording writes the memory, or nothing but what lies on this buffer is used of it.
struct Window {
  BufferId buffer = kNone;
  Index op = kNone;  ///< the first that gives it
  friend bool operator==(const Window&, const Window&) = default;
};

/// The recording holds while `formula` is not zero, or while it is zero.
struct Predicate {
  Index formula = kNone;  ///< in Recording::formulas
  bool is_nonzero = false;
  friend bool operator==(const Predicate&, const Predicate&) = default;
};

/// At which values of a number that a formula gives ops the plan was compared with the eager step:
/// where an op takes it, and others may use something else that follows from it, such as what
/// backward makes of an exponent. A plan is right at other values of formulas without a proof, too.
struct Proof {
  Index formula = kNone;  ///< in Recording::formulas
  ProvedValues proved;
  bool is_pinned = false;  ///< it is wrong at others
  friend bool operator==(const Proof&, const Proof&) = default;
};

/// The step advances a host number of optimizer state.
struct Advance {
  std::string path;  ///< "optimizer.state[model.fc1.weight].step"
  std::int64_t by = 1;
  friend bool operator==(const Advance&, const Advance&) = default;
};

/// What a replay does with a value that an op gives the host. Numbers are those of the trace file.
enum class ReadUse : std::uint8_t {
  kChecked = 1,  ///< it must be the recorded one: the program may have decided by it
  kFree,         ///< returned, or bound to scalars: any value, finite if the recorded one is
  kLookedAt,     ///< declared to be for looking at: any value
};

std::string_view name_of(ReadUse use) noexcept;

struct HostRead {
  Index op = kNone;
  ReadUse use = ReadUse::kChecked;
  friend bool operator==(const HostRead&, const HostRead&) = default;
};

/// A number that the step returned.
struct Number {
  Value value;
  Index op = kNone;       ///< the host read that gave it
  Index formula = kNone;  ///< what it follows from otherwise
  /// The host value or hyperparameter that it becomes when the step ends: what the next call reads
  /// there; "" for none.
  std::string becomes;
  friend bool operator==(const Number&, const Number&) = default;
};

/// A place of the program's, such as that of a hidden state, in which the step finds tensors, or
/// leaves some.
struct HeldPlace {
  std::string path;  ///< "s.h"
  /// Of what kind what stands there is, None or a tensor or a list of them, as the step finds it
  /// and as it leaves it: the words of a front end, which are equal for what is.
  std::string found, left;
  enum class Rule : std::uint8_t {
    kGiven,    ///< what stands there is the program's to say
    kCarried,  ///< the next call finds there what this one leaves
    kLost,     ///< so it does, and it is more than tensors like those that the step has found
  } rule = Rule::kGiven;
  friend bool operator==(const HeldPlace&, const HeldPlace&) = default;
};

std::string_view name_of(HeldPlace::Rule rule) noexcept;

/// A tensor in such a place, which is an input of the step though no argument.
struct HeldInput {
  std::string path;         ///< "s.h", or "s.h[0]" of a list in it
  Index input = kNone;      ///< what the step finds there; kNone: none
  Index result = kNone;     ///< what it leaves there; kNone: what it has found, or nothing
  bool is_dropped = false;  ///< nothing
  /// The next call finds there what this one leaves; else it is the program's to say.
  bool is_carried = false;
  Index place = kNone;  ///< of Recording::held
  friend bool operator==(const HeldInput&, const HeldInput&) = default;
};

/// A host value that stands in a table of the program's where other numbers lead, as they are when
/// the step begins: arguments and host values.
struct Lookup {
  std::string name;  ///< of the host value: "rates[epoch]"
  std::vector<Leaf> under;
  friend bool operator==(const Lookup&, const Lookup&) = default;
};

/// "threads" = "2", "grad_mode" = "on": something around the step that its ops depend on.
struct Fact {
  std::string name;
  std::string value;
  friend bool operator==(const Fact&, const Fact&) = default;
};

/// How far the recording got in a session. Numbers are those of the trace file.
enum class Status : std::uint8_t {
  kWarmUp = 1,  ///< created state; never planned from
  kProbe,       ///< recorded, not yet agreed with another
  kAgreed,      ///< two consecutive recordings agree: this stands for both
  kTrusted,     ///< its plan gave the eager step's bits in a trial
};

std::string_view name_of(Status status) noexcept;

/// What one step did.
struct Recording {
  Status status = Status::kProbe;
  /// Of which call of the step it is, counted from 1 over the whole run; 0 where nobody counted.
  std::uint64_t call = 0;
  std::vector<Operator> operators;
  std::vector<Buffer> buffers;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  /// What each op left: bits, dtypes and shapes of its results and of the arguments it wrote. One
  /// for each op where they were asked for, else none.
  std::vector<Digest> op_digests;
  /// How long each op took in this call, in nanoseconds; the largest number stands for more. One
  /// for each op where they were asked for, else none.
  std::vector<std::uint32_t> op_ns;
  std::vector<Seek> seeks;
  std::vector<GeneratorState> generators;  ///< where digests were asked for

  std::vector<Input> inputs;
  std::vector<TensorId> results;
  std::vector<Tracked> tracked;
  std::vector<ExitGradient> exit_gradients;

  std::vector<Module> modules;
  std::vector<ModuleAccess> module_access;  ///< one for each call, in order of `first_op`
  std::vector<OptimizerLayout> optimizers;
  /// Where ops come from: user scopes, outermost first, then the program's own line where it is
  /// known, joined by " > ": "Optimizer.step#Adam.step > train.py:41".
  std::vector<std::string> scopes;
  std::vector<Fact> ambient;  ///< switches a program may change from step to step

  std::vector<NamedValue> host_values;  ///< of Session::host, at entry
  std::vector<Lookup> lookups;          ///< of those that are looked up
  std::vector<NamedValue> facts;        ///< of Session::guard, at entry
  std::vector<Leaf> leaves;
  std::vector<Formula> formulas;
  std::vector<ScalarSite> scalars;  ///< host numbers that are not literals
  std::vector<Window> windows;      ///< in order of their ops
  std::vector<Proof> proofs;        ///< in ascending order of formulas
  std::vector<Predicate> predicates;
  std::vector<Advance> advances;
  std::vector<HostRead> reads;  ///< one for each op that gives the host a value, in order
  std::vector<Number> numbers;  ///< that the step returned
  Index observed = 0;           ///< so many of the last results are for Session::observe
  /// Optimizers that are stepped after the step (Session::update), in order; "" for one that
  /// nobody tracked.
  std::vector<std::string> updates;
  /// What the step did to the host besides, as a front end saw it: the same in every probe, and
  /// done again by it after each replay.
  std::vector<Effect> effects;
  std::vector<HeldPlace> held;
  std::vector<HeldInput> places;

  std::vector<Refusal> refusals;  ///< what the recorder saw that no plan may hold

  friend bool operator==(const Recording&, const Recording&) = default;

  const Operator& operator_of(const Op& op) const { return operators[op.op]; }
  /// The tensor that `value` is; null where it is undefined or something else.
  const Tensor* find_tensor(const Value& value) const noexcept {
    const auto* tensor = std::get_if<TensorRef>(&value.data);
    return tensor == nullptr || tensor->id == kNoTensor ? nullptr : &tensors[tensor->id];
  }
  /// Empty for kNone.
  std::string module_path(Index module) const {
    return module == kNone ? std::string() : modules[module].path;
  }
  std::string_view scope_of(const Op& op) const {
    return op.scope == kNone ? std::string_view() : scopes[op.scope];
  }
};

/// A step of a name and its recordings, one a variant, in the order in which they were made.
struct Step {
  std::string name;
  std::string place;  ///< "train.cc:41", the call of wrap
  std::vector<Recording> recordings;
  Account account = {};  ///< of no calls where nobody kept one
  friend bool operator==(const Step&, const Step&) = default;
};

/// The bytes of one persistent buffer or of a generator's state, or a host number, when the trace
/// was saved.
struct Saved {
  std::string path;  ///< Buffer::path, "generator.default", or the path of a leaf
  std::uint8_t address_mod_64 = 0;
  Blob content;
  Value number = {};  ///< of a hyperparameter or step count, which has no content
  friend bool operator==(const Saved& a, const Saved& b);
};

struct Trace {
  std::vector<Fact> producer;     ///< steptape, torch, compiler, ... versions
  std::vector<Fact> run;          ///< host, pid, start, rank, world
  std::vector<Fact> environment;  ///< CPU capability, BLAS, threads: what a replay's bits depend on
  std::vector<Step> steps;
  std::vector<Saved> state;  ///< empty when the trace was saved without state
  friend bool operator==(const Trace&, const Trace&) = default;

  const Step* find_step(std::string_view name) const noexcept;
};
/// Calls `visit(tensor id)` for each tensor that the op is given or returns.
template <typename Visit>
void for_each_tensor_of(const Op& op, Visit&& visit) {
  const auto defined = [&](TensorId id) {
    if (id != kNoTensor) visit(id);
  };
  for_each_tensor(op.inputs, defined);
  for_each_tensor(op.outputs, defined);
}

/// Calls `visit(buffer)` for each tensor among the values.
template <typename Visit>
void for_each_buffer(const Recording& recording, const std::vector<Value>& values, Visit&& visit) {
  for_each_tensor(values, [&](TensorId id) {
    if (id != kNoTensor) visit(recording.tensors[id].buffer);
  });
}

/// Checks everything that a reader of untrusted bytes must: every id exists, every tensor lies
/// within its buffer, sizes do not overflow, contents have their buffers' size. Throws Error
/// (data_loss) with the place of the first thing that is wrong.
void validate(const Recording& recording);
void validate(const Trace& trace);

/// Digests of contents that buffers share, each taken once. The contents must outlive it.
class KnownDigests {
 public:
  const Digest& of(const Blob& content) {
    const auto [known, is_new] = known_.try_emplace(content.get());
    if (is_new) known->second = digest_of(*content);
    return known->second;
  }

 private:
  std::unordered_map<const void*, Digest> known_;
};

}  // namespace steptape::trace
