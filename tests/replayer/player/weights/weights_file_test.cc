#include "replayer/player/weights/weights_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "live/tensors.h"
#include "replayer/player/weights/pickle.h"
#include "steptape/error.h"
#include "storage/files/wire.h"
#include "storage/trace/writer.h"
#include "tests/storage/memory_file_system.h"

namespace steptape::replayer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

/// A folder, and what one writes into it.
class WeightsFileTest : public ::testing::TestWithParam<const char*> {
 protected:
  WeightsFileTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("steptape_weights_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~WeightsFileTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::filesystem::path put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string bytes_in(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void expect_error(const std::filesystem::path& path, ErrorCode code,
                           const std::string& says) {
    try {
      read_weights(path);
      ADD_FAILURE() << "read: " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }

  std::filesystem::path folder_;
};

std::vector<NamedTensor> various() {
  return {
      {"model.fc.weight", at::randn({3, 4})},
      {"model.fc.bias", at::tensor({-0.0F, std::numeric_limits<float>::quiet_NaN(), 1e-40F})},
      {"model.transposed", at::randn({3, 4}).t()},
      {"model.part", at::randn({6}).slice(0, 1, 6, 2)},
      {"model.empty", at::empty({0, 4})},
      {"counter", at::full({}, std::int64_t{1} << 60, at::kLong)},
      {"wert für später \"x\"\n", at::ones({2}, at::kDouble)},
  };
}

TEST_P(WeightsFileTest, EveryBitComesBack) {
  const std::vector<NamedTensor> written = various();
  write_weights(written, path(GetParam()));
  const std::vector<NamedTensor> read = read_weights(path(GetParam()));
  ASSERT_EQ(read.size(), written.size());
  for (const NamedTensor& entry : written) {
    const auto found = std::ranges::find(read, entry.name, &NamedTensor::name);
    ASSERT_NE(found, read.end()) << entry.name;
    EXPECT_TRUE(same_bytes(found->tensor, entry.tensor)) << entry.name;
  }
}

TEST_P(WeightsFileTest, EveryDtypeComesBackOrIsNamed) {
  for (std::uint32_t number = 1; trace::is_dtype(number); ++number) {
    const auto dtype = static_cast<trace::DType>(number);
    const std::string name(trace::name_of(dtype));
    const at::Tensor tensor = at::arange(32, at::kByte).view(live::scalar_type_of(dtype)).clone();
    try {
      write_weights(std::vector<NamedTensor>{{"x", tensor}}, path(GetParam()));
      EXPECT_TRUE(same_bytes(read_weights(path(GetParam())).at(0).tensor, tensor)) << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << name << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(name));
      EXPECT_THAT(name, HasSubstr("complex"));
    }
  }
}

TEST_P(WeightsFileTest, AnOldFileGoesAndATraceStays) {
  write_weights(various(), path(GetParam()));
  write_weights(std::vector<NamedTensor>{{"x", at::ones({1})}}, path(GetParam()));
  EXPECT_EQ(read_weights(path(GetParam())).size(), 1U);

  std::filesystem::remove(path(GetParam()));
  storage::write({}, path(GetParam()));
  const std::string trace = bytes_in(path(GetParam()));
  EXPECT_THROW(write_weights(various(), path(GetParam())), Error);
  EXPECT_EQ(bytes_in(path(GetParam())), trace);
  EXPECT_THROW(write_weights(various(), folder_), Error);
  EXPECT_THROW(write_weights(various(), path("nowhere") / GetParam()), Error);
}

TEST_P(WeightsFileTest, WhatIsCutOrFlippedIsReadOrRefused) {
  write_weights(std::vector<NamedTensor>{{"a", at::ones({3})}, {"b", at::zeros({2, 2})}},
                path(GetParam()));
  const std::string whole = bytes_in(path(GetParam()));
  std::size_t refused = 0, read = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      read_weights(put("other", bytes));
      ++read;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kDataLoss || error.code() == ErrorCode::kUnsupported)
          << error.what();
      ++refused;
    }
  };
  for (std::size_t length = 0; length < whole.size(); ++length) attempt(whole.substr(0, length));
  EXPECT_EQ(refused, whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1 << i % 8);
    attempt(changed);
  }
  std::printf("%zu files refused, %zu read\n", refused, read);
}

TEST_P(WeightsFileTest, WhateverCallFailsTheOldFileOrTheNewOneIsThere) {
  const std::string file = std::string("/") + GetParam();
  const std::vector<NamedTensor> old = {{"x", at::zeros({2})}}, fresh = {{"x", at::ones({2})}};
  std::size_t failed = 0;
  for (std::size_t call = 0;; ++call) {
    storage::MemoryFileSystem files;
    write_weights(old, file, files);
    const std::size_t before = files.calls();
    files.fail(before + call, ENOSPC, storage::Lasting::kForever);
    bool is_done = false;
    try {
      write_weights(fresh, file, files);
      is_done = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
      ++failed;
    }
    EXPECT_EQ(files.open_files(), 0U);
    files.fail(0, 0, storage::Lasting::kOnce);
    const at::Tensor found = read_weights(file, files).at(0).tensor;
    EXPECT_TRUE(same_bytes(found, old[0].tensor) || same_bytes(found, fresh[0].tensor));
    if (is_done) break;
  }
  EXPECT_GT(failed, 5U);
}

INSTANTIATE_TEST_SUITE_P(Formats, WeightsFileTest,
                         ::testing::Values("weights.pt", "weights.safetensors"),
                         [](const auto& named) {
                           const std::string name = named.param;
                           return name.ends_with("pt") ? "StateDict" : "Safetensors";
                         });

using SafetensorsTest = WeightsFileTest;

std::string safetensors(const std::string& header, std::size_t bytes) {
  std::string file;
  storage::put(file, static_cast<std::uint64_t>(header.size()));
  return file + header + std::string(bytes, '\0');
}

TEST_F(SafetensorsTest, HostileHeadersAreRefused) {
  const auto expect = [this](const std::string& header, std::size_t bytes, const std::string& says,
                             ErrorCode code = ErrorCode::kDataLoss) {
    expect_error(put("x.safetensors", safetensors(header, bytes)), code, says);
  };
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return R"("x":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  EXPECT_EQ(
      read_weights(put("x.safetensors", safetensors("{" + entry("[2]", "[0,8]") + "}", 8))).size(),
      1U);
  expect_error(put("x.safetensors", "short"), ErrorCode::kDataLoss, "too short");
  expect_error(put("x.safetensors", std::string(9, '\xff')), ErrorCode::kDataLoss, "does not end");
  expect("[]", 0, "not an object");
  expect("{", 0, "");
  expect(std::string(100'000, '['), 0, "");
  expect("{" + entry("[2]", "[0,8]") + "," + entry("[2]", "[0,8]") + "}", 8, "twice");
  expect("{" + entry("[2]", "[4,12]") + "}", 12, "hole");
  expect("{" + entry("[2]", "[0,8]") + "}", 9, "length");
  expect("{" + entry("[2]", "[0,8]") + "}", 7, "length");
  expect("{" + entry("[3]", "[0,8]") + "}", 8, "as many");
  expect("{" + entry("[2]", "[8,0]") + "}", 8, "as many");
  expect("{" + entry("[-2]", "[0,8]") + "}", 8, "shape");
  expect("{" + entry("[4294967296,4294967296]", "[0,0]") + "}", 0, "as many");
  expect("{" + entry("[9223372036854775807,0]", "[0,0]") + "}", 0, "");
  expect("{" + entry("[1.5]", "[0,8]") + "}", 8, "shape");
  expect("{" + entry("[2]", "[0]") + "}", 8, "data_offsets");
  expect("{" + entry("2", "[0,8]") + "}", 8, "");
  expect(R"({"x":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})", 8, "F4",
         ErrorCode::kUnsupported);
  expect(R"({"x":7})", 0, "x");
}

/// Pickles in their opcodes.
std::vector<std::string> names_in(const std::string& pickle) {
  std::vector<std::string> names;
  for (const PickledEntry& entry : read_pickle(pickle)) names.push_back(entry.name);
  return names;
}

std::string key(const std::string& text) {
  std::string out = "X";
  storage::put(out, static_cast<std::uint32_t>(text.size()));
  return out + text;
}

void expect_pickle(const std::string& pickle, ErrorCode code, const std::string& says) {
  try {
    read_pickle(pickle);
    ADD_FAILURE() << "read: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(says));
  }
}

TEST(PickleTest, DictsInDictsGetDotsAndListsBrackets) {
  // {"state": {0: {"step": 3}}, "groups": [{"lr": True}], "name": None}
  std::string bytes = "\x80\x02}(";
  bytes += key("state") + "}K" + std::string(1, '\0') + "}" + key("step") + "K\x03ss";
  bytes += key("groups") + "](}" + key("lr") +
           "\x88"
           "se";
  bytes += key("name") + "N";
  bytes += "u.";
  EXPECT_THAT(names_in(bytes), ElementsAre("state.0.step", "groups[0].lr"));
}

TEST(PickleTest, NothingIsCalled) {
  expect_pickle(
      "\x80\x02"
      "cos\nsystem\n(" +
          key("ls") + "tR.",
      ErrorCode::kUnsupported, "it calls os.system");
  expect_pickle(
      "\x80\x02"
      "cbuiltins\neval\n)R.",
      ErrorCode::kUnsupported, "builtins.eval");
  EXPECT_THAT(names_in("\x80\x02"
                       "ccollections\nOrderedDict\n)R}" +
                       key("_metadata") + "Nsb."),
              IsEmpty());
}

TEST(PickleTest, WhatIsNoDictOrNoPickleIsRefused) {
  expect_pickle("", ErrorCode::kDataLoss, "too early");
  expect_pickle("PK", ErrorCode::kDataLoss, "does not begin");
  expect_pickle("\x80\x04}.", ErrorCode::kUnsupported, "protocol 4");
  expect_pickle("\x80\x02].", ErrorCode::kUnsupported, "not a dict");
  expect_pickle("\x80\x02K\x01.", ErrorCode::kUnsupported, "not a dict");
  expect_pickle("\x80\x02.", ErrorCode::kDataLoss, "not there");
  expect_pickle("\x80\x02u.", ErrorCode::kDataLoss, "mark");
  expect_pickle("\x80\x02(u.", ErrorCode::kDataLoss, "");
  expect_pickle("\x80\x02h\x07.", ErrorCode::kDataLoss, "remembered");
  expect_pickle("\x80\x02}(" + key("a") + "u.", ErrorCode::kDataLoss, "no value");
  expect_pickle("\x80\x02}(" + key("a") + "K\x01" + key("a") + "K\x02u.", ErrorCode::kDataLoss,
                "twice");
  expect_pickle("\x80\x02\xff.", ErrorCode::kUnsupported, "opcode 0xff");
}

TEST(PickleTest, NestingSharingAndCirclesAreBounded) {
  std::string deep = "\x80\x02";
  for (int i = 0; i < 200'000; ++i) deep += ")\x85";
  expect_pickle(deep + ".", ErrorCode::kUnsupported, "not a dict");

  // a dict that holds itself
  expect_pickle("\x80\x02}q\x01" + key("a") + "h\x01s.", ErrorCode::kUnsupported, "");

  // each list holds the one before it sixteen times: 16^12 leaves
  std::string bomb = "\x80\x02}" + key("a") +
                     "(]K\x01"
                     "aq" +
                     std::string(1, '\0');
  for (char i = 0; i < 12; ++i) {
    bomb += "](";
    for (int j = 0; j < 16; ++j) bomb += std::string("h") + i;
    bomb += "eq";
    bomb += static_cast<char>(i + 1);
  }
  expect_pickle(bomb + "ts.", ErrorCode::kUnsupported, "repeats its parts");
}

TEST(PickleTest, NamesAreBounded) {
  std::string many = "\x80\x02}" + key(std::string(4000, 'x')) + "}(";
  for (int i = 0; i < 20'000; ++i) many += key(std::to_string(i)) + "K\x01";
  expect_pickle(many + "us.", ErrorCode::kUnsupported, "names are longer");
}

PickledEntry entry_of(std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
                      std::int64_t offset, std::int64_t bytes) {
  PickledTensor tensor{"0", bytes, {}};
  tensor.geometry.buffer = 0;
  tensor.geometry.sizes = std::move(sizes);
  tensor.geometry.strides = std::move(strides);
  tensor.geometry.offset = offset;
  return {"x", tensor};
}

TEST(PickleTest, TensorsOutsideTheirStorageAreRefused) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max() / 2;
  const auto read = [](const PickledEntry& entry) {
    return read_pickle(write_pickle({&entry, 1}));
  };
  EXPECT_EQ(read(entry_of({2, 3}, {3, 1}, 1, 28)).size(), 1U);
  EXPECT_EQ(read(entry_of({0, 3}, {3, 1}, 0, 0)).size(), 1U);
  EXPECT_THROW(read(entry_of({2, 3}, {3, 1}, 2, 28)), Error);
  EXPECT_THROW(read(entry_of({2, 3}, {3, 1}, -1, 28)), Error);
  EXPECT_THROW(read(entry_of({2, -3}, {3, 1}, 0, 28)), Error);
  EXPECT_THROW(read(entry_of({2, 3}, {-3, 1}, 0, 28)), Error);
  EXPECT_THROW(read(entry_of({kHuge, kHuge}, {1, 1}, 0, 28)), Error);
  EXPECT_THROW(read(entry_of({2}, {kHuge}, 0, 28)), Error);
  EXPECT_THROW(read(entry_of({2}, {1, 1}, 0, 28)), Error);
  EXPECT_THROW(
      read(entry_of(std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1), 0, 28)),
      Error);
}

}  // namespace
}  // namespace steptape::replayer
