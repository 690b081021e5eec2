#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/tools/process.h"
#include "tests/trace/samples.h"

namespace steptape::tools {
namespace {

using testing::HasSubstr;

class InfoTest : public ToolTest {
 protected:
  InfoTest() {
    // An outside tensor beside the one that the host made.
    trace_ = test::train_trace();
    trace::Recording& recording = trace_.steps[0].recordings[0];
    trace::Buffer buffer;
    buffer.bytes = 2048;
    buffer.role = trace::Role::kConstant;
    buffer.path = "outside[0]";
    recording.buffers.push_back(buffer);
    trace::Tensor tensor = recording.tensors[0];
    tensor.buffer = static_cast<trace::BufferId>(recording.buffers.size() - 1);
    recording.tensors.push_back(tensor);
    recording.ops[1].inputs[0] = {
        trace::TensorRef{static_cast<trace::TensorId>(recording.tensors.size() - 1)}};
    rewrite(trace_);
  }
  trace::Trace trace_;
};

TEST_F(InfoTest, OneScreenSaysWhatThereIs) {
  const Outcome outcome = steptape({"info", path_});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, testing::IsEmpty());
  for (const char* line : {
           "producer     steptape 0.1.0, torch 2.11.0",
           "run          host north",
           "environment  threads 2",
           "saved state  2, 16 B",
           "step train  train.cc:41  1 recording",
           "  recording 0  agreed",
           "    5 ops        4 forward, 1 backward, of 3 operators",
           "    memory       2.1 KiB, 7 tensors in 7 buffers",
           "      parameter             1        16 B",
           "      constant              2     2.0 KiB",
           "    parameters   1 tensor, 4 elements",
           "    optimizer    torch::optim::SGD, 1 group",
           "      1 parameter: lr=0.1 nesterov=false",
           "    constants    2, 2.0 KiB",
           "      outside[0]                  2.0 KiB  not in the file, first read by op 1 in "
           "model.fc1",
           "      made by the host      1         4 B",
           "    refusals     1",
           "      host_read: item() reads t2 [op 2 aten::item, model, train.cc:44]. Remedy: ",
       }) {
    EXPECT_THAT(outcome.out, HasSubstr(line));
  }
}

TEST_F(InfoTest, JsonSaysTheSame) {
  const auto json = nlohmann::json::parse(steptape({"info", path_, "--json"}).out);
  EXPECT_EQ(json["producer"]["torch"], "2.11.0");
  EXPECT_EQ(json["environment"]["threads"], "2");
  EXPECT_EQ(json["state"], nlohmann::json({{"saved", true}, {"entries", 2}, {"bytes", 16}}));
  const auto& recording = json["steps"][0]["recordings"][0];
  EXPECT_EQ(recording["status"], "agreed");
  EXPECT_EQ(recording["ops"], 5);
  EXPECT_EQ(recording["roles"]["constant"]["bytes"], 2052);
  EXPECT_EQ(recording["parameters"][0]["path"], "model.fc1.weight");
  EXPECT_EQ(recording["optimizers"][0]["groups"][0]["hyperparameters"]["lr"], "0.1");
  EXPECT_EQ(recording["constants"][0]["path"], "outside[0]");
  EXPECT_EQ(recording["constants"][0]["kept"], false);
  EXPECT_EQ(recording["constants"][0]["module"], "model.fc1");
  EXPECT_EQ(recording["constants"][1]["kept"], true);
  EXPECT_EQ(recording["constants"][1]["first_op"], nullptr);
  EXPECT_EQ(recording["refusals"][0]["code"], "host_read");
}

TEST_F(InfoTest, ARecordingSaysWhetherItHoldsDigestsAndTimesOfItsOps) {
  auto json = nlohmann::json::parse(steptape({"info", path_, "--json"}).out);
  EXPECT_EQ(json["steps"][0]["recordings"][0]["has_digests"], false);
  EXPECT_EQ(json["steps"][0]["recordings"][0]["has_times"], false);
  trace::Recording& recording = trace_.steps[0].recordings[0];
  recording.op_ns.resize(recording.ops.size());
  rewrite(trace_);
  EXPECT_THAT(steptape({"info", path_}).out, HasSubstr("recording 0  agreed, with times\n"));
  recording.op_digests.resize(recording.ops.size());
  rewrite(trace_);
  EXPECT_THAT(steptape({"info", path_}).out,
              HasSubstr("recording 0  agreed, with digests, with times\n"));
  json = nlohmann::json::parse(steptape({"info", path_, "--json"}).out);
  EXPECT_EQ(json["steps"][0]["recordings"][0]["has_digests"], true);
  EXPECT_EQ(json["steps"][0]["recordings"][0]["has_times"], true);
}

TEST_F(InfoTest, ATraceWithoutStateSaysSo) {
  trace_.state.clear();
  rewrite(trace_);
  EXPECT_THAT(steptape({"info", path_}).out, HasSubstr("saved state  none"));
}

TEST_F(InfoTest, AnEmptyTraceIsShownToo) {
  rewrite({});
  const Outcome outcome = steptape({"info", path_});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("producer     not said"));
}

TEST_F(InfoTest, ADamagedFileIsTrouble) {
  flip(200);
  EXPECT_EQ(steptape({"info", path_}).exit_code, 2);
}

}  // namespace
}  // namespace steptape::tools
