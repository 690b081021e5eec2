#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>

#include "live/objects.h"

namespace steptape::live {
namespace {

/// The hyperparameters of an options class in declaration order, by the names that users give them.
template <typename Visit>
void visit_fields(const torch::optim::SGDOptions& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("momentum", o.momentum());
  visit("dampening", o.dampening());
  visit("weight_decay", o.weight_decay());
  visit("nesterov", o.nesterov());
}

template <typename AdamLike, typename Visit>
requires requires(const AdamLike& o) { o.amsgrad(); }
void visit_fields(const AdamLike& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("betas", o.betas());
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("amsgrad", o.amsgrad());
}

template <typename Visit>
void visit_fields(const torch::optim::RMSpropOptions& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("alpha", o.alpha());
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("momentum", o.momentum());
  visit("centered", o.centered());
}

template <typename Visit>
void visit_fields(const torch::optim::AdagradOptions& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("lr_decay", o.lr_decay());
  visit("weight_decay", o.weight_decay());
  visit("initial_accumulator_value", o.initial_accumulator_value());
  visit("eps", o.eps());
}

template <typename Visit>
void visit_fields(const torch::optim::LBFGSOptions& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("max_iter", o.max_iter());
  visit("max_eval", o.max_eval());
  visit("tolerance_grad", o.tolerance_grad());
  visit("tolerance_change", o.tolerance_change());
  visit("history_size", o.history_size());
  visit("line_search_fn", o.line_search_fn());
}

template <typename Options, typename Visit>
bool visit_if(const torch::optim::OptimizerOptions& options, Visit&& visit) {
  if (typeid(options) != typeid(Options)) return false;
  visit_fields(static_cast<const Options&>(options), visit);
  return true;
}

/// The options' own class decides, not the optimizer's: a subclass of SGD keeps SGDOptions.
template <typename Visit>
void visit_group(const torch::optim::OptimizerParamGroup& group, Visit&& visit) {
  using namespace torch::optim;
  if (!group.has_options()) return;
  const OptimizerOptions& options = group.options();
  (void)(visit_if<AdamOptions>(options, visit) || visit_if<AdamWOptions>(options, visit) ||
         visit_if<SGDOptions>(options, visit) || visit_if<RMSpropOptions>(options, visit) ||
         visit_if<AdagradOptions>(options, visit) || visit_if<LBFGSOptions>(options, visit));
}

trace::Value value_of(double value) { return {trace::Real{value}}; }
trace::Value value_of(std::int64_t value) { return {value}; }
trace::Value value_of(bool value) { return {value}; }
trace::Value value_of(const std::string& value) { return {value}; }
trace::Value value_of(const std::tuple<double, double>& values) {
  return {trace::List{value_of(std::get<0>(values)), value_of(std::get<1>(values))}};
}
template <typename Value>
trace::Value value_of(const std::optional<Value>& value) {
  return value ? value_of(*value) : trace::Value{trace::None{}};
}

}  // namespace

std::vector<NumberField> number_fields(const torch::optim::OptimizerParamGroup& group) {
  // its numbers are literals: no plan follows how L-BFGS searches
  if (!group.has_options()) return {};
  const torch::optim::OptimizerOptions& options = group.options();
  if (typeid(options) == typeid(torch::optim::LBFGSOptions)) return {};
  std::vector<NumberField> fields;
  visit_group(group, [&fields](const char* name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, std::tuple<double, double>>) {
      fields.push_back({"betas[0]", &std::get<0>(field), false});
      fields.push_back({"betas[1]", &std::get<1>(field), false});
    } else if constexpr (std::is_same_v<Field, bool> || std::is_same_v<Field, double>) {
      fields.push_back({name, &field, std::is_same_v<Field, bool>});
    }
  });
  return fields;
}

std::vector<trace::NamedValue> hyperparameters_of(const torch::optim::OptimizerParamGroup& group) {
  std::vector<trace::NamedValue> named;
  visit_group(group, [&named](const char* name, const auto& field) {
    named.push_back({name, value_of(field)});
  });
  return named;
}

}  // namespace steptape::live
