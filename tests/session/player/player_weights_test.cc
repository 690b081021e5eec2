#include <gmock/gmock.h>

#include "replayer/player/weights/weights_file.h"
#include "steptape/player.h"
#include "storage/trace/writer.h"
#include "tests/session/taught.h"

namespace steptape::tests {
namespace {

using replayer::NamedTensor;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class PlayerWeightsTest : public TaughtTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string weights() const { return path(GetParam()); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const NamedTensor& entry : replayer::read_weights(weights())) names.push_back(entry.name);
    return names;
  }
  static std::string problems_of(Player& player, const std::string& file,
                                 const WeightsOptions& options = {}) {
    try {
      player.load_weights(file, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    ADD_FAILURE() << "loaded";
    return "";
  }
};

TEST_P(PlayerWeightsTest, NamesAreThoseOfTheModule) {
  load(saved()).save_weights(weights(), {.of = "model"});
  EXPECT_THAT(names(), UnorderedElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
                                            "norm.weight", "norm.bias", "norm.running_mean",
                                            "norm.running_var", "norm.num_batches_tracked"));
}

TEST_P(PlayerWeightsTest, WeightsGoFromOneTrainingToAnother) {
  Player player = load(saved());
  player.save_weights(weights());
  const at::Tensor images = make_batches(1, 16, 5)[0].images;
  const at::Tensor expected = player.step("predict")(images);
  for (const Batch& batch : make_batches(4, 16, 6))
    player.step("learn")(batch.images, batch.labels);
  EXPECT_FALSE(same_bits(player.step("predict")(images), expected));
  player.load_weights(weights());
  EXPECT_TRUE(same_bits(player.step("predict")(images), expected));
  EXPECT_EQ(player.metrics().weights_loaded, 1U);
}

TEST_P(PlayerWeightsTest, EverythingIsWhatATrainingGoesOnFrom) {
  Player player = load(saved());
  PlayerStep learn = player.step("learn");
  for (const Batch& batch : make_batches(2, 16, 5)) learn(batch.images, batch.labels);
  player.set("optimizer.param_groups[0].lr", 0.125);
  player.save_weights(weights(), {.everything = true});

  Player other = load(saved());
  other.load_weights(weights());
  EXPECT_EQ(other.scalar("optimizer.param_groups[0].lr"), 0.125);
  EXPECT_EQ(other.scalar("optimizer.state[model.fc1.weight].step"),
            player.scalar("optimizer.state[model.fc1.weight].step"));
  PlayerStep other_learn = other.step("learn");
  for (const Batch& batch : make_batches(3, 16, 6)) {
    EXPECT_TRUE(
        same_bits(learn(batch.images, batch.labels), other_learn(batch.images, batch.labels)));
  }
  for (const TensorSpec& spec : player.state()) {
    EXPECT_TRUE(same_bits(player.tensor(spec.path), other.tensor(spec.path))) << spec.path;
  }
}

TEST_P(PlayerWeightsTest, AllThatDoesNotFitIsListedAndNothingIsTaken) {
  Player player = load(saved());
  player.save_weights(weights());
  std::vector<NamedTensor> entries = replayer::read_weights(weights());
  std::erase_if(entries, [](const NamedTensor& entry) { return entry.name == "model.fc2.bias"; });
  for (NamedTensor& entry : entries) {
    if (entry.name == "model.fc1.bias") entry.tensor = at::zeros({33});
    if (entry.name == "model.norm.weight") entry.tensor = entry.tensor.to(at::kDouble);
    if (entry.name == "model.fc1.weight") entry.tensor = entry.tensor + 1;
  }
  entries.push_back({"model.fc3.weight", at::zeros({2})});
  replayer::write_weights(entries, weights());
  const at::Tensor before = player.tensor("model.fc1.weight").clone();
  EXPECT_THAT(
      problems_of(player, weights()),
      AllOf(HasSubstr("model.fc1.bias: float32[33] in the file, float32[32] here"),
            HasSubstr("model.norm.weight: float64[32] in the file, float32[32] here"),
            HasSubstr("model.fc2.bias: not in the file"),
            HasSubstr("model.fc3.weight: no state has this name"),
            Not(HasSubstr("model.fc1.weight")), Not(HasSubstr("model.fc1.bias: not in the file"))));
  EXPECT_TRUE(same_bits(player.tensor("model.fc1.weight"), before));

  EXPECT_THAT(problems_of(player, weights(), {.strict = false}),
              AllOf(HasSubstr("model.fc1.bias"), HasSubstr("model.norm.weight"),
                    Not(HasSubstr("fc2.bias")), Not(HasSubstr("fc3"))));
  EXPECT_THAT(problems_of(player, weights(), {.of = "model"}), HasSubstr("fc1.weight: not in"));
}

TEST_P(PlayerWeightsTest, NumbersMustBeNumbers) {
  Player player = load(saved());
  const std::vector<NamedTensor> entries = {{"optimizer.param_groups[0].lr", at::zeros({2})},
                                            {"generator.default", at::zeros({8}, at::kByte)},
                                            {"generator.other", at::zeros({8}, at::kByte)}};
  replayer::write_weights(entries, weights());
  const std::vector<NamedTensor> state = {
      {"generator.default", at::zeros({5056}, at::kByte)},
      {"optimizer.state[model.fc1.weight].step", at::full({}, 2.5, at::kDouble)}};
  EXPECT_THAT(problems_of(player, weights()),
              AllOf(HasSubstr("lr: float32[2] in the file, a number here"),
                    HasSubstr("generator.default: uint8[8] in the file"),
                    HasSubstr("generator.other: no generator")));
  replayer::write_weights(state, path("state.pt"));
  EXPECT_THAT(problems_of(player, path("state.pt"), {.strict = false}),
              AllOf(HasSubstr("generator.default: no state of a generator"),
                    HasSubstr("2.5 is not an integer")));
  EXPECT_THAT(problems_of(player, weights(), {.of = "modle", .strict = false}),
              HasSubstr("no state has a name that is in the file"));
}

TEST_P(PlayerWeightsTest, SavingNothingOrOverATraceIsRefused) {
  Player player = load(saved());
  EXPECT_THROW(player.save_weights(weights(), {.of = "models"}), Error);
  EXPECT_FALSE(std::filesystem::exists(weights()));
  EXPECT_THROW(player.save_weights(path("run.tape")), Error);
  EXPECT_NO_THROW(load(path("run.tape")));
}

INSTANTIATE_TEST_SUITE_P(Formats, PlayerWeightsTest,
                         ::testing::Values("weights.pt", "weights.safetensors"),
                         [](const auto& named) {
                           return std::string(named.param).ends_with("pt") ? "StateDict"
                                                                           : "Safetensors";
                         });

}  // namespace
}  // namespace steptape::tests
