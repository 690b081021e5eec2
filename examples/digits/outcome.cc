#include "outcome.h"

#include <ATen/ATen.h>

#include <bit>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <stdexcept>

namespace digits {

void Outcome::add_loss(const at::Tensor& loss) {
  losses.push_back(std::bit_cast<std::uint32_t>(loss.item<float>()));
}

void Outcome::add_tensor(const std::string& path, const at::Tensor& tensor) {
  digests[path] = digest_of(tensor);
}

std::string digest_of(const at::Tensor& tensor) {
  const auto flat = tensor.detach().contiguous();
  const std::span bytes(static_cast<const unsigned char*>(flat.const_data_ptr()), flat.nbytes());
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3ULL;
  std::ostringstream text;
  text << flat.dtype() << flat.sizes() << ':' << std::hex << hash;
  return text.str();
}

std::string difference(const Outcome& expected, const Outcome& found) {
  if (expected.losses.size() != found.losses.size()) {
    return "losses: expected " + std::to_string(expected.losses.size()) + ", found " +
           std::to_string(found.losses.size());
  }
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    if (expected.losses[i] == found.losses[i]) continue;
    char text[96];
    std::snprintf(text, sizeof text, "loss %zu: expected %.9g, found %.9g", i,
                  std::bit_cast<float>(expected.losses[i]), std::bit_cast<float>(found.losses[i]));
    return text;
  }
  for (const auto& [path, digest] : expected.digests) {
    const auto other = found.digests.find(path);
    if (other == found.digests.end()) return path + ": expected " + digest + ", found no tensor";
    if (other->second != digest) {
      return path + ": expected " + digest + ", found " + other->second;
    }
  }
  if (expected.digests.size() != found.digests.size()) return "tensors: found more than expected";
  return {};
}

std::filesystem::path beside(std::filesystem::path trace) {
  return trace.replace_extension(".json");
}

void write(const Outcome& outcome, const std::filesystem::path& path) {
  std::ofstream file(path);
  file << nlohmann::json{{"losses", outcome.losses}, {"digests", outcome.digests}}.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error(path.string() + ": cannot be written");
}

Outcome read_outcome(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error(path.string() +
                             ": cannot be opened; the program that trains writes it");
  }
  try {
    const auto json = nlohmann::json::parse(file);
    return {json.at("losses").get<std::vector<std::uint32_t>>(),
            json.at("digests").get<std::map<std::string, std::string>>()};
  } catch (const nlohmann::json::exception& problem) {
    throw std::runtime_error(path.string() +
                             ": is not what the program that trains writes: " + problem.what());
  }
}

}  // namespace digits
