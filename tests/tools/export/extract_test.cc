#include <gmock/gmock.h>

#include <fstream>

#include "tests/tools/process.h"
#include "tests/trace/made_up.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class ExtractTest : public ToolTest {
 protected:
  std::string program(std::size_t op) const {
    const Outcome outcome = steptape({"extract", path_, "--op", std::to_string(op)});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
  std::string refusal(std::size_t op) const {
    const Outcome outcome = steptape({"extract", path_, "--op", std::to_string(op)});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.out, IsEmpty());
    return outcome.err;
  }
  /// What Python finds in a program: its encoding, and every name but its own.
  std::string seen_by_python(const std::string& program) const {
    std::ofstream(folder_ / "op.py") << program;
    std::ofstream(folder_ / "look.py") << R"(
import ast, re, sys, tokenize
with tokenize.open(sys.argv[1]) as source:
    tree = ast.parse(source.read())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    own = set('ctypes hashlib torch memory drawn holding view show result float complex getattr'.split())
    own |= {word.arg for word in ast.walk(tree) if isinstance(word, ast.arg)}
    own |= {name.id for name in ast.walk(tree) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}
    own |= set('bytearray range len str list print isinstance tuple enumerate min'.split())
    print(source.encoding, *sorted(names - own))
)";
    const Outcome outcome =
        run_program(STEPTAPE_PYTHON, {folder_ / "look.py", folder_ / "op.py"}, folder_);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
};

trace::Recording& first(trace::Trace& trace) { return trace.steps[0].recordings[0]; }

TEST_F(ExtractTest, InputsHaveTheRecordedGeometryInMemoryAlignedAsItWas) {
  trace::Trace trace = test::train_trace();
  first(trace).buffers[1].address_mod_64 = 48;
  rewrite(trace);
  EXPECT_THAT(program(0),
              HasSubstr("b1 = drawn(memory(16, 48, 'cpu'), torch.float32)  # inputs[0]\n"
                        "t1 = view(b1, torch.float32, [2, 2], [1, 2], 0)\n"));
}

TEST_F(ExtractTest, TheOperatorIsCalledWithTheRecordedScalars) {
  EXPECT_THAT(program(4), HasSubstr("result = torch.ops.aten.add_.Tensor(t0, t5, alpha=-0.1)\n"));
}

TEST_F(ExtractTest, WhatTheOpWritesIsShown) {
  EXPECT_THAT(program(2), HasSubstr("show('t5 afterwards', t5)\n"));
  EXPECT_THAT(program(0), Not(HasSubstr("afterwards")));
}

TEST_F(ExtractTest, ResultsAreComparedWithTheRecordedGeometry) {
  EXPECT_THAT(program(0), HasSubstr("show('result', result, 'float32 [2, 2] strides [2, 1]')\n"));
}

TEST_F(ExtractTest, ListsHoldTensorsAndUndefinedOnes) {
  EXPECT_THAT(program(3), HasSubstr("_foreach_mul_.Scalar([t5, None], -0.1)"));
}

TEST_F(ExtractTest, ANumberStandsAsANumber) {
  trace::Trace trace = test::train_trace();
  first(trace).ops[2].inputs[1].data = trace::TensorRef{3};
  rewrite(trace);
  const std::string text = program(2);
  EXPECT_THAT(text, HasSubstr("torch.ops.aten.add_.Tensor(t5, 1.0, alpha=1)"));
  EXPECT_THAT(text, Not(HasSubstr("t3 = ")));
}

TEST_F(ExtractTest, AComplexNumberStandsAsANumber) {
  trace::Trace trace = test::train_trace();
  const std::array<double, 2> parts = {0.5, -2};
  first(trace).buffers[3].bytes = sizeof parts;
  first(trace).buffers[3].content = trace::make_blob(parts.data(), sizeof parts);
  first(trace).buffers[3].digest.reset();
  first(trace).tensors[3].dtype = trace::DType::kComplex128;
  first(trace).ops[2].inputs[1].data = trace::TensorRef{3};
  rewrite(trace);
  EXPECT_THAT(program(2), HasSubstr("add_.Tensor(t5, complex(0.5, -2.0), alpha=1)"));
}

TEST_F(ExtractTest, SmallConstantsHaveTheRecordedBytes) {
  trace::Trace trace = test::train_trace();
  first(trace).tensors[3].wrapped_number = false;
  first(trace).ops[2].inputs[1].data = trace::TensorRef{3};
  rewrite(trace);
  EXPECT_THAT(program(2), HasSubstr("b3 = holding(memory(4, 0, 'cpu'), '0000803f')  # constant\n"));
}

TEST_F(ExtractTest, IntegersOfAnInputLieInItsRange) {
  trace::Trace trace = test::train_trace();
  first(trace).tensors[1].dtype = trace::DType::kInt32;
  first(trace).inputs[0].range = {{-2, 9}};
  rewrite(trace);
  EXPECT_THAT(program(0), HasSubstr("b1 = drawn(memory(16, 16, 'cpu'), torch.int32, -2, 9)  # "));
}

TEST_F(ExtractTest, ConjugatesAndNegativesAreMadeAsSuch) {
  trace::Trace trace = test::train_trace();
  first(trace).tensors[1].neg = true;
  first(trace).tensors[1].conj = true;
  rewrite(trace);
  EXPECT_THAT(program(0), HasSubstr("t1 = torch._neg_view(view(b1, torch.float32, [2, 2], [1, 2], "
                                    "0)).conj()\n"));
}

TEST_F(ExtractTest, EnumeratorsAreNamedByTheSchema) {
  trace::Trace trace = test::train_trace();
  first(trace).operators[0] = {"aten::to", "dtype",
                               "aten::to.dtype(Tensor self, ScalarType dtype, *, MemoryFormat? "
                               "memory_format=None, Layout? layout=None) -> Tensor"};
  first(trace).ops[0].inputs = {
      {trace::TensorRef{1}}, {std::int64_t{6}}, {std::int64_t{1}}, {std::int64_t{0}}};
  rewrite(trace);
  EXPECT_THAT(program(0), HasSubstr("to.dtype(t1, torch.float32, "
                                    "memory_format=torch.preserve_format, layout=torch.strided)"));
}

TEST_F(ExtractTest, AnEnumeratorWithoutANameIsItsNumber) {
  trace::Trace trace = test::train_trace();
  first(trace).operators[0].schema = "aten::to.dtype(Tensor self, ScalarType dtype) -> Tensor";
  first(trace).ops[0].inputs = {{trace::TensorRef{1}}, {std::int64_t{24}}};
  rewrite(trace);
  EXPECT_THAT(program(0), HasSubstr("(t1, 24)"));
}

TEST_F(ExtractTest, AWordOfPythonsOwnIsNoAttribute) {
  trace::Trace trace = test::train_trace();
  first(trace).operators[1] = {"aten::random_", "from",
                               "aten::random_.from(Tensor(a!) self, int from, *, Scalar in) -> "
                               "Tensor(a!)"};
  rewrite(trace);
  const std::string text = program(4);
  EXPECT_THAT(text, HasSubstr("getattr(torch.ops.aten.random_, 'from')(t0, t5, **{'in': -0.1})"));
  EXPECT_EQ(seen_by_python(text), "utf-8\n");
}

TEST_F(ExtractTest, GeneratorsAreTheDefaultOneOrASeededOneOfItsDevice) {
  trace::Trace trace = test::train_trace();
  first(trace).operators[1].schema =
      "aten::f(Tensor(a!) self, Generator? a, *, Generator? b) -> Tensor(a!)";
  first(trace).ops[2].inputs = {
      {trace::TensorRef{5}}, {trace::GeneratorRef{"default"}}, {trace::GeneratorRef{"mine"}}};
  rewrite(trace);
  EXPECT_THAT(program(2),
              HasSubstr("(t5, torch.default_generator, b=torch.Generator('cpu').manual_seed(0))"));
}

TEST_F(ExtractTest, TorchIsSwitchedAsItWas) {
  trace::Trace trace = test::train_trace();
  first(trace).ambient = {{"threads", "2"},
                          {"deterministic", "on"},
                          {"mkldnn", "on"},
                          {"flush_denormal", "on"},
                          {"default_dtype", "Double"}};
  rewrite(trace);
  EXPECT_THAT(program(0), HasSubstr("\n\ntorch.set_num_threads(2)\n"
                                    "torch.use_deterministic_algorithms(True, warn_only=True)\n"
                                    "torch.set_flush_denormal(True)\n"
                                    "torch.set_default_dtype(torch.float64)\n"));
}

TEST_F(ExtractTest, WhatNoProgramCanMakeIsSaid) {
  trace::Trace trace = test::train_trace();
  first(trace).ops[2].inputs[2].data = trace::Opaque{"Stream"};
  rewrite(trace);
  EXPECT_EQ(refusal(2),
            "steptape: no program can run op 2: argument `alpha` is opaque(\"Stream\")\n");
  first(trace).ops[2].inputs[2].data = trace::Device{trace::DeviceKind::kOther, 0};
  rewrite(trace);
  EXPECT_EQ(refusal(2), "steptape: no program can run op 2: argument `alpha` is device(other:0)\n");
  first(trace).buffers[1].device = {trace::DeviceKind::kOther, 0};
  rewrite(trace);
  EXPECT_EQ(refusal(0),
            "steptape: no program can run op 0: tensor t1 is on a device that no program can "
            "name\n");
}

TEST_F(ExtractTest, ASchemaThatDoesNotFitItsOpIsNotGuessedAt) {
  trace::Trace trace = test::train_trace();
  first(trace).operators[1].schema = "aten::add_.Tensor(Tensor(a!) self) -> Tensor(a!)";
  rewrite(trace);
  EXPECT_EQ(refusal(2),
            "steptape: no program can run op 2: its schema does not say how it is called\n");
}

TEST_F(ExtractTest, EveryOpOfAMadeUpStepIsAProgram) {
  trace::Trace trace;
  trace.steps.push_back({"train", "", {test::make_up({.seed = 3})}});
  rewrite(trace);
  const std::size_t count = first(trace).ops.size();
  for (std::size_t op = 0; op < count; op += 7) {
    EXPECT_EQ(seen_by_python(program(op)), "utf-8\n") << op;
  }
}

TEST_F(ExtractTest, NoNameBecomesCode) {
  for (const std::string evil :
       {"x\nimport os; os.system('true') #", "'''\nos.f()\n'''", "\\\nos.f()", "\r\nos.f()",
        "coding=utf-7 +AAo-os.f()+AAo-", "\xe2\x80\xa8os.f()", "\fos.f()"}) {
    trace::Trace trace = test::train_trace();
    trace::Recording& recording = first(trace);
    trace.steps[0].name = evil;
    recording.scopes[0] = evil;
    for (trace::Module& module : recording.modules) module.path = evil;
    recording.operators[0].name = evil + "::" + evil;
    recording.operators[0].overload = evil;
    recording.buffers[1].path = evil;
    recording.ambient = {{"threads", evil}, {"default_dtype", evil}, {evil, "on"}};
    rewrite(trace);
    EXPECT_EQ(seen_by_python(program(0)), "utf-8\n") << evil;
  }
}

TEST_F(ExtractTest, NoNameOfAnArgumentBecomesCode) {
  trace::Trace trace = test::train_trace();
  first(trace).operators[1].schema =
      "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar a=os;evil()) -> Tensor(a!)";
  rewrite(trace);
  EXPECT_EQ(seen_by_python(program(2)), "utf-8\n");
  first(trace).operators[1].schema =
      "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar a';os.evil()#) -> Tensor(a!)";
  rewrite(trace);
  EXPECT_EQ(seen_by_python(program(2)), "utf-8\n");
}

TEST_F(ExtractTest, TheFirstLinesSayWhatItIs) {
  EXPECT_THAT(program(4), StartsWith("# One op of a recorded step, as `steptape extract` writes "
                                     "it: run it with Python and torch.\n"));
  EXPECT_THAT(program(4), HasSubstr("\n# Op 4 of step train, recording 0:\n#   "));
}

TEST_F(ExtractTest, AFileIsWritten) {
  const Outcome outcome = steptape({"extract", path_, "--op", "4", "-o", folder_ / "op4.py"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, IsEmpty());
  std::ifstream file(folder_ / "op4.py");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), program(4));
}

TEST_F(ExtractTest, AnOpThatIsNotThereIsTrouble) {
  const Outcome outcome = steptape({"extract", path_, "--op", "9"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err,
            "steptape: invalid_argument: recording 0 has no op 9; it has 5 ops, counted from 0\n");
}

}  // namespace
}  // namespace steptape::tools
