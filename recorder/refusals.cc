#include "recorder/refusals.h"

namespace steptape::recorder {

void Refusals::add(RefusalCode code, const Site& site, std::string message) {
  add(code, site.op != nullptr ? *site.op : std::string(), site, std::move(message));
}

void Refusals::add(RefusalCode code, const std::string& subject, const Site& site,
                   std::string message) {
  if (!seen_.emplace(code, subject).second) return;
  Refusal refusal;
  refusal.code = code;
  refusal.message = std::move(message);
  if (site.op != nullptr) refusal.op = *site.op;
  if (site.index != trace::kNone) refusal.op_index = site.index;
  if (site.module != trace::kNone) refusal.module = recording_.modules[site.module].path;
  if (site.scope != trace::kNone) refusal.place = recording_.scopes[site.scope];
  recording_.refusals.push_back(std::move(refusal));
}

void Refusals::set_module(trace::Index index, trace::Index module) {
  auto& refusals = recording_.refusals;
  for (auto last = refusals.rbegin(); last != refusals.rend() && last->op_index == index; ++last) {
    last->module = recording_.modules[module].path;
  }
}

}  // namespace steptape::recorder
