#pragma once

#include <string>

#include "tools/cli/trace_choice.h"

namespace steptape::tools {

/// A recording as comma-separated values (RFC 4180): a line of titles, then one for each op.
/// Control characters of names are escaped, so that an op is one line; a cell that a spreadsheet
/// would take for a formula begins with an apostrophe.
std::string export_csv(const ChosenRecording& chosen);

}  // namespace steptape::tools
