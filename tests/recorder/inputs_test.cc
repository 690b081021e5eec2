#include <ATen/EmptyTensor.h>

#include <cstring>

#include "recording_test.h"

namespace steptape::recorder {
namespace {

class InputsTest : public RecorderTest {};

trace::TensorId tensor_of(const trace::Input& input) {
  return std::get<trace::TensorRef>(input.value.data).id;
}

TEST_P(InputsTest, SlicesOfOneStorageShareABufferFromTheFirstByteReached) {
  const auto base = at::randn({10, 16});
  const auto a = base.narrow(0, 3, 2);
  const auto b = base.narrow(0, 6, 2);
  const auto recording = recording_of([&] { a.add(b); }, {a, b});
  EXPECT_EQ(text_of(recording.refusals), "");
  const auto& first = recording.tensors.at(tensor_of(recording.inputs.at(0)));
  const auto& second = recording.tensors.at(tensor_of(recording.inputs.at(1)));
  EXPECT_EQ(first.buffer, second.buffer);
  EXPECT_EQ(first.offset, 0);
  EXPECT_EQ(second.offset, 3 * 16);
  EXPECT_EQ(recording.buffers.at(first.buffer).bytes, 5u * 16 * 4);
}

TEST_P(InputsTest, RemainderIsThatOfTheFirstByteReached) {
  const auto base = at::randn({100});
  const auto slice = base.narrow(0, 3, 20);
  const auto recording = recording_of([&] { slice.relu(); }, {slice});
  const auto address = reinterpret_cast<std::uintptr_t>(slice.const_data_ptr());
  EXPECT_EQ(recording.buffers.at(0).address_mod_64, address % 64);
}

TEST_P(InputsTest, TheSameStepOnAnotherSliceAgrees) {
  const auto base = at::randn({10, 16});
  const auto step = [&](std::int64_t row) {
    const auto slice = base.narrow(0, row, 2);
    return recording_of([&] { slice.relu(); }, {slice});
  };
  EXPECT_FALSE(trace::first_difference(step(1), step(7)));
}

TEST_P(InputsTest, ATrackedTensorIsNoInputBuffer) {
  Mlp model;
  objects.track("model", *model);
  const at::Tensor weight = model->fc1->weight;
  const auto recording = recording_of([&] { weight.relu(); }, {weight});
  const auto buffer = recording.tensors.at(tensor_of(recording.inputs.at(0))).buffer;
  EXPECT_EQ(recording.buffers.at(buffer).path, "model.fc1.weight");
  EXPECT_EQ(recording.buffers.at(buffer).role, trace::Role::kParameter);
  EXPECT_TRUE(recording.inputs[0].requires_grad);
}

TEST_P(InputsTest, UndefinedAndEmptyTensorsAreFine) {
  const auto none = at::Tensor();
  const auto empty = at::zeros({0, 3});
  const auto recording = recording_of([&] { empty.relu(); }, {none, empty});
  EXPECT_EQ(text_of(recording.refusals), "");
  EXPECT_EQ(tensor_of(recording.inputs.at(0)), trace::kNoTensor);
  EXPECT_EQ(recording.buffers.at(0).bytes, 0u);
  EXPECT_NO_THROW(trace::validate(recording));
}

TEST_P(InputsTest, IntegralInputsHaveARange) {
  const auto labels = at::arange(2, 9).reshape({7}).slice(0, 0, 7, 2);
  const auto recording = recording_of([&] { labels.neg(); }, {labels, at::randn({3})});
  ASSERT_TRUE(recording.inputs.at(0).range);
  EXPECT_EQ(*recording.inputs[0].range, (std::pair<std::int64_t, std::int64_t>(2, 8)));
  EXPECT_FALSE(recording.inputs.at(1).range);
}

TEST_P(InputsTest, FactsAreKeptByValue) {
  const auto recorded = recorder::record([] { return std::vector<at::Tensor>{}; },
                                         {{{}, {std::int64_t{5}}, false}}, objects, chosen());
  EXPECT_EQ(recorded.recording.inputs.at(0).value, trace::Value{std::int64_t{5}});
  EXPECT_EQ(recorded.recording.inputs[0].path, "inputs[0]");
}

TEST_P(InputsTest, OptionalListsKeepTheirGaps) {
  const auto x = at::randn({4, 6});
  const auto columns = at::tensor({0L, 2L});
  const auto recording = recording_of(
      [&] {
        x.index({at::indexing::Slice(), columns});
      },
      {x, columns});
  const auto index = find_op(recording, "aten::index.Tensor");
  ASSERT_GE(index, 0);
  const auto& list = std::get<trace::List>(recording.ops.at(index).inputs.at(1).data);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_NE(std::get<trace::TensorRef>(list[1].data).id, trace::kNoTensor);
  EXPECT_NO_THROW(trace::validate(recording));
}

TEST_P(InputsTest, InPlaceViewsChangeGeometryAndNoBytes) {
  const auto x = at::randn({4, 6});
  const auto recording = recording_of(
      [&] {
        auto y = x.neg();
        y.t_();
        y.relu();
      },
      {x});
  EXPECT_EQ(text_of(recording.refusals), "");
  const auto& output = recording.ops.at(1).outputs.at(0);
  const auto& turned = recording.tensors.at(std::get<trace::TensorRef>(output.data).id);
  EXPECT_EQ(turned.sizes, (std::vector<std::int64_t>{6, 4}));
}

TEST_P(InputsTest, OutsideTensorsAreListedWithTheirBytes) {
  const auto x = at::randn({3});
  const auto mask = at::tensor({1.0f, 0.0f, 2.0f});
  const auto recorded = record(
      [&] {
        x.mul(mask);
        return std::vector<at::Tensor>{};
      },
      {x});
  ASSERT_EQ(recorded.outside.size(), 1u);
  EXPECT_EQ(recorded.outside[0].path, "outside[0]");
  const auto* buffer = find_buffer(recorded.recording, "outside[0]");
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(buffer->role, trace::Role::kConstant);
  ASSERT_NE(buffer->content, nullptr);
  EXPECT_EQ(buffer->content->size(), 12u);
  EXPECT_TRUE(buffer->digest);
}

TEST_P(InputsTest, HostMadeTensorsAreKeptThoughTheyAreDead) {
  const auto x = at::randn({3});
  const auto recorded = record(
      [&] {
        at::Tensor number = at::detail::empty_cpu({}, at::kDouble, {}, {}, {}, {});
        *number.data_ptr<double>() = 2.5;
        number.unsafeGetTensorImpl()->set_wrapped_number(true);
        x.mul(number);
        return std::vector<at::Tensor>{};
      },
      {x});
  const auto& recording = recorded.recording;
  EXPECT_EQ(text_of(recording.refusals), "");
  EXPECT_TRUE(recorded.outside.empty());
  const auto& number = std::get<trace::TensorRef>(recording.ops.at(0).inputs.at(1).data);
  const auto& tensor = recording.tensors.at(number.id);
  EXPECT_TRUE(tensor.wrapped_number);
  const auto& buffer = recording.buffers.at(tensor.buffer);
  EXPECT_EQ(buffer.role, trace::Role::kConstant);
  EXPECT_EQ(buffer.path, "");
  double value = 0;
  ASSERT_EQ(buffer.content->size(), sizeof value);
  std::memcpy(&value, buffer.content->data(), sizeof value);
  EXPECT_EQ(value, 2.5);
}

STEPTAPE_WITH_BOTH_INTERCEPTORS(InputsTest);

}  // namespace
}  // namespace steptape::recorder
