#include "storage/ledger/ledger_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "steptape/error.h"
#include "storage/ledger/ledger_record.h"

namespace steptape::storage {

FoundLedger read_ledger(const std::filesystem::path& path, OnDamage on_damage, FileSystem& files) {
  FoundLedger found;
  const InputFile file(path, files);
  LedgerScan scan = scan_ledger(
      file, [&found](const trace::LedgerLine& line) { found.ledger.lines.push_back(line); });
  if (!scan.damage.empty() && on_damage == OnDamage::kRefuse) {
    throw Error(ErrorCode::kDataLoss, fmt::format("{}: {}", path.string(), scan.damage));
  }
  found.ledger.run = scan.run;
  found.ledger.steps = std::move(scan.steps);
  found.torn_bytes = scan.torn_bytes;
  found.is_closed = scan.is_closed;
  found.damage = std::move(scan.damage);
  return found;
}

std::filesystem::path ledger_beside(const std::filesystem::path& trace) {
  const std::string number = trace.extension().string();
  const bool is_set_aside = number.size() > 1 && trace.stem().has_extension() &&
                            number.find_first_not_of("0123456789", 1) == std::string::npos;
  if (!is_set_aside) return trace.string() + ".ledger";
  return (trace.parent_path() / trace.stem()).string() + ".ledger" + number;
}

bool is_ledger(const std::filesystem::path& path, FileSystem& files) {
  const InputFile file(path, files);
  const std::string start = file.read(0, std::min<std::uint64_t>(file.bytes(), kRecordBytes));
  return has_ledger_magic(bytes_of(start));
}

namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
static_assert(kPieceBytes % kRecordBytes == 0);

using Take = std::function<void(const trace::LedgerLine&)>;

/// Takes record after record until one is wrong; from there on it only looks for one that says that
/// what came before it was on the disk.
class Scanner {
 public:
  Scanner(const InputFile& file, const Take& take) : file_(file), take_(take) {}

  LedgerScan scan() {
    const std::uint64_t whole = file_.bytes() / kRecordBytes * kRecordBytes;
    read_header(whole);
    for (std::uint64_t offset = kRecordBytes; offset < whole && out_.damage.empty();) {
      const std::uint64_t length = std::min(kPieceBytes, whole - offset);
      const std::string piece = file_.read(offset, length);
      for (std::uint64_t at = 0; at < length && out_.damage.empty(); at += kRecordBytes) {
        see(bytes_of(piece).subspan(at, kRecordBytes), (offset + at) / kRecordBytes);
      }
      offset += length;
    }
    if (out_.damage.empty()) out_.torn_bytes = file_.bytes() - out_.bytes;
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(ErrorCode code, std::string_view what) const {
    throw Error(code, fmt::format("{} {}", file_.path().string(), what));
  }

  void read_header(std::uint64_t whole) {
    const std::string bytes = file_.read(0, std::min<std::uint64_t>(whole, kRecordBytes));
    if (bytes.empty())
      fail(ErrorCode::kDataLoss, "is not a ledger: it ends before its header does");
    const ByteView record = bytes_of(bytes);
    if (!has_ledger_magic(record)) fail(ErrorCode::kDataLoss, "is not a ledger");
    if (!is_sealed(record, 0)) fail(ErrorCode::kDataLoss, "is damaged: its header is wrong");
    const LedgerHeader header = decode_ledger_header(record);
    if (header.version > kLedgerVersion) {
      fail(ErrorCode::kUnsupported,
           fmt::format("is a ledger of version {}, and this Steptape reads up to {}: read it with "
                       "a newer one",
                       header.version, kLedgerVersion));
    }
    out_.run = header.run;
    out_.bytes = kRecordBytes;
  }

  void see(ByteView record, std::uint64_t number) {
    const bool is_right = is_sealed(record, number);
    if (is_right && first_wrong_ == 0) return accept(record, number);
    if (first_wrong_ == 0) first_wrong_ = number;
    if (is_right && has_synced_before(record)) {
      damage(first_wrong_, "its bytes are not those that were written");
    }
  }

  void damage(std::uint64_t number, const std::string& what) {
    out_.damage =
        fmt::format("record {} at offset {} is damaged: {}", number, number * kRecordBytes, what);
  }

  void accept(ByteView record, std::uint64_t number) {
    const RecordType type = type_of(record);
    if (is_in_name_ && type != RecordType::kName) return damage(number, "a name does not end");
    switch (type) {
      case RecordType::kName:
        accept_name(record, number);
        break;
      case RecordType::kLine:
        accept_line(record, number);
        break;
      case RecordType::kMark:
        break;
      default:
        return damage(number, fmt::format("no record has the type {}", static_cast<int>(type)));
    }
    if (!out_.damage.empty() || is_in_name_) return;
    out_.bytes = (number + 1) * kRecordBytes;
    out_.is_closed = type == RecordType::kMark;
  }

  void accept_name(ByteView record, std::uint64_t number) {
    const std::optional<NamePiece> piece = decode_name(record);
    if (!piece || piece->step != out_.steps.size() || out_.steps.size() == kMaxSteps) {
      return damage(number, fmt::format("it names no step that could come after {} others",
                                        out_.steps.size()));
    }
    name_ += piece->text;
    is_in_name_ = piece->goes_on;
    if (is_in_name_) return;
    if (!names_.insert(name_).second) return damage(number, "two steps have one name");
    out_.steps.push_back(std::exchange(name_, {}));
  }

  void accept_line(ByteView record, std::uint64_t number) {
    const std::optional<trace::LedgerLine> line = decode_line(record);
    if (!line) return damage(number, "its call, outcome or verdict cannot be");
    if (line->step >= out_.steps.size()) {
      return damage(number,
                    fmt::format("step {}, but there are {}", line->step, out_.steps.size()));
    }
    take_(*line);
  }

  const InputFile& file_;
  const Take& take_;
  LedgerScan out_;
  std::uint64_t first_wrong_ = 0;  ///< 0: none
  std::string name_;
  std::unordered_set<std::string> names_;
  bool is_in_name_ = false;
};

}  // namespace

LedgerScan scan_ledger(const InputFile& file, const Take& take) {
  return Scanner(file, take).scan();
}

}  // namespace steptape::storage
