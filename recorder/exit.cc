#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "live/ambient.h"
#include "live/fields.h"
#include "live/tensors.h"
#include "recorder/byte_ranges.h"
#include "recorder/context/hidden_state.h"
#include "recorder/recording_state.h"
#include "trace/numbers.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::recorder {
namespace {

constexpr std::string_view kGradientSuffix = ".grad";

/// What the step left behind, compared with what it found.
class Exit {
 public:
  Exit(RecordingState& state, const std::vector<Argument>& arguments, Recorded& recorded)
      : state_(state),
        arguments_(arguments),
        recorded_(recorded),
        snapshot_(state.objects.snapshot()) {}

  void write() {
    compare_tracked();
    note_argument_versions();
    write_gradients();
    compare_layouts();
    compare_training();
    compare_ambient();
    compare_arguments();
    write_given_memory();
    refuse_overlapping();
    write_results();
    Attribution attribution(state_.recording, state_.modules, state_.operators,
                            state_.hints.tells_calls());
    attribution.run(state_.accumulations);
    look_at_scratch();
    write_outsiders(attribution);
    refuse_untracked_writes();
    refuse_escaped();
    refuse_written_outside();
    refuse_looked_at();
    note_kept();
    for (trace::Seek& seek : state_.generators.at_end(ops())) refuse_seek(std::move(seek));
    state_.refusals.name_modules();
    // ops of several threads may end in another order than they began
    std::ranges::sort(state_.recording.reads, {}, &trace::HostRead::op);
    state_.recording.status =
        recorded_.is_warm_up() ? trace::Status::kWarmUp : trace::Status::kProbe;
  }

 private:
  void compare_tracked() {
    recorded_.moved_versions.assign(state_.entry.size(), 0);
    std::vector<bool> is_known(snapshot_.tensors.size(), false);
    const auto positions = positions_of_entry();
    for (std::size_t k = 0; k < state_.entry.size(); ++k) {
      const TensorAtEntry& before = state_.entry[k];
      if (positions[k] < 0) {
        if (before.role != trace::Role::kGradient) rebound(before.path, "is gone after the step");
        continue;
      }
      const auto position = static_cast<std::size_t>(positions[k]);
      const at::Tensor& now = snapshot_.tensors[position].tensor;
      is_known[position] = true;
      recorded_.moved_versions[k] = moved(before.tensor, before.version, now);
      const bool required = state_.recording.tracked[k].requires_grad;
      if (before.role != trace::Role::kGradient && now.requires_grad() != required) {
        state_.refusals.add(RefusalCode::kHostEffect, before.path, {},
                            c10::str("`", before.path, ".requires_grad` changed inside the step: ",
                                     required ? "on → off" : "off → on"));
      }
      if (before.role != trace::Role::kGradient &&
          live::gradient_type_of(now) != before.gradient_type) {
        state_.refusals.add(RefusalCode::kHostEffect, before.path, {},
                            c10::str("`", before.path, ".grad_dtype` changed inside the step"));
      }
      const trace::TensorId id = state_.tensor_table.recognise(now);
      const bool is_same = before.object._unsafe_get_target() == now.unsafeGetTensorImpl();
      if (before.role == trace::Role::kGradient) {
        if (!is_same) recorded_.renewed_gradients.insert(before.path);
        if (is_same && now.requires_grad() != required) {
          state_.refusals.add(RefusalCode::kHostEffect, before.path, {},
                              "the step changes whether `" + before.path + "` requires grad");
        }
        continue;
      }
      if (id == before.tensor) continue;
      if (is_made(id) && is_same) {
        given_memory_.push_back({before.path, id, now});
      } else {
        rebound(before.path, "has another storage or shape after the step");
      }
    }
    for (std::size_t i = 0; i < snapshot_.tensors.size(); ++i) {
      const live::TensorAt& at = snapshot_.tensors[i];
      if (at.role != trace::Role::kGradient && !is_known[i]) created(at);
    }
  }

  /// Where each tensor of the entry is in the snapshot, by its path; -1 where it is gone.
  std::vector<std::int64_t> positions_of_entry() const {
    std::vector<std::int64_t> positions(state_.entry.size());
    if (std::ranges::equal(state_.entry, snapshot_.tensors, {}, &TensorAtEntry::path,
                           &live::TensorAt::path)) {
      std::iota(positions.begin(), positions.end(), 0);
      return positions;
    }
    std::unordered_map<std::string_view, std::int64_t> now;
    for (std::size_t i = 0; i < snapshot_.tensors.size(); ++i) {
      now.emplace(snapshot_.tensors[i].path, static_cast<std::int64_t>(i));
    }
    for (std::size_t k = 0; k < positions.size(); ++k) {
      const auto found = now.find(state_.entry[k].path);
      positions[k] = found == now.end() ? -1 : found->second;
    }
    return positions;
  }

  void note_argument_versions() {
    recorded_.moved_inputs.assign(arguments_.size(), 0);
    for (std::size_t k = 0; k < arguments_.size(); ++k) {
      const auto* input = std::get_if<trace::TensorRef>(&state_.recording.inputs[k].value.data);
      if (input == nullptr) continue;
      recorded_.moved_inputs[k] =
          moved(input->id, state_.argument_versions[k], arguments_[k].tensor);
    }
  }

  /// How far its version counter is from where it was.
  static std::uint32_t moved(trace::TensorId id, std::optional<std::uint32_t> before,
                             const at::Tensor& now) {
    const std::optional<std::uint32_t> version = version_of(now);
    if (id == trace::kNoTensor || version == before) return 0;
    return version && before ? *version - *before : 1;
  }

  void note_created(const std::string& path) {
    if (!recorded_.is_warm_up()) recorded_.created_state = path;
  }

  void created(const live::TensorAt& at) {
    note_created(at.path);
    const trace::TensorId id = state_.tensor_table.see(at.tensor, Origin::kForeign, {});
    if (id != trace::kNoTensor) give_role(state_.tensor_table.buffer_of(id), at.role, at.path);
  }

  void write_gradients() {
    for (const live::TensorAt& at : snapshot_.tensors) {
      if (at.role != trace::Role::kGradient) continue;
      write_gradient(at.path.substr(0, at.path.size() - kGradientSuffix.size()), at.tensor);
    }
  }

  void write_gradient(const std::string& of, const at::Tensor& gradient) {
    const std::string path = of + std::string(kGradientSuffix);
    const trace::TensorId id = state_.tensor_table.see(gradient, Origin::kForeign, {});
    state_.recording.exit_gradients.push_back({of, id});
    if (id != trace::kNoTensor) {
      const auto [first, is_new] =
          gradient_positions_.try_emplace(gradient.unsafeGetTensorImpl(), gradients_.size());
      if (!is_new) recorded_.same_gradients.emplace(gradients_.size(), first->second);
    }
    gradients_.push_back(gradient);
    if (id == trace::kNoTensor) return;
    if (gradient.requires_grad()) {
      const auto& node = gradient.grad_fn();
      recorded_.gradient_nodes[path] = node == nullptr ? "" : node->name();
      if (state_.graphs.is_unconsumed(gradient)) {
        state_.refusals.add(RefusalCode::kUnconsumedGraph, {},
                            "`" + path + "` carries a graph that no backward consumed");
      }
    }
    const trace::BufferId buffer = state_.tensor_table.buffer_of(id);
    if (state_.tensor_table.buffers.live(buffer).origin == Origin::kForeign) {
      rebound(path, "is a tensor that no recorded op made");
    }
    give_role(buffer, trace::Role::kGradient, path);
    refuse_unwritten(id, path);
  }

  bool is_made(trace::TensorId id) const {
    if (id == trace::kNoTensor) return false;
    const trace::BufferId buffer = state_.tensor_table.buffer_of(id);
    return state_.tensor_table.buffers.live(buffer).origin == Origin::kMade;
  }

  /// Tensors that the step gave memory of its own making (`set_data`): replays do so, too.
  void write_given_memory() {
    for (const auto& [path, id, tensor] : given_memory_) {
      state_.recording.exit_gradients.push_back({path, id, true});
      give_role(state_.tensor_table.buffer_of(id), trace::Role::kResult, path);
      refuse_unwritten(id, path);
    }
  }

  /// A result over memory that a tensor is given counts its writes by itself in a replay.
  void refuse_shared_counters(trace::TensorId id) {
    for (const auto& [path, memory, tensor] : given_memory_) {
      const bool is_alias =
          state_.tensor_table.buffer_of(memory) == state_.tensor_table.buffer_of(id);
      if (!is_alias || tensor.unsafeGetTensorImpl()->unique_version()) continue;
      rebound(path, "has other memory after the step, and a result is a view of it");
    }
  }

  /// A replay finds such a result in the memory that the tensor has then.
  void refuse_over_old_memory(trace::TensorId result) {
    const trace::BufferId buffer = state_.tensor_table.buffer_of(result);
    for (const auto& [path, memory, tensor] : given_memory_) {
      const auto had = std::ranges::find(state_.entry, path, &TensorAtEntry::path);
      if (had == state_.entry.end() || state_.tensor_table.buffer_of(had->tensor) != buffer)
        continue;
      rebound(path, "has other memory after the step, and a result lies over what it had before");
    }
  }

  /// What leaves the step and was written by no recorded op: a kernel that is called by pointer did
  /// it.
  void refuse_unwritten(trace::TensorId id, const std::string& path) {
    const trace::Tensor& tensor = state_.recording.tensors[id];
    const LiveBuffer& live = state_.tensor_table.buffers.live(tensor.buffer);
    if (!live.written || covers(*live.written, tensor)) return;
    const trace::Op& maker = state_.recording.ops[live.made_by];
    state_.refusals.add(RefusalCode::kUnwrittenRead, path,
                        {&state_.recording.operator_of(maker).name, live.made_by, maker.scope},
                        c10::str("`", path, "` holds bytes that no recorded op wrote"));
  }

  void compare_arguments() {
    for (std::size_t k = 0; k < arguments_.size(); ++k) {
      const at::Tensor& tensor = arguments_[k].tensor;
      trace::Input& input = state_.recording.inputs[k];
      const auto* before = std::get_if<trace::TensorRef>(&input.value.data);
      if (before == nullptr || !tensor.defined()) continue;
      input.changes_requires_grad = tensor.requires_grad() != input.requires_grad;
      if (live::gradient_type_of(tensor) != -1) {
        state_.refusals.add(RefusalCode::kHostEffect, input.path, {},
                            "`" + input.path + "` is an argument with a grad_dtype of its own");
      }
      if (input.changes_requires_grad && !tensor.is_leaf()) {
        state_.refusals.add(RefusalCode::kHostEffect, input.path, {},
                            "the step changes whether `" + input.path + "` requires grad");
      }
      if (state_.tensor_table.recognise(tensor) != before->id) {
        rebound(input.path, "has another storage or shape after the step");
      } else if (input.may_have_grad() && state_.arguments_with_gradients[k]) {
        rebound(input.path + ".grad",
                "is there when the step begins: an argument's gradient is not tracked");
      } else if (has_gradient(tensor) && snapshot_.path_of(tensor).empty()) {
        write_gradient_of(input, tensor);
      }
    }
  }

  void write_gradient_of(const trace::Input& input, const at::Tensor& tensor) {
    if (input.may_have_grad()) return write_gradient(input.path, tensor.grad());
    const auto made = state_.tensor_table.recognise(tensor.grad());
    if (is_made(made))
      rebound(input.path + ".grad",
              "is made by the step, and the argument requires no gradient after it");
  }

  using Identities = std::unordered_map<const c10::TensorImpl*, Identity>;

  /// The tensors that the caller has already; of several places where one stands, the first.
  Identities known_identities() {
    Identities known;
    const auto add = [&](const at::Tensor& tensor, Identity::Of of, std::size_t position) {
      if (!tensor.defined()) return;
      known.try_emplace(tensor.unsafeGetTensorImpl(), Identity{of, position});
      const auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
      if (meta == nullptr || !meta->has_bw_view() || of == Identity::Of::kGradient) return;
      const at::Tensor& base = meta->get_backward_view().base_;
      views_of_.try_emplace(base.unsafeGetTensorImpl(), Identity{of, position});
    };
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      add(arguments_[i].tensor, Identity::Of::kArgument, i);
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      add(gradients_[i], Identity::Of::kGradient, i);
    }
    for (std::size_t i = 0; i < state_.entry.size(); ++i) {
      const TensorAtEntry& before = state_.entry[i];
      if (before.role != trace::Role::kGradient || before.object.use_count() == 0) continue;
      known.try_emplace(before.object._unsafe_get_target(),
                        Identity{Identity::Of::kEntryGradient, i});
    }
    std::unordered_map<std::string_view, const at::Tensor*> by_path;
    for (const live::TensorAt& now : snapshot_.tensors) by_path.try_emplace(now.path, &now.tensor);
    for (std::size_t i = 0; i < state_.recording.tracked.size(); ++i) {
      const trace::Tracked& tracked = state_.recording.tracked[i];
      if (tracked.role == trace::Role::kGradient) continue;
      const auto now = by_path.find(tracked.path);
      if (now != by_path.end()) add(*now->second, Identity::Of::kTracked, i);
    }
    return known;
  }

  /// That of result `k`; those after it may be the same tensor.
  Identity identity_of(std::size_t k, Identities& known) const {
    const at::Tensor& result = recorded_.results[k];
    if (!result.defined()) return {};
    Identity& entry = known[result.unsafeGetTensorImpl()];
    const Identity identity = entry;
    if (identity.of != Identity::Of::kResult) entry = {Identity::Of::kResult, k};
    return identity;
  }

  /// What result `k` is a view of, for autograd. Nothing for a view of what is neither known to
  /// the caller nor made by the step.
  std::optional<Identity::View> view_of(std::size_t k, const Identities& known) {
    const at::Tensor& result = recorded_.results[k];
    const auto* meta = torch::autograd::impl::get_view_autograd_meta(result);
    if (meta == nullptr || !meta->has_bw_view() || result.requires_grad()) return std::nullopt;
    const at::Tensor& base = meta->get_backward_view().base_;
    Identity::View view{.base = state_.tensor_table.recognise(base),
                        .creation = meta->get_creation_meta()};
    for (const Identities* each : {&known, &std::as_const(views_of_)}) {
      const auto found = each->find(base.unsafeGetTensorImpl());
      if (found == each->end()) continue;
      view.of = found->second.of;
      view.position = found->second.position;
      const bool can_be_had = view.of == Identity::Of::kArgument ||
                              view.of == Identity::Of::kTracked || view.of == Identity::Of::kResult;
      return can_be_had ? std::optional(view) : std::nullopt;
    }
    const auto is_base = [&base](const at::Tensor& other) { return other.is_same(base); };
    const auto later = std::ranges::find_if(recorded_.results, is_base);
    if (later != recorded_.results.end()) {
      view.of = Identity::Of::kResult;
      view.position = static_cast<std::size_t>(later - recorded_.results.begin());
      return view;
    }
    if (!is_made(view.base)) return std::nullopt;
    const auto made = std::ranges::find_if(bases_, is_base);
    view.position = static_cast<std::size_t>(made - bases_.begin());
    if (made == bases_.end()) bases_.push_back(base);
    return view;
  }

  void write_results() {
    bool is_unconsumed = false;
    Identities known = known_identities();
    for (std::size_t k = 0; k < recorded_.results.size(); ++k) {
      const at::Tensor& result = recorded_.results[k];
      if (result.defined() && state_.hints.is_state(result)) {
        state_.refusals.add(
            RefusalCode::kHostTensorVaries, {},
            state_.hints.name_of_result(k) +
                " is the state of a random generator, which is another in each call");
      }
      const trace::TensorId id = state_.tensor_table.see(result, Origin::kForeign, {});
      state_.recording.results.push_back(id);
      recorded_.identities.push_back(identity_of(k, known));
      if (id == trace::kNoTensor) continue;
      if (recorded_.identities.back().of == Identity::Of::kNothing && result.requires_grad() &&
          result.is_leaf()) {
        state_.refusals.add(
            RefusalCode::kUnconsumedGraph, {},
            state_.hints.name_of_result(k) + " is a new leaf that requires a gradient");
      }
      give_role(state_.tensor_table.buffer_of(id), trace::Role::kResult,
                c10::str("results[", k, "]"));
      refuse_unwritten(id, c10::str("results[", k, "]"));
      refuse_over_old_memory(id);
      if (recorded_.identities.back().of == Identity::Of::kNothing) {
        if (has_gradient(result)) {
          rebound(state_.hints.name_of_result(k) + ".grad",
                  "is made by the step, as is the tensor");
        }
        refuse_shared_counters(id);
        recorded_.identities.back().version = version_of(result).value_or(0);
        recorded_.identities.back().view = view_of(k, known);
      }
      if (result.grad_fn() != nullptr) recorded_.identities.back().node = result.grad_fn()->name();
      if (!state_.graphs.is_unconsumed(result)) continue;
      is_unconsumed = true;
      state_.refusals.add(
          RefusalCode::kUnconsumedGraph, {},
          state_.hints.name_of_result(k) + " carries a graph that no backward consumed");
    }
    has_open_graph_ = is_unconsumed;
  }

  /// What is written and nobody announced may be as it was. It belongs to who exchanges tensors, or
  /// else, for all that is known, to the program, which may put another tensor in its place.
  void look_at_scratch() {
    auto& buffers = state_.tensor_table.buffers;
    bool exchanges = false;
    for (trace::BufferId id = 0; id < buffers.size(); ++id) {
      exchanges = exchanges || buffers.live(id).is_exchanged;
    }
    if (!exchanges) return;
    for (trace::BufferId id = 0; id < buffers.size(); ++id) {
      LiveBuffer& live = buffers.live(id);
      const std::optional<trace::Digest>& found = buffers.description(id).digest;
      live.is_left_as_found = live.may_be_scratch && live.is_alive() && found &&
                              live::full_digest(*live.storage) == *found;
    }
  }

  /// Buffers that ops met and nobody announced: host-made and dead by now, or the user's own.
  void write_outsiders(const Attribution& attribution) {
    auto& buffers = state_.tensor_table.buffers;
    std::vector<trace::BufferId> alive;
    std::set<trace::BufferId> numbers;
    for (const trace::Tensor& tensor : state_.recording.tensors) {
      if (tensor.wrapped_number) numbers.insert(tensor.buffer);
    }
    for (trace::BufferId id = 0; id < buffers.size(); ++id) {
      const LiveBuffer& live = buffers.live(id);
      trace::Buffer& description = buffers.description(id);
      if (live.origin != Origin::kForeign || description.role != trace::Role::kTemporary) continue;
      description.role = trace::Role::kConstant;
      if (live.is_scratch()) {
        description.digest.reset();
        description.content.reset();
      } else if (!description.digest) {
        state_.refusals.add(RefusalCode::kUnwrittenRead, c10::str("buffer ", id), {},
                            c10::str("buffer ", id, " was made by no recorded op"));
      }
      // a graph that a result carries may still hold a number that an op was given
      if (live.is_alive() && !is_returned(live) && !numbers.contains(id)) alive.push_back(id);
    }
    if (alive.empty()) return;
    HiddenState hidden(state_.recording, attribution);
    const auto held = held_by_buffer();
    std::size_t others = 0;
    for (const trace::BufferId id : alive) {
      std::string& path = buffers.description(id).path;
      path = hidden.path_of(id);
      if (path.empty()) path = trace::outside_path(others++);
      const auto over_it = held.find(id);
      recorded_.outside.push_back(
          {path, buffers.live(id).weak,
           over_it == held.end() ? std::vector<Outside::Tensor>() : over_it->second});
    }
  }

  void refuse_untracked_writes() {
    for (const auto& [id, write] : state_.untracked_writes) {
      if (state_.tensor_table.buffers.live(id).is_scratch()) continue;
      state_.refusals.add(RefusalCode::kUntrackedWrite, c10::str("buffer ", id), write.site,
                          write.text);
    }
  }

  /// By buffer, the tensors over it that are not the step's own, which are gone by now or given
  /// back.
  std::unordered_map<trace::BufferId, std::vector<Outside::Tensor>> held_by_buffer() const {
    std::unordered_map<trace::BufferId, std::vector<Outside::Tensor>> held;
    for (const auto& [object, tensor] : state_.foreign) {
      const auto is_it = [object = object](const at::Tensor& result) {
        return result.unsafeGetTensorImpl() == object;
      };
      if (tensor.object.use_count() == 0 || std::ranges::any_of(recorded_.results, is_it)) continue;
      held[state_.tensor_table.buffer_of(tensor.id)].push_back(tensor);
    }
    return held;
  }

  /// Whether the host has made it in the step, which gives it back as one tensor: a replay gives
  /// back another of the same bytes.
  bool is_returned(const LiveBuffer& live) const {
    if (!state_.hints.has_made(live.storage)) return false;
    std::set<const c10::TensorImpl*> on_it;
    for (const at::Tensor& result : recorded_.results) {
      if (!result.defined() || live::unplannable_kind(result)) continue;
      if (result.storage().unsafeGetStorageImpl() == live.storage)
        on_it.insert(result.unsafeGetTensorImpl());
    }
    return on_it.size() == 1;
  }

  void refuse_escaped() {
    // What an open graph saved is alive because of the graph, which is refused for itself.
    if (has_open_graph_) return;
    const char* holder = "";
    for (const at::Tensor& result : recorded_.results) {
      note_graph(result);
      if (result.defined() && result.grad_fn()) holder = ", perhaps in the graph of a result";
    }
    auto& buffers = state_.tensor_table.buffers;
    bool was_collected = false;
    for (trace::BufferId id = 0; id < buffers.size(); ++id) {
      if (!has_escaped(id)) continue;
      // what only garbage holds has not escaped
      if (!std::exchange(was_collected, true)) FrontendHints::collect_garbage();
      if (!has_escaped(id)) continue;
      const LiveBuffer& live = buffers.live(id);
      const trace::Buffer& description = buffers.description(id);
      const trace::Op& maker = state_.recording.ops[live.made_by];
      const std::string& name = state_.recording.operator_of(maker).name;
      state_.refusals.add(RefusalCode::kEscapedBuffer, {&name, live.made_by, maker.scope},
                          c10::str(description.bytes, " bytes made by `", name, "` op ",
                                   live.made_by, " stay alive after the step", holder));
    }
  }

  /// The nodes of a graph that backward has consumed still hold its leaves and their gradients; a
  /// result of a replay has no graph.
  void note_graph(const at::Tensor& result) {
    if (!result.defined() || result.grad_fn() == nullptr) return;
    std::vector<const torch::autograd::Node*> pending{result.grad_fn().get()};
    std::unordered_set<const torch::autograd::Node*> seen(pending.begin(), pending.end());
    while (!pending.empty()) {
      const torch::autograd::Node* node = pending.back();
      pending.pop_back();
      if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
        note_held(leaf->variable);
        note_held(leaf->variable.grad());
      }
      for (const torch::autograd::Edge& edge : node->next_edges()) {
        if (edge.function && seen.insert(edge.function.get()).second) {
          pending.push_back(edge.function.get());
        }
      }
    }
  }

  void note_held(const at::Tensor& tensor) {
    if (!tensor.defined() || live::unplannable_kind(tensor)) return;
    held_by_graphs_.insert(tensor.storage().unsafeGetStorageImpl());
  }

  bool has_escaped(trace::BufferId id) const {
    const LiveBuffer& live = state_.tensor_table.buffers.live(id);
    const trace::Buffer& description = state_.tensor_table.buffers.description(id);
    const bool holds_nothing = live.written && live.written->is_empty();  // as that of a barrier
    return live.origin == Origin::kMade && description.role == trace::Role::kTemporary &&
           description.bytes != 0 && !holds_nothing && live.is_alive() &&
           !held_by_graphs_.contains(live.storage);
  }

  void note_kept() {
    const auto& buffers = state_.tensor_table.buffers;
    for (trace::BufferId id = 0; id < buffers.size(); ++id) {
      if (state_.hints.keeps_views(buffers.live(id).storage)) recorded_.kept_buffers.insert(id);
    }
  }

  /// A write to one of the buffers over the same bytes would change the others, and no record of
  /// ops could tell.
  void refuse_overlapping() {
    const auto& buffers = state_.tensor_table.buffers;
    std::vector<bool> is_written(buffers.size());
    for (trace::BufferId id = 0; id < buffers.size(); ++id) {
      is_written[id] = buffers.live(id).first_write != trace::kNone;
    }
    for (bool found_more = true; found_more;) {
      found_more = false;
      for (const auto& [id, other] : buffers.overlapping()) {
        if (is_written[id] == is_written[other]) continue;
        is_written[id] = is_written[other] = found_more = true;
      }
    }
    for (const auto& [id, other] : buffers.overlapping()) {
      if (!is_written[id]) continue;
      state_.refusals.add(
          RefusalCode::kOverlappingMemory, {},
          c10::str("`", state_.recording.buffers[id].path, "`, which lies over the same bytes as `",
                   state_.recording.buffers[other].path, "`: one is written"));
    }
  }

  /// What changed after the last op that used it: no later op was there to notice.
  void refuse_written_outside() {
    auto& buffers = state_.tensor_table.buffers;
    for (trace::BufferId id = 0; id < buffers.size(); ++id) {
      const auto& content = buffers.live(id).content;
      if (!content || buffers.description(id).role == trace::Role::kTemporary) continue;
      const auto now = buffers.digest_of(id);
      if (!now || *now == *content) continue;
      const std::string& path = buffers.description(id).path;
      state_.refusals.add(RefusalCode::kWrittenOutside, path, {},
                          "the bytes of `" + path + "` changed after the last op that used it");
    }
  }

  /// What the host looks at through an array of its own is held to what it was when the step began.
  void refuse_looked_at() {
    for (const auto& [range, seen] : state_.hints.looked_at()) {
      for (trace::BufferId id = 0; id < state_.tensor_table.buffers.size(); ++id) {
        const LiveBuffer& live = state_.tensor_table.buffers.live(id);
        if (live.origin == Origin::kMade || live.first_write >= seen.ops || !live.is_alive())
          continue;
        const auto first = reinterpret_cast<std::uintptr_t>(live.storage->data());
        if (range.first >= first + live.storage->nbytes() || first >= range.second) continue;
        const trace::Op& writer = state_.recording.ops[live.first_write];
        state_.refusals.add(
            RefusalCode::kHostRead, seen.name,
            {&state_.recording.operator_of(writer).name, live.first_write, writer.scope},
            c10::str("the step looks at `", seen.name, "` (", seen.place,
                     "), which lies over a tensor that it has written"));
        break;
      }
    }
  }

  void compare_layouts() {
    const auto& before = state_.recording.optimizers;
    for (std::size_t k = 0; k < before.size() && k < snapshot_.optimizers.size(); ++k) {
      compare_groups(before[k], snapshot_.optimizers[k]);
    }
  }

  void compare_groups(const trace::OptimizerLayout& before, const trace::OptimizerLayout& now) {
    if (now.state.size() > before.state.size()) note_created(before.path + ".state");
    if (before.groups.size() != now.groups.size()) {
      changed(before.path + ".param_groups", std::to_string(before.groups.size()) + " groups",
              std::to_string(now.groups.size()));
      return;
    }
    for (std::size_t g = 0; g < now.groups.size(); ++g) {
      const std::string path = trace::group_path(before.path, g);
      if (before.groups[g].parameters != now.groups[g].parameters) {
        changed(path + ".params", "the parameters at entry", "others");
      }
      compare_hyperparameters(path, before.groups[g].hyperparameters,
                              now.groups[g].hyperparameters);
    }
  }

  void compare_hyperparameters(const std::string& group,
                               const std::vector<trace::NamedValue>& before,
                               const std::vector<trace::NamedValue>& now) {
    for (const trace::NamedValue& was : before) {
      const auto is = std::ranges::find(now, was.name, &trace::NamedValue::name);
      if (is != now.end() && is->value == was.value) continue;
      const auto& advances = state_.hints.said.advances;
      if (std::ranges::find(advances, group + "." + was.name, &trace::Advance::path) !=
          advances.end()) {
        continue;  // a counter that replays count on
      }
      if (is != now.end() && state_.hints.is_assigned(group + "." + was.name)) continue;
      changed(group + "." + was.name, trace::print_value(was.value),
              is == now.end() ? "none" : trace::print_value(is->value));
    }
    for (const trace::NamedValue& is : now) {
      if (std::ranges::find(before, is.name, &trace::NamedValue::name) != before.end()) continue;
      changed(group + "." + is.name, "none", trace::print_value(is.value));
    }
  }

  void compare_training() {
    // a front end that sees attributes sets this one again
    if (state_.hints.said.follows_numbers) return;
    for (const live::ModuleAt& now : snapshot_.modules) {
      const auto before =
          std::ranges::find(state_.recording.modules, now.path, &trace::Module::path);
      if (before == state_.recording.modules.end()) continue;
      const bool training = now.training;
      if (before->training == training) continue;
      changed(now.path + ".training", training ? "off" : "on", training ? "on" : "off");
    }
  }

  /// A replay leaves the switches of torch as they are.
  void compare_ambient() {
    const std::vector<trace::Fact> now = live::Ambient::current().facts();
    for (const trace::Fact& was : state_.recording.ambient) {
      const auto is = std::ranges::find(now, was.name, &trace::Fact::name);
      if (is == now.end() || is->value == was.value) continue;
      state_.refusals.add(RefusalCode::kHostEffect, was.name, {},
                          "the step leaves torch's switch `" + was.name +
                              "` other than it was: " + was.value + " → " + is->value);
    }
  }

  void rebound(const std::string& path, const char* what) {
    state_.refusals.add(RefusalCode::kReboundTensor, path, {}, "`" + path + "` " + what);
  }

  void changed(const std::string& path, const std::string& before, const std::string& now) {
    state_.refusals.add(RefusalCode::kHyperparameterChanged, path, {},
                        "`" + path + "` changed inside the step: " + before + " → " + now);
  }

  void refuse_seek(trace::Seek seek) {
    if (!seek.is_earlier) {
      state_.refusals.add(RefusalCode::kGeneratorSeek, {},
                          "generator `" + seek.generator +
                              "` was set, or drawn from in another thread, "
                              "after its last draw");
    }
    state_.recording.seeks.push_back(std::move(seek));
  }

  void give_role(trace::BufferId id, trace::Role role, const std::string& path) {
    trace::Buffer& description = state_.tensor_table.buffers.description(id);
    if (description.role != trace::Role::kTemporary) return;
    if (state_.tensor_table.buffers.live(id).origin != Origin::kMade) return;
    description.role = role;
    description.path = path;
  }

  trace::Index ops() const { return static_cast<trace::Index>(state_.recording.ops.size()); }

  RecordingState& state_;
  const std::vector<Argument>& arguments_;
  Recorded& recorded_;
  live::Snapshot snapshot_;
  bool has_open_graph_ = false;
  std::unordered_set<const c10::StorageImpl*> held_by_graphs_;
  struct GivenMemory {
    std::string path;
    trace::TensorId id;
    at::Tensor tensor;
  };
  std::vector<GivenMemory> given_memory_;
  std::vector<at::Tensor> bases_;  ///< that the step made, of results that are views
  Identities views_of_;  ///< by what they are views of, which the caller may not hold: arguments
                         ///< and tracked tensors
  std::vector<at::Tensor> gradients_;  ///< by position in Recording::exit_gradients
  std::unordered_map<const c10::TensorImpl*, std::size_t> gradient_positions_;  ///< the first there
};

}  // namespace

void write_exit(RecordingState& state, const std::vector<Argument>& arguments, Recorded& recorded) {
  Exit(state, arguments, recorded).write();
}

}  // namespace steptape::recorder
