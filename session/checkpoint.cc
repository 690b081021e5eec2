#include "session/checkpoint.h"

#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "live/optimizer_layout.h"
#include "live/tensors.h"
#include "replayer/cpu/undo.h"
#include "trace/numbers.h"

namespace steptape::session {
namespace {

constexpr const char* kGenerator = "generator.";

/// Calls `visit(TensorAt)` for the first tensor on each storage that a trace can hold.
template <typename Visit>
void for_each_storage(const live::Snapshot& snapshot, Visit&& visit) {
  std::unordered_set<const c10::StorageImpl*> seen;
  for (const live::TensorAt& at : snapshot.tensors) {
    if (!at.tensor.defined() || live::unplannable_kind(at.tensor)) continue;
    if (!at.tensor.device().is_cpu()) continue;
    if (seen.insert(at.tensor.storage().unsafeGetStorageImpl()).second) visit(at);
  }
}

/// Hyperparameters and step counters, by the paths that leaves have, and training flags.
void add_numbers(const live::Snapshot& snapshot, std::vector<trace::Saved>& saved) {
  const auto add = [&saved](const std::string& path, const trace::Value& value) {
    saved.push_back({path, 0, nullptr, value});
  };
  for (const live::ModuleAt& module : snapshot.modules) {
    add(module.path + ".training", {module.module->is_training()});
  }
  for (const trace::OptimizerLayout& layout : snapshot.optimizers) {
    trace::for_each_number(layout, add);
  }
}

using ByPath = std::unordered_map<std::string_view, const trace::Saved*>;

void put_back_counters(const ByPath& saved, const live::Objects& objects,
                       const live::Snapshot& snapshot) {
  for (const auto& [path, optimizer] : objects.optimizers()) {
    for (const auto& [key, state] : optimizer->state()) {
      const auto parameter = snapshot.positions.find(static_cast<const c10::TensorImpl*>(key));
      std::int64_t* counter = live::step_counter(*state);
      if (parameter == snapshot.positions.end() || counter == nullptr) continue;
      const auto found =
          saved.find(trace::state_path(path, snapshot.tensors[parameter->second].path) + ".step");
      if (found == saved.end()) continue;
      *counter = static_cast<std::int64_t>(trace::number_of(found->second->number));
    }
  }
}

void put_back_generators(const ByPath& saved, const live::Objects& objects) {
  for (const auto& [path, generator] : objects.generators()) {
    const auto found = saved.find(kGenerator + path);
    const at::Tensor state = replayer::cpu::state_of(generator);
    if (found == saved.end() || found->second->content->size() != state.nbytes()) continue;
    std::memcpy(state.mutable_data_ptr(), found->second->content->data(), state.nbytes());
    replayer::cpu::set_state(generator, state);
  }
}

}  // namespace

std::vector<trace::Saved> saved_state(const live::Objects& objects) {
  std::vector<trace::Saved> saved;
  const live::Snapshot snapshot = objects.snapshot();
  for_each_storage(snapshot, [&](const live::TensorAt& at) {
    const c10::StorageImpl& storage = *at.tensor.storage().unsafeGetStorageImpl();
    saved.push_back({at.path, live::address_mod_64(storage),
                     trace::make_blob(storage.data(), storage.nbytes())});
  });
  add_numbers(snapshot, saved);
  for (const auto& [path, generator] : objects.generators()) {
    const at::Tensor state = replayer::cpu::state_of(generator);
    saved.push_back(
        {kGenerator + path, 0, trace::make_blob(state.const_data_ptr(), state.nbytes())});
  }
  return saved;
}

void put_back(const std::vector<trace::Saved>& saved, const live::Objects& objects) {
  ByPath by_path;
  for (const trace::Saved& entry : saved) by_path.emplace(entry.path, &entry);
  const live::Snapshot snapshot = objects.snapshot();
  for_each_storage(snapshot, [&](const live::TensorAt& at) {
    const auto found = by_path.find(at.path);
    if (found == by_path.end() || !found->second->content) return;
    const std::vector<std::byte>& content = *found->second->content;
    if (content.size() != at.tensor.storage().nbytes()) return;
    if (!content.empty()) {
      std::memcpy(at.tensor.storage().mutable_data(), content.data(), content.size());
    }
    if (!at.tensor.is_inference()) at.tensor.unsafeGetTensorImpl()->bump_version();
  });
  put_back_counters(by_path, objects, snapshot);
  put_back_generators(by_path, objects);
}

}  // namespace steptape::session
