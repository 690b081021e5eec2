#pragma once

#include <string>

/// A fuzzer cannot guess checksums. These give what it made of a file with checksums that hold, so
/// that what lies after them is tried too.
namespace steptape::fuzz {

/// The trace file with the right checksums where its numbers say that they stand.
std::string resealed(std::string bytes);
/// The blocks of the trace file, as far as they go, after a right header and with right numbers,
/// index and footer.
std::string reforged(const std::string& bytes);
/// The ledger file with right checksums.
std::string resealed_ledger(std::string bytes);

}  // namespace steptape::fuzz
