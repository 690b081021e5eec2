#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace digits {

/// What a stretch of training left behind, as bits: equal outcomes are bit-identical.
struct Outcome {
  std::vector<std::uint32_t> losses;           ///< IEEE bits, in the order of the steps
  std::map<std::string, std::string> digests;  ///< of tensors by path

  /// `loss` is one float32.
  void add_loss(const at::Tensor& loss);
  void add_tensor(const std::string& path, const at::Tensor& tensor);
};

/// Dtype, shape and a 64-bit FNV-1a of the elements' bytes.
std::string digest_of(const at::Tensor& tensor);

/// The first thing in which `found` differs from `expected`, in words; empty when nothing does.
std::string difference(const Outcome& expected, const Outcome& found);

/// `path` with its extension replaced: the outcome's place beside a trace.
std::filesystem::path beside(std::filesystem::path trace);

/// Both throw std::runtime_error that names the file and what is wrong with it.
void write(const Outcome& outcome, const std::filesystem::path& path);
Outcome read_outcome(const std::filesystem::path& path);

}  // namespace digits
