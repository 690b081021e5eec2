#include "diff/numerics/provenance.h"

#include <gmock/gmock.h>

#include "tests/trace/samples.h"

namespace steptape::diff {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Source> sources(const Provenance& provenance, trace::Index op, std::size_t reading) {
  const auto found = provenance.sources(provenance.readings(op)[reading]);
  return {found.begin(), found.end()};
}

constexpr Source kEntry;

TEST(ProvenanceTest, BytesComeFromEntryOrFromTheOpThatLeftThem) {
  const trace::Recording recording = test::train_recording();
  const Provenance provenance(recording);
  EXPECT_THAT(sources(provenance, 0, 0), ElementsAre(kEntry));
  EXPECT_THAT(sources(provenance, 1, 1), ElementsAre(Source{0, 0}));
  EXPECT_THAT(sources(provenance, 2, 1), ElementsAre(Source{1, 0}));
  EXPECT_THAT(sources(provenance, 3, 0), ElementsAre(Source{2, 1})) << "written, not returned";
  EXPECT_THAT(sources(provenance, 4, 1), ElementsAre(Source{3, 2})) << "an unannotated write";
}

TEST(ProvenanceTest, AReadingKnowsItsArgumentAndTheOpThatLeftTheTensor) {
  const trace::Recording recording = test::train_recording();
  const Provenance provenance(recording);
  const Reading* item = provenance.reading(3, 0, 0);
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(item->tensor, 5u);
  EXPECT_EQ(item->left, (Source{2, 1}));
  EXPECT_EQ(provenance.reading(3, 0, 1), nullptr) << "undefined";
  EXPECT_EQ(provenance.reading(3, 1, trace::kNone), nullptr) << "a scalar";
  EXPECT_EQ(provenance.reading(0, 0, trace::kNone)->left.op, trace::kNone);
}

/// One buffer of four elements, which an op makes and others write in part.
class ProvenanceOfPartsTest : public testing::Test {
 protected:
  ProvenanceOfPartsTest() {
    recording_.operators = {{"aten::ones", "", "aten::ones(SymInt[] size) -> Tensor"},
                            {"aten::neg_", "", "aten::neg_(Tensor(a!) self) -> Tensor(a!)"},
                            {"aten::sin", "", "aten::sin(Tensor self) -> Tensor"},
                            {"aten::zero_", "", "aten::zero_(Tensor(a!) self) -> Tensor(a!)"}};
    recording_.buffers.resize(2);
    recording_.buffers[0].bytes = recording_.buffers[1].bytes = 16;
    all_ = tensor(0, 0, 4);
    add(0, {}, all_);
  }

  trace::TensorId tensor(trace::BufferId buffer, std::int64_t offset, std::int64_t size,
                         std::int64_t stride = 1) {
    recording_.tensors.push_back(
        {buffer, trace::DType::kFloat32, {size}, {stride}, offset, false, false, false});
    return static_cast<trace::TensorId>(recording_.tensors.size() - 1);
  }
  void add(trace::Index op, std::vector<trace::TensorId> inputs, trace::TensorId output) {
    trace::Op& added = recording_.ops.emplace_back();
    added.op = op;
    for (const trace::TensorId input : inputs) added.inputs.push_back({trace::TensorRef{input}});
    added.outputs = {{trace::TensorRef{output}}};
  }
  void write(trace::TensorId id) { add(1, {id}, id); }
  /// What an op that reads the tensor gets now.
  std::vector<Source> read(trace::TensorId id) {
    add(2, {id}, tensor(1, 0, 4));
    const Provenance provenance(recording_);
    return sources(provenance, static_cast<trace::Index>(recording_.ops.size() - 1), 0);
  }

  trace::Recording recording_;
  trace::TensorId all_ = trace::kNoTensor;
};

TEST_F(ProvenanceOfPartsTest, WhatIsKeptDoesNotGrowWithWritesTimesReads) {
  constexpr std::int64_t kElements = 3000;
  recording_.buffers[0].bytes = kElements * 4;
  recording_.tensors[all_].sizes = {kElements};
  for (std::int64_t i = 0; i < kElements; ++i) {
    write(tensor(0, i, 1));
    add(2, {all_}, tensor(1, 0, 4));
  }
  const Provenance provenance(recording_);
  std::size_t kept = 0;
  for (trace::Index op = 0; op < recording_.ops.size(); ++op) {
    for (const Reading& reading : provenance.readings(op)) kept += reading.sources;
  }
  EXPECT_LT(kept, Provenance::kMany + kElements * 10);
  const Reading& first = provenance.readings(2)[0];
  EXPECT_FALSE(first.has_more_sources);
  EXPECT_EQ(first.sources, 2u);
  const Reading& last = provenance.readings(2 * kElements)[0];
  EXPECT_TRUE(last.has_more_sources);
  EXPECT_EQ(last.sources, 8u);
}

TEST_F(ProvenanceOfPartsTest, AWriteHoldsForItsBytesAlone) {
  write(tensor(0, 1, 2));
  EXPECT_THAT(read(all_), ElementsAre(Source{0, 0}, Source{1, 1}, Source{0, 0}));
  EXPECT_THAT(read(tensor(0, 0, 1)), ElementsAre(Source{0, 0}));
  EXPECT_THAT(read(tensor(0, 2, 1)), ElementsAre(Source{1, 1}));
  EXPECT_THAT(read(tensor(0, 0, 0)), IsEmpty());
}

TEST_F(ProvenanceOfPartsTest, ALaterWriteCoversEarlierOnes) {
  write(tensor(0, 1, 1));
  write(tensor(0, 2, 1));
  write(tensor(0, 0, 3));
  EXPECT_THAT(read(all_), ElementsAre(Source{3, 1}, Source{0, 0}));
  write(all_);
  EXPECT_THAT(read(all_), ElementsAre(Source{5, 1}));
}

TEST_F(ProvenanceOfPartsTest, AWriteThroughStridesLeavesWhatLiesBetween) {
  write(tensor(0, 0, 2, 2));
  EXPECT_THAT(read(all_), ElementsAre(Source{0, 0}, Source{1, 1}, Source{0, 0}));
  EXPECT_THAT(read(tensor(0, 1, 1)), ElementsAre(Source{0, 0}, Source{1, 1}));
  write(tensor(0, 0, 3));
  EXPECT_THAT(read(tensor(0, 0, 3)), ElementsAre(Source{4, 1}));
}

TEST_F(ProvenanceOfPartsTest, AnOpThatFillsReadsNothing) {
  add(3, {all_}, all_);
  EXPECT_THAT(Provenance(recording_).readings(1), IsEmpty());
  EXPECT_THAT(read(all_), ElementsAre(Source{1, 1}));
}

}  // namespace
}  // namespace steptape::diff
