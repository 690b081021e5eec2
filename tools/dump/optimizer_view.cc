#include "tools/dump/optimizer_view.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "diff/layout.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/dump/info_json.h"
#include "trace/numbers.h"
#include "trace/text/text.h"

namespace steptape::tools {
namespace {

using Entries = std::vector<const trace::OptimizerStateEntry*>;

class Table {
 public:
  Table(const trace::Recording& recording, const trace::OptimizerLayout& optimizer) {
    for (const trace::Tracked& tracked : recording.tracked) {
      tracked_.try_emplace(tracked.path, &tracked);
    }
    std::unordered_set<std::string> known;
    for (const trace::OptimizerStateEntry& entry : optimizer.state) {
      if (known.insert(entry.key).second) keys_.push_back(entry.key);
      entries_[entry.parameter].push_back(&entry);
    }
  }

  ParameterState row(const std::string& path, trace::Index group) {
    ParameterState row;
    row.path = path;
    row.group = group;
    if (const auto tracked = tracked_.find(path); tracked != tracked_.end()) {
      row.is_tracked = true;
      row.tensor = tracked->second->tensor;
    }
    const auto entries = entries_.find(path);
    if (entries == entries_.end()) return row;
    row.has_state = true;
    for (const std::string& key : keys_) {
      const auto entry = std::ranges::find(entries->second, key, &trace::OptimizerStateEntry::key);
      row.items.push_back({key, entry == entries->second.end() ? nullptr : &(*entry)->value});
    }
    return row;
  }

 private:
  std::unordered_map<std::string, const trace::Tracked*> tracked_;
  std::vector<std::string> keys_;  ///< of the state, in the order in which they are met
  std::unordered_map<std::string, Entries> entries_;
};

std::string_view type_of(const trace::Value& value) {
  if (std::holds_alternative<bool>(value.data)) return "bool";
  if (std::holds_alternative<std::int64_t>(value.data)) return "integer";
  if (std::holds_alternative<trace::Real>(value.data)) return "real";
  if (std::holds_alternative<std::string>(value.data)) return "string";
  if (std::holds_alternative<trace::None>(value.data)) return "none";
  if (std::holds_alternative<trace::TensorRef>(value.data)) return "tensor";
  return "other";
}

/// The IEEE bits of a real, or "".
std::string bits_of(const trace::Value& value) {
  const auto* real = std::get_if<trace::Real>(&value.data);
  return real == nullptr ? "" : fmt::format("{:#018x}", std::bit_cast<std::uint64_t>(real->value));
}

std::string geometry_of(const trace::Recording& recording, trace::TensorId id) {
  if (id == trace::kNoTensor) return "undefined";
  const trace::Tensor& tensor = recording.tensors[id];
  return trace::words_of_geometry(tensor) + " " + text_of(recording.buffers[tensor.buffer].device);
}

Json geometry_json(const trace::Recording& recording, trace::TensorId id) {
  if (id == trace::kNoTensor) return nullptr;
  const trace::Tensor& tensor = recording.tensors[id];
  return {{"dtype", name_of(tensor.dtype)},
          {"sizes", tensor.sizes},
          {"device", text_of(recording.buffers[tensor.buffer].device)}};
}

/// How plans hold its hyperparameters.
std::string_view guarding_of(const trace::Recording& recording,
                             const trace::OptimizerLayout& optimizer) {
  if (recording.status == trace::Status::kWarmUp) return "";
  return optimizer.has_formulas ? ", formulas follow its hyperparameters"
                                : ", guarded by its hyperparameters";
}

struct Hyperparameter {
  std::string name;  ///< "betas[1]"
  const trace::Value* value;
};

std::vector<Hyperparameter> hyperparameters_of(const trace::ParameterGroup& group) {
  std::vector<Hyperparameter> items;
  for (const trace::NamedValue& named : group.hyperparameters) {
    trace::for_each_item(named.name, named.value,
                         [&](const std::string& name, const trace::Value& value) {
                           items.push_back({name, &value});
                         });
  }
  return items;
}

void put_group(Lines& out, const trace::ParameterGroup& group, std::size_t position) {
  out.line("  group {}  {}", position, count_of(group.parameters.size(), "parameter"));
  std::size_t widest_name = 0;
  std::size_t widest_value = 0;
  const std::vector<Hyperparameter> hyperparameters = hyperparameters_of(group);
  for (const auto& [name, value] : hyperparameters) {
    widest_name = std::max(widest_name, shown(name).size());
    const bool is_real = std::holds_alternative<trace::Real>(value->data);
    if (is_real) widest_value = std::max(widest_value, trace::words_of(*value).size());
  }
  for (const auto& [name, value] : hyperparameters) {
    const std::string bits = bits_of(*value);
    out.line("    {:<{}}  {:<7}  {}", shown(name), widest_name, type_of(*value),
             bits.empty() ? shown(trace::words_of(*value))
                          : fmt::format("{:<{}}  {}", trace::words_of(*value), widest_value, bits));
  }
}

std::string item_words(const trace::Recording& recording, const StateItem& item) {
  if (item.value == nullptr) return "missing";
  const auto* tensor = std::get_if<trace::TensorRef>(&item.value->data);
  if (tensor != nullptr) return geometry_of(recording, tensor->id);
  return fmt::format("{} {}", type_of(*item.value), shown(trace::words_of(*item.value)));
}

void put_parameters(Lines& out, const trace::Recording& recording,
                    const trace::OptimizerLayout& optimizer) {
  for (const ParameterState& parameter : states_of(recording, optimizer)) {
    out.line("  {}  {}{}", shown(parameter.path),
             parameter.is_tracked ? geometry_of(recording, parameter.tensor) : "not tracked",
             parameter.group == trace::kNone ? ", in no group"
                                             : fmt::format(", group {}", parameter.group));
    if (!parameter.has_state) out.line("    no state");
    for (const StateItem& item : parameter.items) {
      out.line("    {:<16}  {}", shown(item.key), item_words(recording, item));
    }
  }
}

Json group_json(const trace::ParameterGroup& group) {
  const auto hyperparameter_json = [](const Hyperparameter& named) {
    const std::string bits = bits_of(*named.value);
    return Json{{"name", named.name},
                {"type", type_of(*named.value)},
                {"value", trace::words_of(*named.value)},
                {"bits", bits.empty() ? Json() : Json(bits)}};
  };
  return {{"hyperparameters", each(hyperparameters_of(group), hyperparameter_json)},
          {"parameters", group.parameters}};
}

Json item_json(const trace::Recording& recording, const StateItem& item) {
  if (item.value == nullptr) return {{"key", item.key}, {"missing", true}};
  Json json = {{"key", item.key}, {"type", type_of(*item.value)}};
  if (const auto* tensor = std::get_if<trace::TensorRef>(&item.value->data)) {
    json["tensor"] = geometry_json(recording, tensor->id);
  } else {
    json["value"] = trace::words_of(*item.value);
  }
  return json;
}

Json optimizer_json(const trace::Recording& recording, const trace::OptimizerLayout& optimizer) {
  const auto parameter_json = [&recording](const ParameterState& parameter) {
    return Json{{"path", parameter.path},
                {"group", number_or_null(parameter.group, trace::kNone)},
                {"tensor", geometry_json(recording, parameter.tensor)},
                {"has_state", parameter.has_state},
                {"state", each(parameter.items, [&recording](const StateItem& item) {
                   return item_json(recording, item);
                 })}};
  };
  return {{"path", optimizer.path},
          {"type", optimizer.type},
          {"has_formulas", optimizer.has_formulas},
          {"groups", each(optimizer.groups, group_json)},
          {"parameters", each(states_of(recording, optimizer), parameter_json)}};
}

/// How the optimizers differ from those of the recording before; none before the second.
std::vector<diff::LayoutDifference> differences_of(const trace::Step& step, std::size_t position) {
  if (position == 0) return {};
  return diff::layout_differences(step.recordings[position - 1], step.recordings[position]);
}

}  // namespace

std::vector<ParameterState> states_of(const trace::Recording& recording,
                                      const trace::OptimizerLayout& optimizer) {
  Table table(recording, optimizer);
  std::vector<ParameterState> rows;
  std::unordered_set<std::string> listed;
  for (trace::Index g = 0; g < optimizer.groups.size(); ++g) {
    for (const std::string& parameter : optimizer.groups[g].parameters) {
      rows.push_back(table.row(parameter, g));
      listed.insert(parameter);
    }
  }
  for (const trace::OptimizerStateEntry& entry : optimizer.state) {
    if (!listed.insert(entry.parameter).second) continue;
    rows.push_back(table.row(entry.parameter, trace::kNone));
  }
  return rows;
}

std::string OptimizerView::text(const trace::Step& step, std::size_t position) const {
  const trace::Recording& recording = step.recordings[position];
  Lines out("    ");
  if (recording.optimizers.empty()) out.line("no optimizer");
  for (const trace::OptimizerLayout& optimizer : recording.optimizers) {
    out.line("{}  {}{}", toned(Tone::kHeading, shown(optimizer.path)), shown(optimizer.type),
             guarding_of(recording, optimizer));
    for (std::size_t g = 0; g < optimizer.groups.size(); ++g)
      put_group(out, optimizer.groups[g], g);
    put_parameters(out, recording, optimizer);
  }
  const auto differences = differences_of(step, position);
  if (!differences.empty()) out.line("since recording {}", position - 1);
  for (const diff::LayoutDifference& difference : differences) {
    out.line("  {}", shown(difference.text()));
  }
  return out.take();
}

Json OptimizerView::json(const trace::Step& step, std::size_t position) const {
  const trace::Recording& recording = step.recordings[position];
  return {{"optimizers", each(recording.optimizers,
                              [&recording](const trace::OptimizerLayout& optimizer) {
                                return optimizer_json(recording, optimizer);
                              })},
          {"since_recording_before", each(differences_of(step, position), finding_json)}};
}

}  // namespace steptape::tools
