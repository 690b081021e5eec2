#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <stdexcept>
#include <string>

#include "steptape/verdict.h"

/// The bodies of requests and answers, in JSON.
namespace service {

/// A body that is not what its path takes; what() says why.
struct BadRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// {"pixels": [[64 numbers], ...]}, and of lessons "labels": [...] and, if it is to change from
/// here on, "learning_rate".
struct Request {
  at::Tensor pixels;  ///< float32 [n, 64]
  at::Tensor labels;  ///< int64 [n]; undefined where there are none
  std::optional<double> learning_rate;
};

/// Throws BadRequest. Numbers may be any, also "NaN" and "Infinity" as strings: what comes of them
/// is the model's matter.
Request parse_request(const std::string& body);

/// {"digits": [7], "probabilities": [[...]]}; `probabilities` is float32 [n, 10].
std::string prediction(const at::Tensor& probabilities);
/// {"loss": 0.01, "learned": 1040}
std::string lesson_learned(const at::Tensor& loss, std::uint64_t learned);
/// {"error": "...", "verdict": {"path": ..., "expected": ..., "found": ..., "guard": "shape"}}
std::string refusal(const std::string& message, const steptape::Verdict& verdict);
/// {"error": "..."}
std::string problem(const std::string& message);

}  // namespace service
