#include "replayer/player/weights.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <unordered_set>

#include "live/tensors.h"
#include "replayer/player/spec_words.h"
#include "replayer/player/weights/weights_file.h"
#include "replayer/runtime/tensor_on.h"
#include "steptape/error.h"
#include "trace/numbers.h"

namespace steptape::replayer {
namespace {

constexpr std::string_view kGeneratorPrefix = "generator.";

bool is_weight(const TrackedTensor& tracked) {
  return tracked.role == trace::Role::kParameter ||
         (tracked.role == trace::Role::kModuleBuffer && tracked.in_state_dict);
}

/// Between paths of a trace and names in a file.
class Names {
 public:
  explicit Names(const std::string& of) : prefix_(of.empty() ? "" : of + ".") {}

  bool covers(const std::string& path) const { return path.starts_with(prefix_); }
  std::string in_file(const std::string& path) const { return path.substr(prefix_.size()); }
  std::string in_trace(const std::string& name) const { return prefix_ + name; }

 private:
  std::string prefix_;
};

/// A tensor without dimensions.
at::Tensor number_tensor(const trace::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data))
    return tensor_of_number(*flag, trace::DType::kBool);
  if (const auto* integer = std::get_if<std::int64_t>(&value.data))
    return tensor_of_number(*integer, trace::DType::kInt64);
  return tensor_of_number(trace::number_of(value), trace::DType::kFloat64);
}

/// The number in a tensor of one element; none where it is of another dtype than numbers have.
std::optional<trace::Value> number_in(const at::Tensor& tensor) {
  if (tensor.numel() != 1) return std::nullopt;
  switch (tensor.scalar_type()) {
    case at::kBool:
      return trace::Value{*tensor.const_data_ptr<bool>()};
    case at::kLong:
      return trace::Value{*tensor.const_data_ptr<std::int64_t>()};
    case at::kInt:
      return trace::Value{std::int64_t{*tensor.const_data_ptr<std::int32_t>()}};
    case at::kDouble:
      return trace::Value{trace::Real{*tensor.const_data_ptr<double>()}};
    case at::kFloat:
      return trace::Value{trace::Real{*tensor.const_data_ptr<float>()}};
    default:
      return std::nullopt;
  }
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.resolve_conj().resolve_neg().contiguous();
  const at::Tensor y = b.resolve_conj().resolve_neg().contiguous();
  return x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

/// `tensor`, of these sizes, without what `geometry` repeats: dimensions of stride 0.
at::Tensor once(at::Tensor tensor, const trace::Tensor& geometry) {
  for (std::size_t d = 0; d < geometry.sizes.size(); ++d) {
    if (geometry.strides[d] == 0 && geometry.sizes[d] > 1)
      tensor = tensor.narrow(static_cast<std::int64_t>(d), 0, 1);
  }
  return tensor;
}

/// Finds a place for each entry of a file, or says why there is none; then fills all of them.
class Loading {
 public:
  Loading(PlayerState& state, const std::vector<TrackedTensor>& tracked,
          const WeightsOptions& options)
      : state_(state), names_(options.of), options_(options) {
    for (const TrackedTensor& each : tracked) {
      targets_.emplace(each.path, &each);
      for (const std::string& alias : each.aliases) targets_.emplace(alias, &each);
    }
  }

  void take(const NamedTensor& entry) {
    const std::string path = names_.in_trace(entry.name);
    if (const auto target = targets_.find(path); target != targets_.end()) {
      take_tensor(entry, *target->second);
    } else if (const std::string place = trace::place_of_kind(path); !place.empty()) {
      take_kind(entry, place);
    } else if (path.starts_with(kGeneratorPrefix)) {
      take_generator(entry, path.substr(kGeneratorPrefix.size()));
    } else if (state_.number(path) != nullptr) {
      take_number(entry, path);
    } else if (options_.strict) {
      problems_.push_back(fmt::format("{}: no state has this name", entry.name));
    }
  }

  void require_all(const std::vector<TrackedTensor>& tracked) {
    if (!options_.strict) {
      if (changes_.empty() && problems_.empty())
        problems_.push_back("no state has a name that is in the file");
      return;
    }
    for (const TrackedTensor& each : tracked) {
      if (is_weight(each) && names_.covers(each.path) && !named_.contains(&each))
        problems_.push_back(names_.in_file(each.path) + ": not in the file");
    }
  }

  const std::vector<std::string>& problems() const { return problems_; }
  void fill() {
    for (const auto& change : changes_) change();
    // what stood in places when it was saved is all in a file that says of what kind that was
    for (const auto& [path, target] : targets_) {
      const bool is_gone = has_kinds_ && target->role == trace::Role::kInput;
      if (is_gone && !named_.contains(target)) state_.erase(target->buffer);
    }
  }

 private:
  void take_tensor(const NamedTensor& entry, const TrackedTensor& target) {
    const std::string here = words_of(target.geometry);
    named_.insert(&target);
    if (words_of(entry.tensor) != here) {
      problems_.push_back(
          fmt::format("{}: {} in the file, {} here", entry.name, words_of(entry.tensor), here));
      return;
    }
    const auto [other, is_first] = found_.emplace(&target, &entry);
    if (!is_first) {
      if (!same_bytes(other->second->tensor, entry.tensor)) {
        problems_.push_back(fmt::format("{}: differs from {}, which is the same tensor here",
                                        entry.name, other->second->name));
      }
      return;
    }
    const at::Tensor to = once(tensor_in(target), target.geometry);
    const at::Tensor from = once(entry.tensor, target.geometry);
    if (at::has_internal_overlap(to) != at::MemOverlap::No ||
        !same_bytes(from.expand(target.geometry.sizes), entry.tensor)) {
      problems_.push_back(
          fmt::format("{}: elements that share memory here differ in the file", entry.name));
      return;
    }
    changes_.push_back([from, to] { to.copy_(from); });
  }

  /// Of one in a place where none stands now: a new one, which comes there.
  at::Tensor tensor_in(const TrackedTensor& target) {
    if (state_.holds(target.buffer)) return tensor_of(state_, target);
    const auto [made, is_new] = made_.try_emplace(target.buffer);
    if (is_new) {
      const PlayerState::Carried& found = *state_.carried(target.path);
      made->second = allocate(found.bytes, 0, found.device);
      changes_.push_back(
          [this, path = target.buffer, storage = made->second] { state_.put(path, storage); });
    }
    return tensor_on(made->second, target.geometry);
  }

  void take_kind(const NamedTensor& entry, const std::string& place) {
    const at::Tensor bytes = entry.tensor.contiguous();
    const std::string kind(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
    has_kinds_ = true;
    if (!state_.knows_kind(place, kind)) {
      if (options_.strict)
        problems_.push_back(place +
                            ": holds something of a kind that no step here finds or leaves there");
      return;
    }
    changes_.push_back([this, place, kind] { state_.set_kind(place, kind); });
  }

  void take_generator(const NamedTensor& entry, const std::string& path) {
    const std::vector<std::string> known = state_.generators();
    if (std::ranges::find(known, path) == known.end()) {
      if (options_.strict)
        problems_.push_back(fmt::format("{}: no generator has this name", entry.name));
      return;
    }
    const at::Tensor here = state_.generator_state(path);
    if (words_of(entry.tensor) != words_of(here)) {
      problems_.push_back(fmt::format("{}: {} in the file, {} here", entry.name,
                                      words_of(entry.tensor), words_of(here)));
      return;
    }
    const at::Tensor from = entry.tensor.contiguous();
    if (!state_.takes_generator_state(path, from)) {
      problems_.push_back(fmt::format("{}: no state of a generator", entry.name));
      return;
    }
    changes_.push_back([this, from, path] { state_.set_generator_state(path, from); });
  }

  void take_number(const NamedTensor& entry, const std::string& path) {
    const std::optional<trace::Value> number = number_in(entry.tensor);
    if (!number) {
      problems_.push_back(
          fmt::format("{}: {} in the file, a number here", entry.name, words_of(entry.tensor)));
      return;
    }
    if (const std::string mismatch = state_.mismatch(path, *number); !mismatch.empty()) {
      problems_.push_back(fmt::format("{}: {}", entry.name, mismatch));
      return;
    }
    changes_.push_back([this, path, value = *number] { state_.set_number(path, value); });
  }

  PlayerState& state_;
  Names names_;
  const WeightsOptions& options_;
  std::map<std::string, const TrackedTensor*> targets_;
  std::set<const TrackedTensor*> named_;  ///< in the file, whether they fit or not
  std::map<const TrackedTensor*, const NamedTensor*> found_;
  std::map<std::string, c10::Storage> made_;  ///< by buffer
  bool has_kinds_ = false;
  std::vector<std::function<void()>> changes_;
  std::vector<std::string> problems_;
};

}  // namespace

void add_tracked(const trace::Recording& recording, std::vector<TrackedTensor>& to) {
  std::unordered_set<std::string> known;
  for (const TrackedTensor& tracked : to) known.insert(tracked.path);
  for (const trace::Tracked& tracked : recording.tracked) {
    if (tracked.role == trace::Role::kGradient || tracked.tensor == trace::kNoTensor) continue;
    if (!known.insert(tracked.path).second) continue;
    const trace::Tensor& geometry = recording.tensors[tracked.tensor];
    to.push_back({tracked.path, tracked.aliases, tracked.role, tracked.in_state_dict, geometry,
                  recording.buffers[geometry.buffer].path});
  }
  for (const trace::HeldInput& place : recording.places) {
    const bool is_found = place.is_carried && place.input != trace::kNone;
    if (!is_found || !known.insert(place.path).second) continue;
    to.push_back({place.path,
                  {},
                  trace::Role::kInput,
                  false,
                  trace::tensor_in(recording, place),
                  trace::first_in_memory_of(recording, place).path});
  }
}

at::Tensor tensor_of(const PlayerState& state, const TrackedTensor& tracked) {
  return tensor_on(state.storage(tracked.buffer), tracked.geometry);
}

void save_weights(const PlayerState& state, const std::vector<TrackedTensor>& tracked,
                  const std::string& path, const WeightsOptions& options) {
  const Names names(options.of);
  std::vector<NamedTensor> entries;
  std::set<std::string> seen;
  for (const TrackedTensor& each : tracked) {
    if ((!is_weight(each) && !options.everything) || !state.holds(each.buffer)) continue;
    const at::Tensor tensor = tensor_of(state, each).cpu();
    const auto add = [&](const std::string& name) {
      if (!names.covers(name) || !seen.insert(name).second) return;
      entries.push_back({names.in_file(name), tensor});
    };
    add(each.path);
    for (const std::string& alias : each.aliases) add(alias);
  }
  if (entries.empty() && !options.of.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("nothing that the trace holds lies below \"{}\"", options.of));
  }
  if (options.everything) {
    for (const auto& [number, value] : state.saved_numbers()) {
      if (names.covers(number)) entries.push_back({names.in_file(number), number_tensor(value)});
    }
    for (const auto& [place, kind] : state.kinds()) {
      if (options.of.empty())
        entries.push_back(
            {trace::path_of_kind(place), tensor_of_bytes(std::as_bytes(std::span(kind)))});
    }
    for (const std::string& generator : state.generators()) {
      if (options.of.empty())
        entries.push_back(
            {std::string(kGeneratorPrefix) + generator, state.generator_state(generator)});
    }
  }
  write_weights(entries, path);
}

void load_weights(PlayerState& state, const std::vector<TrackedTensor>& tracked,
                  const std::string& path, const WeightsOptions& options) {
  Loading loading(state, tracked, options);
  const std::vector<NamedTensor> entries = read_weights(path);
  for (const NamedTensor& entry : entries) loading.take(entry);
  loading.require_all(tracked);
  if (!loading.problems().empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} does not fit, nothing was taken from it:\n  {}", path,
                            fmt::join(loading.problems(), "\n  ")));
  }
  loading.fill();
}

}  // namespace steptape::replayer
