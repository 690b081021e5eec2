#pragma once

#include <string>

#include "steptape/player.h"

namespace service {

/// The text format that Prometheus scrapes, version 0.0.4.
std::string prometheus_text(const steptape::PlayerMetrics& metrics,
                            const steptape::PlayerMemory& memory, std::uint64_t learned);

}  // namespace service
