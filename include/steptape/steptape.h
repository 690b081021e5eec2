#pragma once

/// Records a LibTorch training step and replays it bit-exactly. See session.h to record and replay
/// in one program, player.h to replay a trace without the model's code.
#include "steptape/counters.h"    // IWYU pragma: export
#include "steptape/error.h"       // IWYU pragma: export
#include "steptape/guard_kind.h"  // IWYU pragma: export
#include "steptape/options.h"     // IWYU pragma: export
#include "steptape/player.h"      // IWYU pragma: export
#include "steptape/refusal.h"     // IWYU pragma: export
#include "steptape/session.h"     // IWYU pragma: export
#include "steptape/stats.h"       // IWYU pragma: export
#include "steptape/verdict.h"     // IWYU pragma: export
