#include "replayer/player/weights/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "steptape/error.h"
#include "storage/files/wire.h"

namespace steptape::replayer {
namespace {

using trace::DType;

struct Row {
  DType dtype;
  std::string_view name;
};

constexpr std::array kStorageTypes = {
    Row{DType::kBool, "BoolStorage"},
    Row{DType::kUInt8, "ByteStorage"},
    Row{DType::kInt8, "CharStorage"},
    Row{DType::kInt16, "ShortStorage"},
    Row{DType::kInt32, "IntStorage"},
    Row{DType::kInt64, "LongStorage"},
    Row{DType::kFloat16, "HalfStorage"},
    Row{DType::kBFloat16, "BFloat16Storage"},
    Row{DType::kFloat32, "FloatStorage"},
    Row{DType::kFloat64, "DoubleStorage"},
    Row{DType::kComplex64, "ComplexFloatStorage"},
    Row{DType::kComplex128, "ComplexDoubleStorage"},
};

}  // namespace

std::string_view storage_type_of(DType dtype) noexcept {
  const auto* const row = std::ranges::find(kStorageTypes, dtype, &Row::dtype);
  return row == kStorageTypes.end() ? std::string_view() : row->name;
}

std::optional<DType> dtype_of_storage_type(std::string_view name) noexcept {
  const auto* const row = std::ranges::find(kStorageTypes, name, &Row::name);
  return row == kStorageTypes.end() ? std::nullopt : std::optional(row->dtype);
}

namespace {

/// "collections.OrderedDict"
struct Global {
  std::string_view module, name;
  std::string text() const { return fmt::format("{}.{}", module, name); }
  bool is(std::string_view in, std::string_view named) const {
    return module == in && name == named;
  }
};

/// What torch.save's persistent ids stand for.
struct StoredBytes {
  std::string_view key;
  std::int64_t count = 0;  ///< of elements, or of bytes where it has no dtype
  std::optional<trace::DType> dtype = {};
};

/// Lists and tuples, dicts, and tensors by their place among those read. A value holds no other
/// and no more than a few words, whatever a pickle nests, shares or repeats.
struct Sequence {
  std::size_t index;
};
struct Dict {
  std::size_t index;
};
struct Tensor {
  std::size_t index;
};

using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string_view, Global,
                           StoredBytes, Sequence, Dict, Tensor>;

[[noreturn]] void damaged(const std::string& what) {
  throw Error(ErrorCode::kDataLoss, "its pickle is damaged: " + what);
}

[[noreturn]] void foreign(const std::string& what) {
  throw Error(ErrorCode::kUnsupported,
              "its pickle is more than a dict of tensors and numbers: " + what);
}

template <typename T>
const T& get(const Value& value, const char* what) {
  const T* found = std::get_if<T>(&value);
  if (found == nullptr) damaged(fmt::format("{} is of another kind", what));
  return *found;
}

class PickleReader {
 public:
  explicit PickleReader(std::string_view bytes) : bytes_(bytes) {}

  std::vector<PickledEntry> read() {
    if (byte() != 0x80) damaged("it does not begin as one");
    if (const std::uint8_t protocol = byte(); protocol != 2)
      foreign(fmt::format("protocol {}; torch.save writes 2", protocol));
    while (!ended_) step();
    const Value root = pop();
    flatten(root, "", 0);
    return std::move(entries_);
  }

 private:
  std::string_view take(std::size_t count) {
    if (count > bytes_.size() - at_) damaged("it ends too early");
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  template <typename Number>
  Number number() {
    return storage::get<Number>(std::as_bytes(std::span(take(sizeof(Number)))), 0);
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) damaged("it ends too early");
    const std::string_view text = take(end - at_);
    ++at_;
    return text;
  }

  Value pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back()))
      damaged("something is taken that is not there");
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }
  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) damaged("a mark is missing");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    marks_.pop_back();
    std::vector<Value> values(std::make_move_iterator(first),
                              std::make_move_iterator(stack_.end()));
    stack_.erase(first, stack_.end());
    return values;
  }
  std::vector<Value> pop_many(std::size_t count) {
    std::vector<Value> values(count);
    for (std::size_t i = count; i-- > 0;) values[i] = pop();
    return values;
  }
  const Value& top() const {
    if (stack_.empty()) damaged("something is used that is not there");
    return stack_.back();
  }

  void push_sequence(std::vector<Value> items) {
    sequences_.push_back(std::move(items));
    stack_.push_back(Sequence{sequences_.size() - 1});
  }
  void push_dict() {
    dicts_.emplace_back();
    stack_.push_back(Dict{dicts_.size() - 1});
  }

  /// Opcodes by their names in Python's pickletools.
  void step() {
    switch (const std::uint8_t opcode = byte(); opcode) {
      case '.':
        ended_ = true;
        return;  // STOP
      case '(':
        return marks_.push_back(stack_.size());  // MARK
      case 'N':
        return stack_.push_back(std::monostate());  // NONE
      case 0x88:
        return stack_.push_back(true);  // NEWTRUE
      case 0x89:
        return stack_.push_back(false);  // NEWFALSE
      case 'K':
        return push_integer(number<std::uint8_t>());  // BININT1
      case 'M':
        return push_integer(number<std::uint16_t>());  // BININT2
      case 'J':
        return push_integer(static_cast<std::int32_t>(number<std::uint32_t>()));  // BININT
      case 0x8a:
        return push_long();  // LONG1
      case 'G':
        return push_double();  // BINFLOAT
      case 'X':
        return push_string();  // BINUNICODE
      case 'c':
        return push_global();  // GLOBAL
      case '}':
        return push_dict();  // EMPTY_DICT
      case ']':              // EMPTY_LIST
      case ')':
        return push_sequence({});  // EMPTY_TUPLE
      case 't':
        return push_sequence(pop_to_mark());  // TUPLE
      case 0x85:
        return push_sequence(pop_many(1));  // TUPLE1
      case 0x86:
        return push_sequence(pop_many(2));  // TUPLE2
      case 0x87:
        return push_sequence(pop_many(3));  // TUPLE3
      case 'a':
        return append(pop_many(1));  // APPEND
      case 'e':
        return append(pop_to_mark());  // APPENDS
      case 's':
        return set_items(pop_many(2));  // SETITEM
      case 'u':
        return set_items(pop_to_mark());  // SETITEMS
      case 'q':
        return remember(number<std::uint8_t>());  // BINPUT
      case 'r':
        return remember(number<std::uint32_t>());  // LONG_BINPUT
      case 'h':
        return recall(number<std::uint8_t>());  // BINGET
      case 'j':
        return recall(number<std::uint32_t>());  // LONG_BINGET
      case 'Q':
        return find_storage();  // BINPERSID
      case 'R':
        return call();  // REDUCE
      case 'b':
        return build();  // BUILD
      default:
        foreign(fmt::format("opcode {:#04x}", opcode));
    }
  }

  void push_integer(std::int64_t integer) { stack_.push_back(integer); }
  void push_long() {
    const std::string_view digits = take(byte());
    if (digits.size() > 8) foreign("an integer of more than 64 bits");
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      const bool is_negative = !digits.empty() && (digits.back() & 0x80) != 0;
      const auto digit = i < digits.size() ? static_cast<std::uint8_t>(digits[i])
                                           : static_cast<std::uint8_t>(is_negative ? 0xff : 0);
      bits |= static_cast<std::uint64_t>(digit) << (8 * i);
    }
    push_integer(static_cast<std::int64_t>(bits));
  }
  void push_double() {
    std::uint64_t bits = 0;
    for (const char digit : take(8)) bits = bits << 8 | static_cast<std::uint8_t>(digit);
    stack_.push_back(std::bit_cast<double>(bits));
  }
  void push_string() { stack_.push_back(take(number<std::uint32_t>())); }
  void push_global() {
    const std::string_view module = line();
    stack_.push_back(Global{module, line()});
  }

  void append(const std::vector<Value>& items) {
    std::vector<Value>& list = sequences_[get<Sequence>(top(), "what is appended to").index];
    list.insert(list.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<Value>& items) {
    if (items.size() % 2 != 0) damaged("a key has no value");
    auto& dict = dicts_[get<Dict>(top(), "what items are set in").index];
    for (std::size_t i = 0; i < items.size(); i += 2) {
      dict.emplace_back(items[i], items[i + 1]);
    }
  }
  void remember(std::uint32_t number) { memo_.insert_or_assign(number, top()); }
  void recall(std::uint32_t number) {
    const auto found = memo_.find(number);
    if (found == memo_.end()) damaged("something is recalled that was not remembered");
    stack_.push_back(found->second);
  }

  const std::vector<Value>& items_of(const Value& value, const char* what) const {
    return sequences_[get<Sequence>(value, what).index];
  }

  /// ("storage", type, key, device, count)
  void find_storage() {
    const std::vector<Value>& id = items_of(pop(), "a persistent id");
    if (id.size() != 5) damaged("a persistent id is not a storage's");
    const Global type = get<Global>(id[1], "a storage's type");
    StoredBytes storage{get<std::string_view>(id[2], "a storage's key"),
                        get<std::int64_t>(id[4], "a storage's size")};
    if (!type.is("torch.storage", "UntypedStorage")) {
      if (type.module == "torch") storage.dtype = dtype_of_storage_type(type.name);
      if (!storage.dtype) foreign("a storage of type " + type.text());
    }
    stack_.push_back(storage);
  }

  void call() {
    const std::vector<Value>& arguments = items_of(pop(), "a call's arguments");
    const Global callee = get<Global>(pop(), "what is called");
    const auto require = [&](std::size_t count) {
      if (arguments.size() < count) damaged(callee.text() + " is called with too few arguments");
    };
    if (callee.is("collections", "OrderedDict") && arguments.empty()) {
      push_dict();
    } else if (callee.is("torch", "Size")) {
      require(1);
      stack_.push_back(arguments[0]);
    } else if (callee.is("torch._utils", "_rebuild_parameter")) {
      require(1);
      stack_.push_back(get<Tensor>(arguments[0], "a parameter"));
    } else if (callee.is("torch._utils", "_rebuild_tensor_v2")) {
      require(6);
      push_tensor(arguments, {}, 6);
    } else if (callee.is("torch._utils", "_rebuild_tensor_v3")) {
      require(7);
      push_tensor(arguments, get<Global>(arguments[6], "a dtype"), 7);
    } else {
      foreign("it calls " + callee.text());
    }
  }

  /// (storage, offset, sizes, strides, requires_grad, hooks, [dtype,] [metadata])
  void push_tensor(const std::vector<Value>& arguments, const std::optional<Global>& dtype,
                   std::size_t metadata) {
    const auto& storage = get<StoredBytes>(arguments[0], "a tensor's storage");
    PickledTensor tensor{std::string(storage.key), 0, {}};
    tensor.geometry.buffer = 0;
    tensor.geometry.dtype = storage.dtype ? *storage.dtype : known_dtype(dtype);
    tensor.geometry.offset = get<std::int64_t>(arguments[1], "a tensor's offset");
    tensor.geometry.sizes = integers_of(arguments[2], "a tensor's sizes");
    tensor.geometry.strides = integers_of(arguments[3], "a tensor's strides");
    const auto item = static_cast<std::int64_t>(trace::bytes_of(tensor.geometry.dtype));
    if (storage.count < 0 ||
        __builtin_mul_overflow(storage.count, storage.dtype ? item : 1, &tensor.bytes))
      damaged("a storage has no possible size");
    require_within(tensor);
    if (metadata < arguments.size()) apply(arguments[metadata], tensor.geometry);
    tensors_.push_back(std::move(tensor));
    stack_.push_back(Tensor{tensors_.size() - 1});
  }

  /// Bits of a view that is conjugate or negative: {"conj": True}.
  void apply(const Value& metadata, trace::Tensor& geometry) const {
    if (std::holds_alternative<std::monostate>(metadata)) return;
    for (const auto& [key, value] : dicts_[get<Dict>(metadata, "a tensor's metadata").index]) {
      const std::string name = key_of(key);
      if (name != "conj" && name != "neg") foreign("a tensor with metadata " + name);
      (name == "conj" ? geometry.conj : geometry.neg) = get<bool>(value, "a tensor's metadata");
    }
  }

  static trace::DType known_dtype(const std::optional<Global>& dtype) {
    if (!dtype || dtype->module != "torch") foreign("a tensor without dtype");
    try {
      return trace::dtype_of(dtype->name);
    } catch (const Error&) {
      foreign("a tensor of " + dtype->text());
    }
  }

  std::vector<std::int64_t> integers_of(const Value& value, const char* what) const {
    constexpr std::size_t kMostDimensions = 64;  // of any tensor of PyTorch
    std::vector<std::int64_t> integers;
    for (const Value& item : items_of(value, what)) {
      integers.push_back(get<std::int64_t>(item, what));
      if (integers.back() < 0) damaged(fmt::format("{} are negative", what));
    }
    if (integers.size() > kMostDimensions) damaged(fmt::format("{} are too many", what));
    return integers;
  }

  static void require_within(const PickledTensor& tensor) {
    const trace::Tensor& geometry = tensor.geometry;
    if (geometry.sizes.size() != geometry.strides.size() || geometry.offset < 0)
      damaged("a tensor has no possible geometry");
    if (geometry.byte_range().second > static_cast<std::uint64_t>(tensor.bytes))
      damaged("a tensor lies outside its storage");
  }

  /// Python sets the attributes of an object; of a state dict they are the versions of modules.
  void build() {
    pop();
    get<Dict>(top(), "an object with attributes");
  }

  void flatten(const Value& value, const std::string& name, int depth) {
    constexpr int kDeepest = 16;
    constexpr std::size_t kLongestName = 4096;
    if (depth > kDeepest) foreign("it is nested deeper than state dicts are");
    if (name.size() > kLongestName) foreign("it has a name of over 4,096 characters");
    name_bytes_ += name.size();
    if (name_bytes_ > 16 * bytes_.size() + (std::size_t{64} << 10))
      foreign("its names are longer than all it holds");
    // an entry that the pickle spells out takes more than a byte; only one that it shares does not
    if (++visited_ > bytes_.size()) foreign("it repeats its parts");
    if (const auto* dict = std::get_if<Dict>(&value)) {
      for (const auto& [key, item] : dicts_[dict->index]) {
        flatten(item, (name.empty() ? "" : name + ".") + key_of(key), depth + 1);
      }
    } else if (const auto* sequence = std::get_if<Sequence>(&value)) {
      if (depth == 0) foreign("it is not a dict");
      for (std::size_t i = 0; i < sequences_[sequence->index].size(); ++i) {
        flatten(sequences_[sequence->index][i], fmt::format("{}[{}]", name, i), depth + 1);
      }
    } else if (depth == 0) {
      foreign("it is not a dict");
    } else {
      add_leaf(value, name);
    }
  }

  static std::string key_of(const Value& key) {
    if (const auto* integer = std::get_if<std::int64_t>(&key)) return std::to_string(*integer);
    return std::string(get<std::string_view>(key, "a key"));
  }

  void add_leaf(const Value& value, const std::string& name) {
    const auto add = [&](auto leaf) {
      if (!names_.insert(name).second) damaged(name + " is there twice");
      entries_.push_back({name, std::move(leaf)});
    };
    if (const auto* tensor = std::get_if<Tensor>(&value)) return add(tensors_[tensor->index]);
    if (const auto* flag = std::get_if<bool>(&value)) return add(*flag);
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return add(*integer);
    if (const auto* real = std::get_if<double>(&value)) return add(*real);
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ended_ = false;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint32_t, Value> memo_;
  std::deque<std::vector<Value>> sequences_;
  std::deque<std::vector<std::pair<Value, Value>>> dicts_;
  std::vector<PickledTensor> tensors_;
  std::size_t visited_ = 0;
  std::size_t name_bytes_ = 0;
  std::set<std::string> names_;
  std::vector<PickledEntry> entries_;
};

}  // namespace

std::vector<PickledEntry> read_pickle(std::string_view bytes) { return PickleReader(bytes).read(); }

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
