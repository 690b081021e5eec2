#include "messages.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "../digits/dataset.h"

namespace service {
namespace {

using nlohmann::json;

constexpr std::size_t kPixels = digits::kSide * digits::kSide;

float number(const json& item) {
  if (item.is_number()) return static_cast<float>(item.get<double>());
  if (item == "NaN") return std::numeric_limits<float>::quiet_NaN();
  if (item == "Infinity") return std::numeric_limits<float>::infinity();
  if (item == "-Infinity") return -std::numeric_limits<float>::infinity();
  throw BadRequest("a pixel is not a number");
}

at::Tensor pixels_of(const json& images) {
  if (!images.is_array()) throw BadRequest("\"pixels\" is not a list of images");
  const auto count = static_cast<std::int64_t>(images.size());
  at::Tensor pixels = at::empty({count, static_cast<std::int64_t>(kPixels)}, at::kFloat);
  auto* next = pixels.mutable_data_ptr<float>();
  for (const json& image : images) {
    if (!image.is_array() || image.size() != kPixels)
      throw BadRequest("an image is not a list of 64 numbers");
    for (const json& pixel : image) *next++ = number(pixel);
  }
  return pixels;
}

at::Tensor labels_of(const json& list) {
  if (!list.is_array()) throw BadRequest("\"labels\" is not a list");
  at::Tensor labels = at::empty({static_cast<std::int64_t>(list.size())}, at::kLong);
  auto* next = labels.mutable_data_ptr<std::int64_t>();
  for (const json& label : list) {
    if (!label.is_number_unsigned() || label.get<std::uint64_t>() >= digits::kClasses)
      throw BadRequest("a label is no digit");
    *next++ = label.get<std::int64_t>();
  }
  return labels;
}

/// JSON knows no NaN and no infinity: they become null.
std::string written(const json& answer) {
  return answer.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Request parse_request(const std::string& body) {
  json message = json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!message.is_object()) throw BadRequest("the body is no JSON object");
  Request request;
  if (!message.contains("pixels")) throw BadRequest("\"pixels\" is missing");
  request.pixels = pixels_of(message["pixels"]);
  if (message.contains("labels")) request.labels = labels_of(message["labels"]);
  if (message.contains("learning_rate")) {
    const json& rate = message["learning_rate"];
    if (!rate.is_number() || !std::isfinite(rate.get<double>()) || rate.get<double>() < 0)
      throw BadRequest("\"learning_rate\" is not a number from 0 on");
    request.learning_rate = rate.get<double>();
  }
  return request;
}

std::string prediction(const at::Tensor& probabilities) {
  json answer = {{"digits", json::array()}, {"probabilities", json::array()}};
  const auto* row = probabilities.const_data_ptr<float>();
  for (std::int64_t i = 0; i < probabilities.size(0); ++i, row += digits::kClasses) {
    answer["digits"].push_back(std::max_element(row, row + digits::kClasses) - row);
    answer["probabilities"].push_back(std::vector<float>(row, row + digits::kClasses));
  }
  return written(answer);
}

std::string lesson_learned(const at::Tensor& loss, std::uint64_t learned) {
  return written({{"loss", *loss.const_data_ptr<float>()}, {"learned", learned}});
}

std::string refusal(const std::string& message, const steptape::Verdict& verdict) {
  return written({{"error", message},
                  {"verdict",
                   {{"path", verdict.path},
                    {"expected", verdict.expected},
                    {"found", verdict.found},
                    {"guard", name_of(verdict.kind)}}}});
}

std::string problem(const std::string& message) { return written({{"error", message}}); }

}  // namespace service
