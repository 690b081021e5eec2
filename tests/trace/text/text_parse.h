#pragma once

#include <string>
#include <string_view>

#include "trace/model.h"

namespace steptape::trace {

/// Reads the text form back (trace/text/text.h). Throws Error (invalid_argument) with line, column,
/// what was expected and what stands there. What it gives back has not been validated.
Trace parse(std::string_view text);
Recording parse_recording(std::string_view text);

/// The text with "@7" in place of a digest, which has 32 digits, written out.
std::string with_digests(std::string text);

}  // namespace steptape::trace
