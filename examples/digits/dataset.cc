#include "dataset.h"

#include <ATen/ATen.h>

#include <charconv>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace digits {
namespace {

constexpr std::int64_t kPixels = kSide * kSide;
constexpr std::int64_t kInk = 16;

class LineReader {
 public:
  LineReader(const std::filesystem::path& path, std::int64_t number, std::string_view line)
      : path_(path), number_(number), rest_(line) {
    if (rest_.ends_with('\r')) rest_.remove_suffix(1);
  }

  std::int64_t next(std::string_view what, std::int64_t high) {
    if (done_) fail(what, high, "");
    const auto comma = rest_.find(',');
    const auto field = rest_.substr(0, comma);
    done_ = comma == std::string_view::npos;
    rest_.remove_prefix(done_ ? rest_.size() : comma + 1);
    std::int64_t value = -1;
    const auto* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, value);
    if (error != std::errc() || stop != end || value < 0 || value > high) {
      fail(what, high, field);
    }
    return value;
  }

  void expect_end() const {
    if (!done_) fail("the end of the line", rest_);
  }

 private:
  [[noreturn]] void fail(std::string_view what, std::int64_t high, std::string_view found) const {
    fail(std::string(what).append(" from 0 to ").append(std::to_string(high)), found);
  }
  [[noreturn]] void fail(std::string_view expected, std::string_view found) const {
    std::ostringstream message;
    message << path_.string() << ':' << number_ << ": expected " << expected << ", found '" << found
            << "'";
    throw std::runtime_error(message.str());
  }

  const std::filesystem::path& path_;
  std::int64_t number_;
  std::string_view rest_;
  bool done_ = false;
};

Images select(const Images& images, const at::Tensor& which) {
  return {images.pixels.index_select(0, which), images.labels.index_select(0, which)};
}

at::Tensor tensor_of(const std::vector<std::int64_t>& values) {
  return at::tensor(values, at::kLong);
}

/// A number from 0 to bound - 1; std::uniform_int_distribution differs between libraries.
std::uint64_t draw(std::mt19937_64& random, std::uint64_t bound) {
  const std::uint64_t whole = std::mt19937_64::max() - std::mt19937_64::max() % bound;
  for (;;) {
    const std::uint64_t value = random();
    if (value < whole) return value % bound;
  }
}

}  // namespace

Images read(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": cannot be opened for reading");
  std::vector<float> pixels;
  std::vector<std::int64_t> labels;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    LineReader reader(path, number, line);
    for (std::int64_t i = 0; i < kPixels; ++i) {
      pixels.push_back(static_cast<float>(reader.next("a grey value", kInk)) / kInk);
    }
    labels.push_back(reader.next("a label", kClasses - 1));
    reader.expect_end();
  }
  if (file.bad()) throw std::runtime_error(path.string() + ": reading failed");
  if (labels.empty()) throw std::runtime_error(path.string() + ": expected images, found no line");
  const auto count = static_cast<std::int64_t>(labels.size());
  return {at::tensor(pixels).view({count, kPixels}), tensor_of(labels)};
}

Split split(const Images& images) {
  std::vector<std::int64_t> train, test;
  for (std::int64_t i = 0; i < images.count(); ++i) (i % 5 == 4 ? test : train).push_back(i);
  return {select(images, tensor_of(train)), select(images, tensor_of(test))};
}

std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(epoch) * 0x9e3779b97f4a7c15ULL);
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[draw(random, left)]);
  }
  return order;
}

Batches::Batches(Images images, std::int64_t batch_size, std::uint64_t seed)
    : images_(std::move(images)), batch_size_(batch_size), seed_(seed) {
  if (batch_size < 1 || images_.count() < batch_size) {
    throw std::invalid_argument("a batch of " + std::to_string(batch_size) + " out of " +
                                std::to_string(images_.count()) + " images");
  }
}

Images Batches::at(std::int64_t step) {
  const std::int64_t epoch = step / per_epoch();
  if (epoch != epoch_) {
    order_ = tensor_of(shuffled(images_.count(), seed_, epoch));
    epoch_ = epoch;
  }
  return select(images_, order_.narrow(0, step % per_epoch() * batch_size_, batch_size_));
}

}  // namespace digits
