#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>

#include "storage/files/wire.h"
#include "storage/trace/frame.h"
#include "tests/storage/ledger/ledger_lines.h"
#include "tests/storage/message.h"
#include "tests/storage/sample.h"
#include "tests/storage/trace_file.h"
#include "tests/trace/made_up.h"

/// write_seeds FOLDER: inputs to start each fuzz target from, in a folder of the target's name.
/// Made anew each time, so that they are of today's format.
namespace steptape::fuzz {
namespace {

class Seeds {
 public:
  Seeds(const std::filesystem::path& folder, const std::string& target) : folder_(folder / target) {
    std::filesystem::create_directories(folder_);
  }
  void add(const std::string& name, const std::string& bytes) const {
    std::ofstream file(folder_ / name, std::ios::binary);
    if (!file.write(bytes.data(), std::ssize(bytes))) throw std::runtime_error("cannot write");
  }

 private:
  std::filesystem::path folder_;
};

std::string file_of(const trace::Trace& trace) { return storage::sample("", trace).bytes; }

trace::Trace trace_of(const trace::Recording& recording) {
  trace::Trace trace;
  trace.steps.push_back({"train", "", {recording}});
  return trace;
}

/// Saved state of `bytes` bytes, packed or not, in pieces that may lie.
std::string file_of_pieces(std::uint64_t bytes, const std::vector<std::string>& pieces) {
  using storage::BlockType;
  storage::Forge forge;
  forge.message(BlockType::kHead, "");
  const auto reference = storage::Message().number(2, bytes);
  forge.message(BlockType::kSavedState,
                storage::Message().bytes(1, "w").message(3, reference).text());
  for (const std::string& piece : pieces) forge.message(BlockType::kBytes, piece);
  return forge.finish();
}

void write_traces(const Seeds& seeds) {
  using storage::Compression;
  seeds.add("empty", file_of({}));
  seeds.add("train", file_of(test::train_trace()));
  seeds.add("numbers", file_of(test::numbers_trace()));
  seeds.add("made_up", file_of(trace_of(test::make_up({.seed = 1, .modules = 2}))));
  seeds.add("cut", file_of(test::train_trace()).substr(0, 1500));
  const std::vector<std::byte> zeros(5000);
  const std::span<const std::byte> all(zeros);
  seeds.add("packed", file_of_pieces(5000, {storage::encode_chunk(0, 0, all, Compression::kZstd)}));
  seeds.add("pieces",
            file_of_pieces(64, {storage::encode_chunk(0, 0, all.first(32), Compression::kNone),
                                storage::encode_chunk(0, 32, all.first(32), Compression::kZstd)}));
  seeds.add("missing", file_of_pieces(std::uint64_t{1} << 31, {}));
  storage::Forge unknown;
  unknown.message(storage::BlockType::kHead, "").block(77, 0, "").block(78, 1, "");
  seeds.add("unknown", unknown.finish());
}

void write_ledgers(const Seeds& seeds) {
  trace::Ledger ledger;
  const std::string bytes = storage::sample_ledger(ledger);
  seeds.add("two_steps", bytes);
  seeds.add("torn", bytes.substr(0, 400));
  seeds.add("header", bytes.substr(0, 64));
  std::string damaged = bytes;
  damaged[200] ^= 1;
  seeds.add("damaged", damaged);
}

void write_texts(const Seeds& seeds) {
  seeds.add("train", test::golden_text("train.txt"));
  seeds.add("numbers", test::golden_text("numbers.txt"));
  seeds.add("empty", "steptape trace 1\n");
  seeds.add("made_up", trace::print(trace_of(test::make_up({.seed = 2, .modules = 1})),
                                    trace::Contents::kBytes));
}

/// Of operators that LibTorch has.
void write_recordings(const Seeds& seeds) {
  trace::Recording train = test::train_recording();
  seeds.add("refused", trace::print(train, trace::Contents::kBytes));
  train.refusals.clear();
  seeds.add("train", trace::print(train, trace::Contents::kBytes));
  seeds.add("numbers",
            trace::print(test::numbers_trace().steps[0].recordings[0], trace::Contents::kBytes));
}

/// Of safetensors: the corpus has what PyTorch writes.
void write_weights(const Seeds& seeds) {
  const std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string file;
  storage::put(file, static_cast<std::uint64_t>(header.size()));
  seeds.add("one", file + header + std::string(8, '\0'));
}

void write_choices(const Seeds& seeds) {
  for (unsigned seed = 0; seed < 32; ++seed) {
    std::mt19937 random(seed);
    std::string bytes(8 + 2 * seed, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    seeds.add(std::to_string(seed), bytes);
  }
}

}  // namespace
}  // namespace steptape::fuzz

int main(int argc, char** argv) try {
  using namespace steptape::fuzz;
  if (argc != 2) throw std::runtime_error("usage: write_seeds FOLDER");
  write_traces(Seeds(argv[1], "trace_reader"));
  write_ledgers(Seeds(argv[1], "ledger_reader"));
  write_texts(Seeds(argv[1], "trace_text"));
  write_choices(Seeds(argv[1], "trace_diff"));
  write_recordings(Seeds(argv[1], "planner"));
  write_weights(Seeds(argv[1], "weights"));
  return 0;
} catch (const std::exception& error) {
  std::cerr << "write_seeds: " << error.what() << std::endl;
  return 2;
}
