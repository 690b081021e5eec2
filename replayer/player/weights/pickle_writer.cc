#include "replayer/player/weights/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "storage/files/wire.h"

namespace steptape::replayer {
namespace {

/// Opcodes by their names in Python's pickletools.
class PickleWriter {
 public:
  void dict(std::span<const PickledEntry> entries) {
    text_ += "\x80\x02}(";  // PROTO 2, EMPTY_DICT, MARK
    for (const PickledEntry& entry : entries) {
      string(entry.name);
      std::visit([this](const auto& value) { put(value); }, entry.value);
    }
    text_ += "u.";  // SETITEMS, STOP
  }
  std::string take() { return std::move(text_); }

 private:
  void put(bool flag) { text_ += flag ? '\x88' : '\x89'; }  // NEWTRUE, NEWFALSE

  void put(std::int64_t number) {
    if (number >= std::numeric_limits<std::int32_t>::min() &&
        number <= std::numeric_limits<std::int32_t>::max()) {
      text_ += 'J';  // BININT
      storage::put(text_, static_cast<std::uint32_t>(number));
    } else {
      text_ += "\x8a\x08";  // LONG1 of 8 bytes
      storage::put(text_, static_cast<std::uint64_t>(number));
    }
  }

  void put(double number) {
    text_ += 'G';  // BINFLOAT, highest byte first
    const auto bits = std::bit_cast<std::uint64_t>(number);
    for (int shift = 56; shift >= 0; shift -= 8) text_ += static_cast<char>(bits >> shift & 0xff);
  }

  void put(const PickledTensor& tensor) {
    const trace::Tensor& geometry = tensor.geometry;
    const std::string_view type = storage_type_of(geometry.dtype);
    const bool is_typed = !type.empty();
    global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    text_ += "((";  // MARK, MARK
    string("storage");
    global(is_typed ? "torch" : "torch.storage", is_typed ? type : "UntypedStorage");
    string(tensor.storage);
    string("cpu");
    put(is_typed ? tensor.bytes / static_cast<std::int64_t>(trace::bytes_of(geometry.dtype))
                 : tensor.bytes);
    text_ += "tQ";  // TUPLE, BINPERSID
    put(geometry.offset);
    tuple(geometry.sizes);
    tuple(geometry.strides);
    put(false);  // requires_grad
    global("collections", "OrderedDict");
    text_ += ")R";  // EMPTY_TUPLE, REDUCE: no hooks
    if (!is_typed) global("torch", trace::name_of(geometry.dtype));
    text_ += "tR";  // TUPLE, REDUCE
  }

  void string(std::string_view text) {
    text_ += 'X';  // BINUNICODE
    storage::put(text_, static_cast<std::uint32_t>(text.size()));
    text_ += text;
  }

  void global(std::string_view module, std::string_view name) {
    text_ += 'c';  // GLOBAL
    text_.append(module).append("\n").append(name).append("\n");
  }

  void tuple(const std::vector<std::int64_t>& numbers) {
    text_ += '(';  // MARK
    for (const std::int64_t number : numbers) put(number);
    text_ += 't';  // TUPLE
  }

  std::string text_;
};

}  // namespace

std::string write_pickle(std::span<const PickledEntry> entries) {
  PickleWriter writer;
  writer.dict(entries);
  return writer.take();
}

}  // namespace steptape::replayer
