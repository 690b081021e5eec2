#pragma once

#include <string_view>

namespace steptape::tools {

enum class Paging { kOnTerminal, kNever };

/// Writes a long result: through $PAGER, `less -FRX` where it is not set, when the standard output
/// is a terminal, otherwise as `put` does. A reader who leaves the pager early is no error.
void put_paged(std::string_view text, Paging paging);

}  // namespace steptape::tools
