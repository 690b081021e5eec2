#include "replayer/player/weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "live/tensors.h"
#include "replayer/runtime/tensor_on.h"
#include "steptape/error.h"
#include "storage/files/wire.h"

namespace steptape::replayer {
namespace {

using nlohmann::json;
using trace::DType;

constexpr std::array kNames = {
    std::pair(DType::kBool, "BOOL"),
    std::pair(DType::kUInt8, "U8"),
    std::pair(DType::kInt8, "I8"),
    std::pair(DType::kInt16, "I16"),
    std::pair(DType::kInt32, "I32"),
    std::pair(DType::kInt64, "I64"),
    std::pair(DType::kFloat16, "F16"),
    std::pair(DType::kBFloat16, "BF16"),
    std::pair(DType::kFloat32, "F32"),
    std::pair(DType::kFloat64, "F64"),
    std::pair(DType::kComplex64, "C64"),
    std::pair(DType::kUInt16, "U16"),
    std::pair(DType::kUInt32, "U32"),
    std::pair(DType::kUInt64, "U64"),
    std::pair(DType::kFloat8E4M3FN, "F8_E4M3"),
    std::pair(DType::kFloat8E5M2, "F8_E5M2"),
};

/// The format's own limit.
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

[[noreturn]] void damaged(const storage::InputFile& file, const std::string& what) {
  throw Error(ErrorCode::kDataLoss,
              fmt::format("{} is not a whole safetensors file: {}", file.path().string(), what));
}

std::string name_in_file(const NamedTensor& entry) {
  const DType dtype = live::dtype_of(entry.tensor.scalar_type());
  const auto* const row = std::ranges::find(kNames, dtype, &decltype(kNames)::value_type::first);
  if (row != kNames.end()) return row->second;
  throw Error(ErrorCode::kUnsupported, fmt::format("{}: safetensors has no name for {}; a state "
                                                   "dict (.pt) has",
                                                   entry.name, trace::name_of(dtype)));
}

struct Entry {
  std::string name;
  trace::Tensor geometry;
  std::uint64_t begin = 0, end = 0;  ///< bytes after the header
};

/// Bytes of a contiguous tensor of these sizes, whose strides are filled in; none when they are
/// more than 2^62.
std::optional<std::uint64_t> lay_out(trace::Tensor& geometry) {
  std::uint64_t numel = 1;
  geometry.strides.assign(geometry.sizes.size(), 1);
  for (std::size_t d = geometry.sizes.size(); d-- > 0;) {
    geometry.strides[d] = static_cast<std::int64_t>(numel);
    const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(geometry.sizes[d], 1));
    if (__builtin_mul_overflow(numel, size, &numel) || numel >= std::uint64_t{1} << 58) return {};
  }
  if (std::ranges::find(geometry.sizes, 0) != geometry.sizes.end()) return 0;
  return numel * trace::bytes_of(geometry.dtype);
}

Entry entry_of(const storage::InputFile& file, const std::string& name, const json& item) {
  Entry entry{name, {}};
  entry.geometry.buffer = 0;
  try {
    const std::string dtype = item.at("dtype").get<std::string>();
    const auto* const row = std::ranges::find(kNames, dtype, &decltype(kNames)::value_type::second);
    if (row == kNames.end()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: {} has the dtype {}, which is not known here",
                              file.path().string(), name, dtype));
    }
    entry.geometry.dtype = row->first;
    if (!item.at("shape").is_array()) damaged(file, "the shape of " + name + " is none");
    for (const json& size : item.at("shape")) {
      if (!size.is_number_unsigned() || size.get<std::uint64_t>() >> 58 != 0)
        damaged(file, "the shape of " + name + " is none");
      entry.geometry.sizes.push_back(size.get<std::int64_t>());
    }
    const json& offsets = item.at("data_offsets");
    if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
      damaged(file, "the data_offsets of " + name + " are none");
    entry.begin = offsets[0].get<std::uint64_t>();
    entry.end = offsets[1].get<std::uint64_t>();
  } catch (const json::exception& error) {
    damaged(file, name + ": " + error.what());
  }
  const std::optional<std::uint64_t> bytes = lay_out(entry.geometry);
  if (!bytes || entry.end < entry.begin || entry.end - entry.begin != *bytes)
    damaged(file, "the bytes of " + name + " are not as many as its shape says");
  return entry;
}

json parsed(const storage::InputFile& file, const std::string& text) {
  std::set<std::string> names;
  const auto look = [&](int depth, json::parse_event_t event, const json& value) {
    const bool is_name = event == json::parse_event_t::key && depth == 1;
    if (is_name && !names.insert(value.get<std::string>()).second)
      damaged(file, value.get<std::string>() + " is there twice");
    return true;
  };
  try {
    json header = json::parse(text, look);
    if (!header.is_object()) damaged(file, "its header is not an object");
    return header;
  } catch (const json::exception& error) {
    damaged(file, error.what());
  }
}

/// In the order of their bytes, which must fill the file without hole and overlap.
std::vector<Entry> entries_of(const storage::InputFile& file, const json& header,
                              std::uint64_t bytes) {
  std::vector<Entry> entries;
  for (const auto& [name, item] : header.items()) {
    if (name != "__metadata__") entries.push_back(entry_of(file, name, item));
  }
  std::ranges::stable_sort(entries, {},
                           [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end)
      damaged(file, "the bytes of " + entry.name + " leave a hole or overlap");
    end = entry.end;
  }
  if (end != bytes) damaged(file, "its header is of another length of bytes");
  return entries;
}

}  // namespace

void write_safetensors(std::span<const NamedTensor> tensors, storage::Output& out) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t bytes = 0;
  for (const NamedTensor& entry : tensors) {
    header[entry.name] = {{"dtype", name_in_file(entry)},
                          {"shape", entry.tensor.sizes().vec()},
                          {"data_offsets", {bytes, bytes + entry.tensor.nbytes()}}};
    bytes += entry.tensor.nbytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::kUnsupported, "a name is no UTF-8, which safetensors ask for");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length;
  storage::put(length, static_cast<std::uint64_t>(text.size()));
  out.append(storage::bytes_of(length));
  out.append(storage::bytes_of(text));
  for (const NamedTensor& entry : tensors) out.append(bytes_of(entry));
}

std::vector<NamedTensor> read_safetensors(const storage::InputFile& file) {
  constexpr std::uint64_t kLengthBytes = 8;
  if (file.bytes() < kLengthBytes) damaged(file, "it is too short");
  const auto length = storage::get<std::uint64_t>(storage::bytes_of(file.read(0, kLengthBytes)), 0);
  if (length > std::min(file.bytes() - kLengthBytes, kMostHeaderBytes))
    damaged(file, "its header does not end; nor does it begin like a state dict");
  const json header = parsed(file, file.read(kLengthBytes, length));
  const std::uint64_t start = kLengthBytes + length;
  std::vector<NamedTensor> tensors;
  for (const Entry& entry : entries_of(file, header, file.bytes() - start)) {
    const std::string bytes = file.read(start + entry.begin, entry.end - entry.begin);
    tensors.push_back(
        {entry.name, tensor_of_bytes(std::as_bytes(std::span(bytes)), entry.geometry)});
  }
  return tensors;
}

}  // namespace steptape::replayer
