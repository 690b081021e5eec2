#include "trace/compare/guard_list.h"

#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "trace/compare/guard_list_parts.h"
#include "trace/path.h"
#include "trace/text/text.h"

namespace steptape::trace {
namespace {

/// What is registered with modules, by the module's path.
using Registered = std::unordered_map<std::string, std::vector<const Tracked*>>;

Registered registered_with_modules(const Recording& recording) {
  Registered registered;
  for (const Tracked& tracked : recording.tracked) {
    if (tracked.role != Role::kParameter && tracked.role != Role::kModuleBuffer) continue;
    registered[std::string(parent_path(tracked.path))].push_back(&tracked);
  }
  return registered;
}

void add_registered(GuardList& list, const Tracked& tracked) {
  const bool is_parameter = tracked.role == Role::kParameter;
  list.begin(tracked.path, tracked.aliases);
  list.add(is_parameter ? GuardKind::kParameters : GuardKind::kModuleBuffers, "",
           is_parameter ? "the parameter registered when it was recorded"
                        : "the module buffer registered when it was recorded");
}

}  // namespace

void GuardList::begin(std::string object, std::span<const std::string> aliases) {
  object_ = std::move(object);
  aliases_ = aliases;
}

void GuardList::add(GuardKind kind, std::string_view suffix, std::string expected,
                    std::string also_holds) {
  Guard& guard = guards_.emplace_back();
  guard.kind = kind;
  guard.object = object_;
  guard.path = object_ + std::string(suffix);
  guard.expected = std::move(expected);
  guard.also_holds = std::move(also_holds);
  for (const std::string& alias : aliases_) guard.aliases.push_back(alias + std::string(suffix));
}

void GuardList::append(GuardList other) {
  guards_.insert(guards_.end(), std::make_move_iterator(other.guards_.begin()),
                 std::make_move_iterator(other.guards_.end()));
}

void add_module_guards(GuardList& list, const Recording& recording) {
  const Registered with = registered_with_modules(recording);
  std::unordered_set<std::string_view> paths;
  for (const Module& module : recording.modules) paths.insert(module.path);
  for (const Module& module : recording.modules) {
    list.begin(module.path, module.aliases);
    if (paths.contains(parent_path(module.path))) {
      list.add(GuardKind::kSubModules, "", "the sub-module registered when it was recorded");
    }
    list.add(GuardKind::kTraining, ".training", words_of(module.training));
    for (const NamedValue& option : module.options) {
      list.add(GuardKind::kModuleOption, "." + option.name, words_of(option.value));
    }
    const auto registered = with.find(module.path);
    if (registered == with.end()) continue;
    for (const Tracked* tracked : registered->second) add_registered(list, *tracked);
  }
}

std::vector<Guard> guards_of(const Recording& recording) {
  // an input that lies in a tracked tensor must stay there: those are met first
  Met met(recording.buffers.size(), false);
  GuardList tracked;
  add_tracked(tracked, recording, met);
  GuardList list;
  add_inputs(list, recording, met);
  add_declared(list, recording);
  add_ambient(list, recording);
  add_module_guards(list, recording);
  add_optimizers(list, recording);
  list.append(std::move(tracked));
  add_predicates(list, recording);
  add_memory(list, recording);
  add_reads(list, recording);
  return list.take();
}

}  // namespace steptape::trace
