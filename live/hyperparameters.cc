#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <type_traits>
#include <typeinfo>

#include "live/objects.h"

namespace steptape::live {
namespace {

using Named = std::vector<trace::NamedValue>;

trace::Value real(double value) { return {trace::Real{value}}; }
trace::Value integer(std::int64_t value) { return {value}; }
trace::Value flag(bool value) { return {value}; }

trace::Value pair(const std::tuple<double, double>& values) {
  return {trace::List{real(std::get<0>(values)), real(std::get<1>(values))}};
}

Named names_of(const torch::optim::SGDOptions& o) {
  return {{"lr", real(o.lr())},
          {"momentum", real(o.momentum())},
          {"dampening", real(o.dampening())},
          {"weight_decay", real(o.weight_decay())},
          {"nesterov", flag(o.nesterov())}};
}

template <typename AdamLike>
Named names_of_adam(const AdamLike& o) {
  return {{"lr", real(o.lr())},
          {"betas", pair(o.betas())},
          {"eps", real(o.eps())},
          {"weight_decay", real(o.weight_decay())},
          {"amsgrad", flag(o.amsgrad())}};
}

Named names_of(const torch::optim::RMSpropOptions& o) {
  return {{"lr", real(o.lr())},
          {"alpha", real(o.alpha())},
          {"eps", real(o.eps())},
          {"weight_decay", real(o.weight_decay())},
          {"momentum", real(o.momentum())},
          {"centered", flag(o.centered())}};
}

Named names_of(const torch::optim::AdagradOptions& o) {
  return {{"lr", real(o.lr())},
          {"lr_decay", real(o.lr_decay())},
          {"weight_decay", real(o.weight_decay())},
          {"initial_accumulator_value", real(o.initial_accumulator_value())},
          {"eps", real(o.eps())}};
}

/// One pass over the numbers of an options class.
template <typename Visit>
void numbers_of(const torch::optim::SGDOptions& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("momentum", o.momentum());
  visit("dampening", o.dampening());
  visit("weight_decay", o.weight_decay());
  visit("nesterov", o.nesterov());
}

template <typename AdamLike, typename Visit>
void numbers_of_adam(const AdamLike& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("betas[0]", std::get<0>(o.betas()));
  visit("betas[1]", std::get<1>(o.betas()));
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("amsgrad", o.amsgrad());
}

template <typename Visit>
void numbers_of(const torch::optim::AdamOptions& o, Visit&& visit) {
  numbers_of_adam(o, visit);
}

template <typename Visit>
void numbers_of(const torch::optim::AdamWOptions& o, Visit&& visit) {
  numbers_of_adam(o, visit);
}

template <typename Visit>
void numbers_of(const torch::optim::RMSpropOptions& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("alpha", o.alpha());
  visit("eps", o.eps());
  visit("weight_decay", o.weight_decay());
  visit("momentum", o.momentum());
  visit("centered", o.centered());
}

template <typename Visit>
void numbers_of(const torch::optim::AdagradOptions& o, Visit&& visit) {
  visit("lr", o.lr());
  visit("lr_decay", o.lr_decay());
  visit("weight_decay", o.weight_decay());
  visit("initial_accumulator_value", o.initial_accumulator_value());
  visit("eps", o.eps());
}

template <typename Options, typename Visit>
bool visit_if(const torch::optim::OptimizerOptions& options, Visit&& visit) {
  if (typeid(options) != typeid(Options)) return false;
  numbers_of(static_cast<const Options&>(options), visit);
  return true;
}

template <typename Visit>
void for_each_number(const torch::optim::OptimizerParamGroup& group, Visit&& visit) {
  using namespace torch::optim;
  if (!group.has_options()) return;
  const OptimizerOptions& options = group.options();
  (void)(visit_if<AdamOptions>(options, visit) || visit_if<AdamWOptions>(options, visit) ||
         visit_if<SGDOptions>(options, visit) || visit_if<RMSpropOptions>(options, visit) ||
         visit_if<AdagradOptions>(options, visit));
}

Named names_of(const torch::optim::LBFGSOptions& o) {
  const auto evaluations = o.max_eval();
  const auto& search = o.line_search_fn();
  return {{"lr", real(o.lr())},
          {"max_iter", integer(o.max_iter())},
          {"max_eval", evaluations ? integer(*evaluations) : trace::Value{trace::None{}}},
          {"tolerance_grad", real(o.tolerance_grad())},
          {"tolerance_change", real(o.tolerance_change())},
          {"history_size", integer(o.history_size())},
          {"line_search_fn", search ? trace::Value{*search} : trace::Value{trace::None{}}}};
}

}  // namespace

std::vector<NumberField> number_fields(const torch::optim::OptimizerParamGroup& group) {
  std::vector<NumberField> fields;
  for_each_number(group, [&](const char* name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    static_assert(std::is_same_v<Field, bool> || std::is_same_v<Field, double>);
    fields.push_back({name, &field, std::is_same_v<Field, bool>});
  });
  return fields;
}

// The options' own class decides, not the optimizer's name: a subclass of SGD keeps SGDOptions.
Named hyperparameters_of(const torch::optim::OptimizerParamGroup& group, const std::string&) {
  if (!group.has_options()) return {};
  const torch::optim::OptimizerOptions& options = group.options();
  const std::type_info& type = typeid(options);
  if (type == typeid(torch::optim::SGDOptions)) {
    return names_of(static_cast<const torch::optim::SGDOptions&>(options));
  }
  if (type == typeid(torch::optim::AdamOptions)) {
    return names_of_adam(static_cast<const torch::optim::AdamOptions&>(options));
  }
  if (type == typeid(torch::optim::AdamWOptions)) {
    return names_of_adam(static_cast<const torch::optim::AdamWOptions&>(options));
  }
  if (type == typeid(torch::optim::RMSpropOptions)) {
    return names_of(static_cast<const torch::optim::RMSpropOptions&>(options));
  }
  if (type == typeid(torch::optim::AdagradOptions)) {
    return names_of(static_cast<const torch::optim::AdagradOptions&>(options));
  }
  if (type == typeid(torch::optim::LBFGSOptions)) {
    return names_of(static_cast<const torch::optim::LBFGSOptions&>(options));
  }
  return {};
}

}  // namespace steptape::live
