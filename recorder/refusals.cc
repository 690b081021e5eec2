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
  if (site.scope != trace::kNone) refusal.place = recording_.scopes[site.scope];
  recording_.refusals.push_back(std::move(refusal));
}

void Refusals::name_modules() {
  for (Refusal& refusal : recording_.refusals) {
    if (refusal.op_index < 0) continue;
    const trace::Op& op = recording_.ops[static_cast<std::size_t>(refusal.op_index)];
    if (op.module != trace::kNone) refusal.module = recording_.modules[op.module].path;
  }
}

}  // namespace steptape::recorder
