#include "live/operators.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "live/effects.h"
#include "trace/operators.h"

namespace steptape::live {
namespace {

c10::OperatorHandle op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

TEST(EffectsTest, SchemaTellsWritesAndViews) {
  const auto& add = effects_of(op("aten::add_", "Tensor"));
  EXPECT_TRUE(add.writes.at(0));
  EXPECT_FALSE(add.writes.at(1));
  EXPECT_FALSE(add.is_view);
  EXPECT_TRUE(effects_of(op("aten::transpose", "int")).is_view);
  EXPECT_TRUE(effects_of(op("aten::split", "Tensor")).is_view);
  EXPECT_FALSE(effects_of(op("aten::mm")).is_view);
}

TEST(EffectsTest, TableTellsWhatSchemasHide) {
  const auto& norm = effects_of(op("aten::native_batch_norm"));
  EXPECT_FALSE(norm.writes.at(0));
  EXPECT_TRUE(norm.writes.at(3));
  EXPECT_TRUE(norm.writes_unannotated.at(3));
  EXPECT_TRUE(norm.writes_unannotated.at(4));
  EXPECT_TRUE(effects_of(op("aten::_unsafe_view")).is_view);
}

TEST(EffectsTest, InPlaceViewsWriteNoBytes) {
  const auto& turn = effects_of(op("aten::t_"));
  EXPECT_TRUE(turn.is_inplace_view);
  EXPECT_FALSE(turn.writes.at(0));
  const auto& set = effects_of(op("aten::set_", "source_Tensor"));
  EXPECT_FALSE(set.is_inplace_view);
  EXPECT_FALSE(set.is_replayable());
}

TEST(EffectsTest, TagsTellRandomnessAndHostReads) {
  EXPECT_TRUE(effects_of(op("aten::bernoulli_", "float")).is_random);
  EXPECT_TRUE(effects_of(op("aten::_local_scalar_dense")).is_host_read);
  EXPECT_TRUE(effects_of(op("aten::equal")).is_host_read);
  EXPECT_FALSE(effects_of(op("aten::is_same_size")).is_host_read);
  EXPECT_FALSE(effects_of(op("aten::_fused_sdp_choice")).is_host_read);
}

TEST(EffectsTest, EmptyFamilyLeavesMemoryUnwritten) {
  EXPECT_TRUE(effects_of(op("aten::empty", "memory_format")).makes_unwritten);
  EXPECT_TRUE(effects_of(op("aten::empty_like")).reads_geometry_only);
  EXPECT_TRUE(effects_of(op("aten::zeros_like")).reads_geometry_only);
  EXPECT_FALSE(effects_of(op("aten::zeros_like")).makes_unwritten);
}

TEST(EffectsTest, ArithmeticCannotThrowOnData) {
  EXPECT_FALSE(effects_of(op("aten::mul", "Tensor")).may_throw_on_data);
  EXPECT_FALSE(effects_of(op("aten::mm")).may_throw_on_data);
  EXPECT_TRUE(effects_of(op("aten::remainder", "Tensor")).may_throw_on_data);
  EXPECT_TRUE(effects_of(op("aten::linalg_cholesky_ex")).may_throw_on_data);
}

TEST(EffectsTest, EveryRowNamesAnOperatorAndAReason) {
  std::set<std::string> names;
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) names.insert(name.name);
  for (const Exception& row : exceptions()) {
    EXPECT_FALSE(row.reason.empty()) << row.names;
    // Collectives are registered by a library that need not be loaded.
    if (row.names.ends_with("::")) continue;
    std::istringstream words{std::string(row.names)};
    for (std::string name; words >> name;) {
      EXPECT_TRUE(names.contains(name)) << name;
      EXPECT_EQ(find_exception(name, row.kind), &row) << name;
    }
  }
  for (const trace::OpExceptionRow& row : trace::op_exceptions()) {
    EXPECT_FALSE(row.reason.empty()) << row.name;
    EXPECT_TRUE(names.contains(std::string(row.name))) << row.name;
  }
}

TEST(EffectsTest, EveryOperatorCanBeDerived) {
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto handle = c10::Dispatcher::singleton().findSchema(name);
    if (!handle) continue;
    EXPECT_EQ(effects_of(*handle).writes.size(), handle->schema().arguments().size());
  }
}

TEST(OperatorTest, IsFoundByItsDescription) {
  const auto description = describe(op("aten::add_", "Tensor"));
  EXPECT_EQ(description.full_name(), "aten::add_.Tensor");
  EXPECT_EQ(find_operator(description), op("aten::add_", "Tensor"));
  EXPECT_FALSE(find_operator({"aten::no_such_op", "", ""}));
}

}  // namespace
}  // namespace steptape::live
