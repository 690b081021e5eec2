#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "steptape/error.h"
#include "storage/trace/block.h"
#include "storage/trace/reader.h"
#include "storage/trace/writer.h"
#include "tests/trace/samples.h"

namespace steptape::storage {

/// A folder of its own for each test, and words for what happens to files.
class TraceFileTest : public testing::Test {
 protected:
  TraceFileTest() {
    std::string pattern = std::filesystem::temp_directory_path() / "steptape.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ / "run.tape";
  }
  ~TraceFileTest() override { std::filesystem::remove_all(folder_); }

  /// The bytes that writing `trace` gives.
  std::string written(const trace::Trace& trace, const WriteOptions& options = {}) const {
    write(trace, path_, options);
    return bytes_of_file(path_);
  }
  static std::string bytes_of_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void put_file(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), std::ssize(bytes));
  }
  /// What reading the file throws.
  Error refusal() const {
    try {
      read(path_);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "it was read");
  }
  std::vector<std::string> names_in_folder() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

/// Builds a file block by block, index and footer included, so that tests can write what no writer
/// would.
class Forge {
 public:
  Forge() : bytes_(encode_file_header()) {}

  Forge& block(std::uint16_t type, std::uint16_t flags, const std::string& payload);
  Forge& message(BlockType type, const std::string& payload) {
    return block(static_cast<std::uint16_t>(type), kMustUnderstand, payload);
  }
  /// A header whose length is a lie, with the right checksums.
  Forge& header_of_length(std::uint32_t length);
  /// Index and footer; the file's bytes.
  std::string finish();
  std::string unfinished() const { return bytes_; }

 private:
  std::string bytes_;
  std::vector<Block> blocks_;
};

/// Splits the bytes of a file into its blocks.
std::vector<Block> blocks_of(const std::string& bytes);

/// `count` bytes that do not compress.
trace::Blob noise(std::size_t count);
/// A trace whose saved state is `content`.
trace::Trace trace_of_state(trace::Blob content);

}  // namespace steptape::storage
