#pragma once

#include <vector>

#include "live/objects.h"
#include "trace/model.h"

namespace steptape::session {

/// What the tracked objects hold at this moment: whole storages, each once, under the path of the
/// first tensor on it, as recordings name buffers; hyperparameters, step counters and training
/// flags; generator states.
std::vector<trace::Saved> saved_state(const live::Objects& objects);

/// Writes it back in place: bytes of storages that are there with the size they had, step counters
/// and generator states. Hyperparameters and training flags stay: they are the program's.
void put_back(const std::vector<trace::Saved>& saved, const live::Objects& objects);

}  // namespace steptape::session
