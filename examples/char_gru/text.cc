#include "text.h"

#include <ATen/ATen.h>

#include <array>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace char_gru {

Text read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path.string() + ": cannot be opened for reading");
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (file.bad()) throw std::runtime_error(path.string() + ": reading failed");
  if (bytes.empty()) throw std::runtime_error(path.string() + ": expected a text, found no byte");

  std::array<std::int64_t, 256> code{};
  for (const unsigned char byte : bytes) code[byte] = 1;
  Text text;
  for (std::size_t byte = 0; byte < code.size(); ++byte) {
    if (code[byte] == 0) continue;
    code[byte] = static_cast<std::int64_t>(text.alphabet.size());
    text.alphabet.push_back(static_cast<char>(byte));
  }
  std::vector<std::int64_t> codes;
  codes.reserve(bytes.size());
  for (const unsigned char byte : bytes) codes.push_back(code[byte]);
  text.codes = at::tensor(codes, at::kLong);
  return text;
}

Batches::Batches(const Text& text, std::int64_t streams, std::int64_t length) : length_(length) {
  // the last character of all has none after it
  const std::int64_t part = streams < 1 ? 0 : (text.codes.numel() - 1) / streams;
  if (length < 1 || part < length) {
    throw std::invalid_argument("a batch of " + std::to_string(streams) + " times " +
                                std::to_string(length) + " characters out of " +
                                std::to_string(text.codes.numel()));
  }
  const auto parts = [&](std::int64_t from) {
    return text.codes.narrow(0, from, streams * part).view({streams, part}).t().contiguous();
  };
  characters_ = parts(0);
  next_ = parts(1);
}

Batches::Batch Batches::at(std::int64_t step) const {
  const std::int64_t place = step % per_pass();
  const auto cut = [&](const at::Tensor& all) {
    return all.narrow(0, place * length_, length_).clone();
  };
  return {cut(characters_), cut(next_), place == 0};
}

}  // namespace char_gru
