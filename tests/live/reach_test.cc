#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>

#include <array>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "live/operators.h"

namespace steptape::live {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

using enum Reach;
constexpr std::array kReaches = {kComputes,    kExchanges, kOtherLibrary,
                                 kOtherValues, kStorage,   kOutside};

/// Every operator that this torch has registered, by how far it reaches.
std::map<Reach, std::vector<c10::FunctionSchema>> operators() {
  std::map<Reach, std::vector<c10::FunctionSchema>> found;
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema()) continue;
    found[reach_of(op->schema())].push_back(op->schema());
  }
  return found;
}

std::string name_of(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name()
                                        : schema.name() + "." + schema.overload_name();
}

std::set<std::string> names_of(const std::vector<c10::FunctionSchema>& schemas) {
  std::set<std::string> names;
  for (const c10::FunctionSchema& schema : schemas) names.insert(name_of(schema));
  return names;
}

/// Whether a value of this type can be a text, or a list of texts.
bool holds_text(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::StringType) return true;
  for (const c10::TypePtr& inner : type.containedTypes()) {
    if (holds_text(*inner)) return true;
  }
  return false;
}

TEST(ReachTest, EveryOperatorFallsIntoOneClassAndIsShown) {
  const auto found = operators();
  for (const Reach reach : kReaches) {
    const auto of = found.find(reach);
    const std::size_t count = of == found.end() ? 0 : of->second.size();
    std::cout << count << " operators: " << words_of(reach) << "\n";
    if (reach == Reach::kComputes || count == 0) continue;
    std::map<std::string, std::size_t> libraries;
    for (const std::string& name : names_of(of->second)) {
      reach == Reach::kOtherLibrary ? ++libraries[name.substr(0, name.find(':'))]
                                    : ++libraries[name];
    }
    for (const auto& [name, times] : libraries) {
      std::cout << "    " << name << (times > 1 ? " (" + std::to_string(times) + ")" : "") << "\n";
    }
  }
  EXPECT_GT(found.at(Reach::kComputes).size(), 2000u);
  EXPECT_EQ(found.size(), kReaches.size());
}

TEST(ReachTest, WhatActsOnFilesStreamsAndMemoryIsNeverCalled) {
  auto found = operators();
  EXPECT_THAT(names_of(found[Reach::kOutside]), Contains("aten::from_file"));
  EXPECT_THAT(names_of(found[Reach::kOutside]), Contains("aten::_print"));
  EXPECT_THAT(names_of(found[Reach::kOutside]), Contains("aten::record_stream"));
  EXPECT_THAT(names_of(found[Reach::kStorage]), Contains("aten::set_.source_Storage"));
  EXPECT_THAT(names_of(found[Reach::kStorage]), Contains("aten::resize_"));
}

/// A text could name a file, a function, a process. Those that computing operators take choose
/// between ways of computing; an operator of another torch that takes another one is looked at
/// before it is let in.
TEST(ReachTest, TextsThatComputingOperatorsTakeOnlyChooseBetweenWaysOfComputing) {
  const std::set<std::string> known = {
      // ways of computing
      "UPLO", "activation", "algorithm", "approximate", "driver", "equation", "indexing",
      "interpolation", "mode", "norm", "ord", "p", "pad_mode", "padding", "padding_side", "reduce",
      "rounding_mode", "side",
      // names of dimensions
      "dim", "dim0", "dim1", "dim2", "dims", "end_dim", "names", "order", "out_dim", "outdim",
      "start_dim",
      // what an error says
      "api_name", "assert_msg",
      // of operators that torch tests itself by
      "a", "b"};
  std::set<std::string> texts;
  std::set<std::string> strange;
  auto found = operators();
  for (const c10::FunctionSchema& schema : found[Reach::kComputes]) {
    for (const c10::Argument& argument : schema.arguments()) {
      if (!holds_text(*argument.type())) continue;
      texts.insert(argument.name());
      if (!known.contains(argument.name()))
        strange.insert(name_of(schema) + ": " + argument.name());
    }
  }
  EXPECT_THAT(strange, IsEmpty());
  EXPECT_THAT(texts, Not(IsEmpty()));
}

TEST(ReachTest, OperatorsOfProfilersAndProcessGroupsAreOfOtherLibraries) {
  std::set<std::string> libraries;
  auto found = operators();
  for (const c10::FunctionSchema& schema : found[Reach::kOtherLibrary]) {
    libraries.insert(schema.name().substr(0, schema.name().find(':')));
  }
  EXPECT_THAT(libraries, Not(Contains("aten")));
  EXPECT_THAT(libraries, Contains("c10d"));
  EXPECT_THAT(libraries, Contains("profiler"));
}

}  // namespace
}  // namespace steptape::live
