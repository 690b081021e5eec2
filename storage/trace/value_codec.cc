#include "storage/trace/value_codec.h"

#include <fmt/format.h>

#include <bit>
#include <memory>

#include "steptape/error.h"

namespace steptape::storage {
namespace {

std::uint64_t bits_of(trace::Real real) { return std::bit_cast<std::uint64_t>(real.value); }
trace::Real real_of(std::uint64_t bits) { return {std::bit_cast<double>(bits)}; }

/// A part of a value is made before it is given to the value: what `mutable_` begins where memory
/// ends is a value with a part that is not there, which its destructor deletes (protobuf 3.21).
struct Encoder {
  proto::Value& out;

  void operator()(trace::None) const { out.set_none(true); }
  void operator()(bool value) const { out.set_boolean(value); }
  void operator()(std::int64_t value) const { out.set_integer(value); }
  void operator()(trace::Real value) const { out.set_real(bits_of(value)); }
  void operator()(const trace::Complex& value) const {
    auto complex = std::make_unique<proto::Complex>();
    complex->set_real(bits_of(value.real));
    complex->set_imag(bits_of(value.imag));
    out.set_allocated_complex(complex.release());
  }
  void operator()(const std::string& value) const { out.set_text(value); }
  void operator()(const trace::Device& value) const {
    auto device = std::make_unique<proto::Device>();
    encode(value, *device);
    out.set_allocated_device(device.release());
  }
  void operator()(trace::TensorRef value) const { out.set_tensor(plus_one(value.id)); }
  void operator()(const trace::GeneratorRef& value) const { out.set_generator(value.path); }
  void operator()(const trace::Opaque& value) const { out.set_opaque(value.type); }
  void operator()(const trace::IntList& value) const {
    auto integers = std::make_unique<proto::Integers>();
    integers->mutable_items()->Add(value.begin(), value.end());
    out.set_allocated_integers(integers.release());
  }
  void operator()(const trace::List& value) const {
    auto list = std::make_unique<proto::Values>();
    for (const trace::Value& item : value) encode(item, *list->add_items());
    out.set_allocated_list(list.release());
  }
};

trace::List decode_list(const proto::Values& in) {
  trace::List list;
  list.reserve(static_cast<std::size_t>(in.items_size()));
  for (const proto::Value& item : in.items()) list.push_back(decode(item));
  return list;
}

}  // namespace

void encode(const trace::Value& value, proto::Value& out) { std::visit(Encoder{out}, value.data); }

trace::Value decode(const proto::Value& in) {
  switch (in.kind_case()) {
    case proto::Value::kNone:
      return {trace::None()};
    case proto::Value::kBoolean:
      return {in.boolean()};
    case proto::Value::kInteger:
      return {in.integer()};
    case proto::Value::kReal:
      return {real_of(in.real())};
    case proto::Value::kComplex:
      return {trace::Complex{real_of(in.complex().real()), real_of(in.complex().imag())}};
    case proto::Value::kText:
      return {in.text()};
    case proto::Value::kDevice:
      return {decode(in.device())};
    case proto::Value::kTensor:
      return {trace::TensorRef{minus_one(in.tensor())}};
    case proto::Value::kGenerator:
      return {trace::GeneratorRef{in.generator()}};
    case proto::Value::kOpaque:
      return {trace::Opaque{in.opaque()}};
    case proto::Value::kIntegers:
      return {trace::IntList(in.integers().items().begin(), in.integers().items().end())};
    case proto::Value::kList:
      return {decode_list(in.list())};
    case proto::Value::KIND_NOT_SET:
      break;
  }
  throw Error(ErrorCode::kDataLoss, "a value has no kind that this build knows");
}

void encode(const trace::Device& device, proto::Device& out) {
  out.set_kind(static_cast<std::uint32_t>(device.kind));
  out.set_index(device.index);
}

trace::Device decode(const proto::Device& in) {
  return {decode_small<trace::DeviceKind>("device kind", in.kind()), in.index()};
}

void encode(const trace::Digest& digest, proto::Digest& out) {
  out.set_low(digest.low);
  out.set_high(digest.high);
}

trace::Digest decode(const proto::Digest& in) { return {in.low(), in.high()}; }

void encode(const trace::Fact& fact, proto::Fact& out) {
  out.set_name(fact.name);
  out.set_value(fact.value);
}

trace::Fact decode(const proto::Fact& in) { return {in.name(), in.value()}; }

void number_is_out_of_range(std::string_view what, std::uint64_t number) {
  throw Error(ErrorCode::kDataLoss, fmt::format("{} {} is none that exists", what, number));
}

}  // namespace steptape::storage
