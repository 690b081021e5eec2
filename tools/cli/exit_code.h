#pragma once

namespace steptape::tools {

/// What every subcommand tells the shell.
inline constexpr int kGood = 0;     ///< equal, whole, done
inline constexpr int kDiffers = 1;  ///< different, damaged
inline constexpr int kTrouble = 2;  ///< a missing file, wrong arguments, no memory

}  // namespace steptape::tools
