#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TracerMode.h>
#include <torch/library.h>

#include <cstring>

#include "recording_test.h"

namespace steptape::recorder {
namespace {

/// Writes what the schema of its op says it reads.
at::Tensor& sneaky(const at::Tensor& self, at::Tensor& other) {
  other.data_ptr<float>()[0] += self.const_data_ptr<float>()[0];
  return other;
}

TORCH_LIBRARY(steptape_test, m) {
  m.def("sneaky(Tensor self, Tensor other) -> Tensor");
  m.def("twice(Tensor self) -> Tensor");
}

TORCH_LIBRARY_IMPL(steptape_test, CPU, m) {
  m.impl("sneaky", [](const at::Tensor& self, const at::Tensor& other) {
    at::Tensor written = other;
    sneaky(self, written);
    return at::zeros({1});
  });
  m.impl("twice", [](const at::Tensor& self) { return self + self; });
}

at::Tensor call(const char* name, const std::vector<at::Tensor>& tensors) {
  torch::jit::Stack stack(tensors.begin(), tensors.end());
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  return stack.back().toTensor();
}

class RefusalTest : public RecorderTest {
 protected:
  /// Records `step` and gives its refusal of this code.
  Refusal refusal_of(RefusalCode code, const std::function<void()>& step,
                     const std::vector<at::Tensor>& inputs = {}) {
    const auto recording = recording_of(step, inputs);
    const Refusal* found = find(recording, code);
    EXPECT_NE(found, nullptr) << "expected " << name_of(code) << ", found:\n"
                              << text_of(recording.refusals);
    return found == nullptr ? Refusal{} : *found;
  }

  at::Tensor x = at::rand({4, 6}) + 1;
};

TEST_P(RefusalTest, HostReadsAreListedWithWhatTheyGave) {
  const auto recording = recording_of(
      [&] {
        x.sum().item();
        at::equal(x, x);
      },
      {x});
  EXPECT_EQ(text_of(recording.refusals), "");
  ASSERT_EQ(recording.reads.size(), 2U);
  EXPECT_EQ(recording.operator_of(recording.ops[recording.reads[0].op]).name,
            "aten::_local_scalar_dense");
  EXPECT_EQ(recording.ops[recording.reads[1].op].outputs[0], (trace::Value{true}));
  EXPECT_EQ(recording.reads[1].use, trace::ReadUse::kChecked);
}

TEST_P(RefusalTest, HostReadOfWhatIsNoRealNumber) {
  const auto refusal =
      refusal_of(RefusalCode::kHostRead, [&] { at::complex(x, x).sum().item(); }, {x});
  EXPECT_EQ(refusal.op, "aten::_local_scalar_dense");
}

TEST_P(RefusalTest, DataDependentShapesAreRecorded) {
  const auto recording = recording_of([&] { at::nonzero(x), x.index({x > 0}); }, {x});
  EXPECT_EQ(text_of(recording.refusals), "");
}

TEST_P(RefusalTest, UntrackedWriteNamesWhatIsTracked) {
  Mlp model;
  objects.track("model", *model);
  auto counter = at::zeros({64, 32});
  const auto refusal = refusal_of(RefusalCode::kUntrackedWrite, [&] { counter.add_(1); });
  EXPECT_EQ(refusal.message,
            "tracked: model (module); written: 64×32 float32, first by `aten::add_` op 0");
}

TEST_P(RefusalTest, UnwrittenReadOfEmptyMemory) {
  const auto refusal = refusal_of(RefusalCode::kUnwrittenRead,
                                  [&] {
                                    auto memory = at::empty({4, 6});
                                    std::memset(memory.data_ptr(), 0, memory.nbytes());
                                    x.add(memory);
                                  },
                                  {x});
  EXPECT_EQ(refusal.op, "aten::add");
  EXPECT_EQ(refusal.op_index, 1);
}

TEST_P(RefusalTest, UnwrittenReadOfTheRestOfARow) {
  refusal_of(RefusalCode::kUnwrittenRead,
             [&] {
               auto memory = at::empty({4, 6});
               memory.narrow(1, 0, 5).copy_(x.narrow(1, 0, 5));
               memory.relu();
             },
             {x});
}

TEST_P(RefusalTest, MemoryWrittenInPartsIsWritten) {
  const auto recording = recording_of(
      [&] {
        auto memory = at::empty({4, 6});
        memory.narrow(1, 0, 2).copy_(x.narrow(1, 0, 2));
        memory.narrow(1, 2, 4).fill_(3);
        memory.relu();
      },
      {x});
  EXPECT_EQ(text_of(recording.refusals), "");
}

TEST_P(RefusalTest, WrittenOutsideBetweenTwoOps) {
  const auto refusal = refusal_of(RefusalCode::kWrittenOutside,
                                  [&] {
                                    auto y = x.relu();
                                    y.data_ptr<float>()[3] = 41;
                                    y.neg();
                                  },
                                  {x});
  EXPECT_EQ(refusal.op, "aten::neg");
}

TEST_P(RefusalTest, WrittenOutsideIntoAParameter) {
  Mlp model;
  objects.track("model", *model);
  const auto refusal = refusal_of(RefusalCode::kWrittenOutside, [&] {
    model->forward(at::ones({1, 4}));
    model->fc1->weight.data_ptr<float>()[0] = 41;
    model->forward(at::ones({1, 4}));
  });
  EXPECT_NE(refusal.message.find("model.fc1.weight"), std::string::npos);
}

TEST_P(RefusalTest, WrittenOutsideBehindTheLastOp) {
  Mlp model;
  objects.track("model", *model);
  refusal_of(RefusalCode::kWrittenOutside, [&] {
    model->forward(at::ones({1, 4}));
    model->fc2->bias.data_ptr<float>()[0] = 41;
  });
}

TEST_P(RefusalTest, UnannotatedWriteIsSeen) {
  auto target = at::zeros({4, 6});
  objects.track("target", target);
  const auto recording = recording_of([&] { call("steptape_test::sneaky", {x, target}); }, {x});
  ASSERT_NE(find(recording, RefusalCode::kUnannotatedWrite), nullptr);
  ASSERT_EQ(recording.ops.at(0).unannotated_writes.size(), 1u);
  EXPECT_EQ(recording.ops[0].unannotated_writes[0], recording.tracked.at(0).tensor);
}

TEST_P(RefusalTest, OverlappingStorages) {
  auto base = at::zeros({8});
  auto other = at::from_blob(base.data_ptr<float>() + 4, {4}, at::kFloat);
  refusal_of(RefusalCode::kOverlappingMemory,
             [&] {
               base.relu();
               other.relu_();
             },
             {base, other});
  refusal_of(RefusalCode::kOverlappingMemory, [&] {
    base.relu();
    other.relu_();
  });
  EXPECT_TRUE(recording_of([&] { (base.relu().narrow(0, 4, 4) + other).relu(); }).refusals.empty());
}

TEST_P(RefusalTest, AWriteToOneOfManyOverlappingStorages) {
  auto base = at::zeros({12});
  const auto over = [&base](std::int64_t first, std::int64_t count) {
    return at::from_blob(base.data_ptr<float>() + first, {count}, at::kFloat);
  };
  const std::vector<at::Tensor> parts{over(0, 4), over(4, 4), over(0, 10), over(9, 3)};
  for (const at::Tensor& written : parts) {
    refusal_of(RefusalCode::kOverlappingMemory, [&] {
      for (const at::Tensor& part : parts) part.relu();
      written.relu_();
    });
    refusal_of(
        RefusalCode::kOverlappingMemory, [&] { written.relu_(); }, parts);
  }
}

TEST_P(RefusalTest, OverlappingArgumentsThatAreOnlyReadAreNoReason) {
  auto base = at::zeros({12});
  const auto over = [&base](std::int64_t first) {
    return at::from_blob(base.data_ptr<float>() + first, {6}, at::kFloat);
  };
  const auto a = over(4), b = over(0), c = over(6);
  const auto read = [&] { (a + b + c).relu(); };
  EXPECT_TRUE(recording_of(read, {a, b, c}).refusals.empty());
  refusal_of(RefusalCode::kOverlappingMemory, [&] { a.relu_(); }, {a, b, c});
  refusal_of(RefusalCode::kOverlappingMemory, [&] { b.relu_(); }, {a, b, c});
  refusal_of(RefusalCode::kOverlappingMemory, [&] { c.relu_(); }, {a, b, c});
  const auto tracked = at::from_blob(base.data_ptr<float>() + 11, {1}, at::kFloat);
  objects.track("last", tracked);
  EXPECT_TRUE(recording_of(read, {a, b, c}).refusals.empty());
  refusal_of(RefusalCode::kOverlappingMemory, [&] { tracked.relu_(); }, {a, b, c});
}

TEST_P(RefusalTest, ForeignMemoryWithinWhatTheStepMade) {
  const auto over = [](const at::Tensor& made, std::int64_t first) {
    return at::from_blob(made.data_ptr<float>() + first, {4}, at::kFloat);
  };
  refusal_of(RefusalCode::kOverlappingMemory,
             [&] {
               std::vector<at::Tensor> made;
               for (int i = 0; i < 20; ++i) made.push_back(x.repeat({2, 2}));
               made.erase(made.begin() + 3, made.begin() + 9);
               over(made[7], 2).relu();
             },
             {x});
  refusal_of(RefusalCode::kOverlappingMemory,
             [&] {
               at::Tensor made = x.neg();
               made.resize_({64, 64}).zero_();  // lies elsewhere now
               over(made, 4000).relu();
             },
             {x});
}

TEST_P(RefusalTest, MemoryAroundAnInput) {
  auto base = at::zeros({8});
  const auto input = base.narrow(0, 2, 3);
  refusal_of(RefusalCode::kOverlappingMemory, [&] { base.relu(); }, {input});
}

TEST_P(RefusalTest, EscapedBufferNamesItsMaker) {
  at::Tensor kept;
  const auto refusal = refusal_of(RefusalCode::kEscapedBuffer, [&] { kept = x.neg().relu(); }, {x});
  EXPECT_EQ(refusal.op, "aten::relu");
  EXPECT_EQ(refusal.op_index, 1);
}

TEST_P(RefusalTest, ReboundParameter) {
  Mlp model;
  objects.track("model", *model);
  const auto refusal = refusal_of(RefusalCode::kReboundTensor, [&] {
    model->fc1->weight.set_data(model->fc2->weight.detach());
  });
  EXPECT_NE(refusal.message.find("`model.fc1.weight`"), std::string::npos);
}

TEST_P(RefusalTest, ParameterOfAnotherShape) {
  Mlp model;
  objects.track("model", *model);
  const auto refusal = refusal_of(RefusalCode::kReboundTensor, [&] {
    at::NoGradGuard no_grad;
    model->fc1->weight.t_();
  });
  EXPECT_NE(refusal.message.find("`model.fc1.weight`"), std::string::npos);
}

TEST_P(RefusalTest, SparseTensor) {
  const auto sparse = x.to_sparse();
  const auto refusal = refusal_of(RefusalCode::kTensorKind, [&] { at::neg(sparse); });
  EXPECT_EQ(refusal.message, "a tensor that is sparse");
}

TEST_P(RefusalTest, MetaTensor) {
  const auto meta = at::empty({3}, at::device(at::kMeta));
  refusal_of(RefusalCode::kTensorKind, [&] { at::neg(meta); });
}

TEST_P(RefusalTest, TracerIsActive) {
  at::tracer::impl::set_dispatch_enabled(true);
  const auto recording = recording_of([] {});
  at::tracer::impl::set_dispatch_enabled(false);
  const Refusal* refusal = find(recording, RefusalCode::kDispatchMode);
  ASSERT_NE(refusal, nullptr);
  EXPECT_EQ(refusal->message, "a tracer is active");
}

TEST_P(RefusalTest, GeneratorIsSetInsideTheStep) {
  const auto recording = recording_of([] {
    at::rand({2});
    at::manual_seed(1);
    at::rand({2});
    at::manual_seed(2);
  });
  ASSERT_NE(find(recording, RefusalCode::kGeneratorSeek), nullptr);
  ASSERT_EQ(recording.seeks.size(), 2u);
  EXPECT_EQ(recording.seeks[0].generator, "default");
  EXPECT_EQ(recording.seeks[0].before_op, 1u);
  EXPECT_EQ(recording.seeks[1].before_op, recording.ops.size());
}

TEST_P(RefusalTest, DrawingMovesNoGenerator) {
  const auto recording = recording_of([] {
    at::rand({2});
    at::randn({5});
    at::bernoulli(at::full({3}, 0.5));
  });
  EXPECT_EQ(text_of(recording.refusals), "");
}

TEST_P(RefusalTest, UntrackedGenerator) {
  auto generator = at::detail::createCPUGenerator(3);
  refusal_of(RefusalCode::kUntrackedGenerator, [&] { at::rand({2}, generator); });
  objects.track("noise", generator);
  const auto recording = recording_of([&] { at::rand({2}, generator); });
  EXPECT_EQ(text_of(recording.refusals), "");
  EXPECT_EQ(std::get<trace::GeneratorRef>(recording.ops.at(0).inputs.at(1).data).path, "noise");
}

TEST_P(RefusalTest, OpOfAnotherLibrary) {
  const auto refusal =
      refusal_of(RefusalCode::kUnreplayableOp, [&] { call("steptape_test::twice", {x}); }, {x});
  EXPECT_EQ(refusal.op, "steptape_test::twice");
}

TEST_P(RefusalTest, ExceptionThatTheStepCaught) {
  const auto refusal = refusal_of(RefusalCode::kUnreplayableOp,
                                  [&] {
                                    try {
                                      at::mm(x, x);
                                    } catch (const c10::Error&) {
                                    }
                                  },
                                  {x});
  EXPECT_EQ(refusal.op, "aten::mm");
}

TEST_P(RefusalTest, HyperparameterChangedInside) {
  Mlp model;
  torch::optim::SGD sgd(model->parameters(), torch::optim::SGDOptions(0.5));
  objects.track("model", *model);
  objects.track("optimizer", sgd);
  const auto refusal = refusal_of(RefusalCode::kHyperparameterChanged, [&] {
    static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options()).lr(0.25);
  });
  EXPECT_NE(refusal.message.find("`optimizer.param_groups[0].lr`"), std::string::npos);
  EXPECT_NE(refusal.message.find("0.25"), std::string::npos);
}

TEST_P(RefusalTest, TrainingFlagChangedInside) {
  Mlp model;
  objects.track("model", *model);
  refusal_of(RefusalCode::kHyperparameterChanged, [&] { model->eval(); });
}

TEST_P(RefusalTest, UnconsumedGraph) {
  Mlp model;
  objects.track("model", *model);
  const auto graph = record([&] {
    return std::vector<at::Tensor>{model->forward(at::ones({1, 4}))};
  });
  ASSERT_NE(find(graph.recording, RefusalCode::kUnconsumedGraph), nullptr);
  EXPECT_EQ(find(graph.recording, RefusalCode::kEscapedBuffer), nullptr);
  const auto consumed = record([&] {
    auto loss = model->forward(at::ones({1, 4})).sum();
    loss.backward();
    return std::vector<at::Tensor>{loss};
  });
  EXPECT_EQ(text_of(consumed.recording.refusals), "");
}

STEPTAPE_WITH_BOTH_INTERCEPTORS(RefusalTest);

}  // namespace
}  // namespace steptape::recorder
