#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <thread>

#include "storage/files/atomic_file.h"
#include "tests/storage/trace_file.h"

namespace steptape::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// While it lives, files cannot grow beyond `bytes`: what a full disk does, without one.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes, void (*on_excess)(int) = SIG_IGN)
      : old_handler_(std::signal(SIGXFSZ, on_excess)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

class AtomicWriteTest : public TraceFileTest {
 protected:
  const trace::Trace small_ = test::train_trace();
  const trace::Trace large_ = trace_of_state(noise(3'000'000));

  Error write_refusal(const trace::Trace& trace) const {
    try {
      write(trace, path_);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorCode::kInternal, "it was written");
  }
};

TEST_F(AtomicWriteTest, NothingButTheTraceIsLeft) {
  write(small_, path_);
  EXPECT_THAT(names_in_folder(), ElementsAre("run.tape"));
}

TEST_F(AtomicWriteTest, ATraceReplacesATrace) {
  write(small_, path_);
  write(large_, path_);
  EXPECT_EQ(read(path_), large_);
}

TEST_F(AtomicWriteTest, ADamagedTraceIsReplacedToo) {
  put_file(written(small_).substr(0, 60));
  write(large_, path_);
  EXPECT_EQ(read(path_), large_);
}

TEST_F(AtomicWriteTest, AForeignFileIsNeverReplaced) {
  for (const std::string& foreign : {std::string("import torch\n"), std::string()}) {
    put_file(foreign);
    const Error error = write_refusal(small_);
    EXPECT_EQ(error.code(), ErrorCode::kFailedPrecondition);
    EXPECT_THAT(error.what(), HasSubstr("exists and is not a trace"));
    EXPECT_EQ(bytes_of_file(path_), foreign);
    EXPECT_THAT(names_in_folder(), ElementsAre("run.tape"));
  }
}

TEST_F(AtomicWriteTest, AForeignFileThatAppearsWhileWritingIsNotReplaced) {
  AtomicFile file(path_);
  put_file("a guest");
  EXPECT_THROW(file.commit(), Error);
  EXPECT_EQ(bytes_of_file(path_), "a guest");
}

TEST_F(AtomicWriteTest, AFolderOrDeviceIsNeverReplaced) {
  std::filesystem::create_directory(path_);
  EXPECT_EQ(write_refusal(small_).code(), ErrorCode::kFailedPrecondition);
  path_ = "/dev/null";
  EXPECT_EQ(write_refusal(small_).code(), ErrorCode::kFailedPrecondition);
}

TEST_F(AtomicWriteTest, AFullDiskLeavesTheOldFileAndNoTemporary) {
  write(small_, path_);
  {
    const FileSizeLimit limit(1'000'000);
    const Error error = write_refusal(large_);
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr(path_.string()));
    EXPECT_THAT(error.what(), HasSubstr("File too large"));
  }
  EXPECT_EQ(read(path_), small_);
  EXPECT_THAT(names_in_folder(), ElementsAre("run.tape"));
}

TEST_F(AtomicWriteTest, AFullDiskAtAnyPointLeavesNothing) {
  const std::size_t bytes = written(small_).size();
  std::filesystem::remove(path_);
  for (std::size_t room = 0; room < bytes; room += 13) {
    const FileSizeLimit limit(room);
    ASSERT_EQ(write_refusal(small_).code(), ErrorCode::kIo) << room;
    ASSERT_THAT(names_in_folder(), IsEmpty()) << room;
  }
}

/// A process dies of the signal SIGXFSZ in the middle of writing, with no chance to clean up. The
/// child starts the test anew and finds the parent's folder in the environment.
TEST_F(AtomicWriteTest, AKilledWriterLeavesTheOldFile) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  write(small_, path_);
  ::setenv("STEPTAPE_TEST_PATH", path_.c_str(), /*overwrite=*/0);
  EXPECT_EXIT(
      {
        std::filesystem::remove_all(folder_);  // the child's own
        const FileSizeLimit limit(1'000'000, SIG_DFL);
        write(large_, std::getenv("STEPTAPE_TEST_PATH"));
      },
      testing::KilledBySignal(SIGXFSZ), "");
  ::unsetenv("STEPTAPE_TEST_PATH");
  EXPECT_EQ(read(path_), small_);
  EXPECT_THAT(names_in_folder(), ElementsAre("run.tape", HasSubstr("run.tape.tmp.")));
}

TEST_F(AtomicWriteTest, AMissingFolderIsAnIoError) {
  path_ = folder_ / "missing" / "run.tape";
  EXPECT_EQ(write_refusal(small_).code(), ErrorCode::kIo);
  EXPECT_THAT(write_refusal(small_).what(), HasSubstr("No such file or directory"));
}

TEST_F(AtomicWriteTest, ALinkStaysALink) {
  const auto link = folder_ / "latest.tape";
  std::filesystem::create_symlink("run.tape", link);
  write(small_, link);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read(path_), small_);
}

TEST_F(AtomicWriteTest, PermissionsOfTheOldFileAreKept) {
  write(small_, path_);
  ::chmod(path_.c_str(), 0600);
  write(small_, path_);
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0600));
}

TEST_F(AtomicWriteTest, TheTemporaryFileHasNoMorePermissionsThanTheOldOne) {
  write(small_, path_);
  ::chmod(path_.c_str(), 0600);
  const AtomicFile file(path_);
  const auto temporary = folder_ / names_in_folder().back();
  EXPECT_EQ(std::filesystem::status(temporary).permissions(), std::filesystem::perms(0600));
}

TEST_F(AtomicWriteTest, WritersOfOnePathDoNotMixTheirBytes) {
  std::vector<std::jthread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([this, i] {
      for (int k = 0; k < 5; ++k) write(i % 2 == 0 ? small_ : large_, path_);
    });
  }
  writers.clear();
  const trace::Trace last = read(path_);
  EXPECT_TRUE(last == small_ || last == large_);
  EXPECT_THAT(names_in_folder(), ElementsAre("run.tape"));
}

TEST_F(AtomicWriteTest, AReaderBesideAWriterSeesOneTraceOrTheOther) {
  write(small_, path_);
  const std::jthread writer([this](const std::stop_token& stop) {
    for (int k = 0; !stop.stop_requested(); ++k) write(k % 2 == 0 ? large_ : small_, path_);
  });
  for (int i = 0; i < 50; ++i) {
    Report report;
    const std::optional<trace::Trace> found = recover(path_, report);
    ASSERT_TRUE(report.whole());
    ASSERT_TRUE(found == small_ || found == large_);
  }
}

TEST_F(AtomicWriteTest, ANameTakenByADeadProcessIsPassedOver) {
  for (int n = 0; n < 400; ++n) {
    std::ofstream(path_.string() + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(n));
  }
  write(small_, path_);
  EXPECT_EQ(read(path_), small_);
}

}  // namespace
}  // namespace steptape::storage
