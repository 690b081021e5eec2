#include <unistd.h>

#include "tests/storage/generation.h"

/// write_generations PATH FIRST: says on stdout that it begins, then writes one generation over
/// the other until it is killed.
int main(int, char** argv) {
  if (::write(STDOUT_FILENO, "!", 1) != 1) return 1;
  for (std::uint64_t number = std::stoull(argv[2]);; ++number) {
    steptape::storage::write(steptape::storage::generation(number), argv[1]);
  }
}
