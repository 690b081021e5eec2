#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// What libFuzzer calls with each input, and what replay_corpus.cc calls with each file: never ends
/// by an exception, and aborts the process where a promise does not hold. Returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace steptape::fuzz {

/// Says what does not hold and aborts, so that the fuzzer keeps the input.
void require(bool holds, const std::string& what);

}  // namespace steptape::fuzz
