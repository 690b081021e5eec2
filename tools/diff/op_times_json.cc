#include "tools/diff/op_times_json.h"

namespace steptape::tools {
namespace {

using Json = nlohmann::ordered_json;

Json side_json(const diff::OpTimes& times) {
  return {{"recordings", times.recordings},
          {"least_ns", times.least},
          {"lower_quartile_ns", times.lower_quartile},
          {"median_ns", times.median},
          {"upper_quartile_ns", times.upper_quartile},
          {"most_ns", times.most}};
}

Json difference_json(const diff::OpTimeDifference& times) {
  return {{"comparable", times.is_comparable()},
          {"differs", times.differs()},
          {"band", times.has_middle_halves() ? "middle_half" : "all"},
          {"a", side_json(times.a)},
          {"b", side_json(times.b)}};
}

}  // namespace

Json op_times_json(const diff::OpTimeDifferences& times) {
  Json modules = Json::array();
  for (const diff::OpTimeDifference& module : times.modules) {
    Json json = {{"module", module.module}};
    json.update(difference_json(module));
    modules.push_back(std::move(json));
  }
  return {{"step", difference_json(times.step)}, {"modules", modules}};
}

}  // namespace steptape::tools
