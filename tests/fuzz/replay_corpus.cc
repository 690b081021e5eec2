#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

/// replay_corpus FOLDER ...: runs a fuzz target over the files of folders, without a fuzzer. Prints
/// each name before its turn, so that the last one is to blame. Exit 0: all ran; 2: there are none.
namespace {

std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

void run(const std::filesystem::path& path) {
  std::cout << path.string() << std::endl;
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t count = 0;
  for (int i = 1; i < argc; ++i) {
    for (const std::filesystem::path& path : files_of(argv[i])) {
      run(path);
      ++count;
    }
  }
  std::cout << count << " inputs" << std::endl;
  return count == 0 ? 2 : 0;
}
