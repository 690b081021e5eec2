#include "trace/validate.h"

#include <fmt/format.h>

#include <unordered_set>

#include "steptape/error.h"

namespace steptape::trace {
namespace {

void check_step_names(const Trace& trace, const Place& place) {
  std::unordered_set<std::string_view> names;
  for (const Step& step : trace.steps) {
    if (!names.insert(step.name).second) {
      Place(place, "step", step.name).fail("another step has the same name");
    }
  }
}

void check_state(const Trace& trace, const Place& place) {
  std::unordered_set<std::string_view> paths;
  for (std::size_t i = 0; i < trace.state.size(); ++i) {
    const Saved& saved = trace.state[i];
    const Place here(place, "saved state", i);
    if (saved.path.empty()) here.fail("has no path");
    if (!paths.insert(saved.path).second) {
      here.fail(fmt::format("`{}` was saved before", saved.path));
    }
    if (saved.address_mod_64 >= 64) {
      here.fail(fmt::format("address remainder {}, but it is below 64", saved.address_mod_64));
    }
    const bool has_number = is_number(saved.number);
    if (!has_number && !saved.content) here.fail(fmt::format("`{}` has no bytes", saved.path));
    if (has_number && saved.content) here.fail(fmt::format("`{}` has two values", saved.path));
  }
}

}  // namespace

std::string Place::text() const {
  std::string words = outer_ ? outer_->text() : std::string();
  if (word_.empty()) return words;
  if (!words.empty()) words += ", ";
  words += word_;
  if (has_index_) words += fmt::format(" {}", index_);
  if (!name_.empty()) words += fmt::format(" {}", name_);
  return words;
}

void Place::fail(std::string_view what) const {
  const std::string where = text();
  throw Error(ErrorCode::kDataLoss, fmt::format("{}{}{}", where, where.empty() ? "" : ": ", what));
}

void check_index(std::size_t index, std::size_t count, std::string_view what, const Place& place) {
  if (index >= count) place.fail(fmt::format("{} {}, but there are {}", what, index, count));
}

void validate(const Recording& recording) {
  KnownDigests digests;
  validate_recording(recording, Place(), digests);
}

void validate(const Trace& trace) {
  const Place root;
  KnownDigests digests;
  check_step_names(trace, root);
  for (const Step& step : trace.steps) {
    const Place here(root, "step", step.name);
    for (std::size_t i = 0; i < step.recordings.size(); ++i) {
      validate_recording(step.recordings[i], Place(here, "recording", i), digests);
    }
  }
  check_state(trace, root);
}

}  // namespace steptape::trace
