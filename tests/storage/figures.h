#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

namespace steptape::storage {

/// Says on stdout and in the test's report how much a test went through.
inline void tell(const std::string& what, std::uint64_t figure) {
  testing::Test::RecordProperty(what, std::to_string(figure));
  std::cout << what << ": " << figure << std::endl;
}

/// How much a test is to go through: the environment's number, or `otherwise`.
inline std::size_t amount(const char* variable, std::size_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace steptape::storage
