#include "recorder/number_sites.h"

#include <algorithm>
#include <variant>

#include "trace/numbers.h"
#include "trace/value.h"
#include "trace/windows.h"

namespace steptape::recorder {
namespace {

/// Of a tensor that the host makes of numbers one by one; a longer one is data.
constexpr std::size_t kMostElements = 1024;

using Use = FrontendHints::Number::Use;

class Takes {
 public:
  Takes(FrontendHints& hints, const trace::Recording& recording, trace::BufferId first_new)
      : hints_(hints), recording_(recording), first_new_(first_new) {}

  void take_all(const trace::Op& op, trace::Index index, const std::vector<bool>& may_follow) {
    const std::string& schema = recording_.operators[op.op].schema;
    is_view_ = trace::gives_windows(recording_.operators[op.op]);
    fills_ = schema.starts_with("aten::fill_.") || schema.starts_with("aten::masked_fill_.");
    for (trace::Index argument = 0; argument < op.inputs.size(); ++argument) {
      const trace::Value& value = op.inputs[argument];
      const bool follows = argument < may_follow.size() && may_follow[argument];
      if (!follows && !holds_tensor(value)) continue;
      take_value(value, {index, argument, trace::kNone, trace::kNone, trace::kNone});
      const auto* list = std::get_if<trace::List>(&value.data);
      if (list == nullptr) continue;
      for (trace::Index item = 0; item < list->size(); ++item) {
        take_value((*list)[item], {index, argument, item, trace::kNone, trace::kNone});
      }
    }
    if (hints_.function() == "narrow" && is_view_) take_end(op, index);
    for (const Taken& taken : taken_) {
      const auto as_often = std::ranges::count_if(
          taken_, [&](const Taken& other) { return is_same(other.value, taken.value); });
      std::ptrdiff_t standing = 0;
      for (const trace::Value& value : op.inputs) standing += count(value, taken.value);
      if (standing > as_often) hints_.doubt(taken.site);
    }
  }

 private:
  struct Taken {
    std::size_t site;  ///< in FrontendHints::sites
    trace::Value value;
  };

  static bool is_same(const trace::Value& a, const trace::Value& b) {
    return trace::Real{trace::number_of(a)} == trace::Real{trace::number_of(b)};
  }

  /// How often a number like this stands in an argument of an op: literals and defaults, too.
  std::ptrdiff_t count(const trace::Value& argument, const trace::Value& number) const {
    const bool is_integer = std::holds_alternative<std::int64_t>(number.data);
    if (const auto* integers = std::get_if<trace::IntList>(&argument.data)) {
      return is_integer ? std::ranges::count(*integers, std::get<std::int64_t>(number.data)) : 0;
    }
    if (const auto* list = std::get_if<trace::List>(&argument.data)) {
      std::ptrdiff_t found = 0;
      for (const trace::Value& item : *list) found += count(item, number);
      return found;
    }
    if (const auto* tensor = std::get_if<trace::TensorRef>(&argument.data)) {
      return tensor->id == trace::kNoTensor ? 0 : count(recording_.tensors[tensor->id], number);
    }
    const bool may_be = std::holds_alternative<trace::Real>(argument.data) ||
                        (is_integer && std::holds_alternative<std::int64_t>(argument.data));
    return may_be && is_same(argument, number) ? 1 : 0;
  }

  std::ptrdiff_t count(const trace::Tensor& tensor, const trace::Value& number) const {
    const trace::Buffer& buffer = recording_.buffers[tensor.buffer];
    std::ptrdiff_t found = 0;
    if (tensor.buffer < first_new_ || !buffer.content) return found;
    trace::for_each_element(buffer, tensor.dtype, kMostElements, [&](trace::Index item) {
      const auto element = trace::element_at(buffer, tensor.dtype, item);
      if (trace::is_element(trace::number_of(number), tensor.dtype, element->bytes)) ++found;
    });
    return found;
  }

  static bool holds_tensor(const trace::Value& value) {
    bool holds = false;
    trace::for_each_tensor(value, [&holds](trace::TensorId) { holds = true; });
    return holds;
  }

  void take_value(const trace::Value& value, const trace::ScalarSite& site) {
    if (const auto* tensor = std::get_if<trace::TensorRef>(&value.data)) {
      if (tensor->id != trace::kNoTensor) take_content(recording_.tensors[tensor->id]);
    } else if (trace::is_number(value)) {
      // an op takes integers as integers, and real numbers from either
      take(site, [&](const FrontendHints::Number& number) {
        const bool may_be = number.value.data.index() == value.data.index() ||
                            std::holds_alternative<trace::Real>(value.data);
        const Use other = fills_ ? Use::kIndex : Use::kElement;
        return may_be && number.use != other && number.item == site.item &&
               trace::Real{trace::number_of(number.value)} == trace::Real{trace::number_of(value)};
      });
    }
  }

  void take_content(const trace::Tensor& tensor) {
    const trace::Buffer& buffer = recording_.buffers[tensor.buffer];
    if (tensor.buffer < first_new_ || !buffer.content) return;
    trace::for_each_element(buffer, tensor.dtype, kMostElements, [&](trace::Index item) {
      const auto element = trace::element_at(buffer, tensor.dtype, item);
      take({trace::kNone, trace::kNone, item, tensor.buffer, trace::kNone},
           [&](const FrontendHints::Number& number) {
             // of one list its place is known, of lists in lists their order
             const bool may_be = tensor.sizes.size() != 1 || item == trace::kNone ||
                                 number.item == trace::kNone || number.item == item;
             const bool is_other =
                 number.use == Use::kIndex && tensor.dtype != trace::DType::kInt64;
             return may_be && !is_other &&
                    trace::is_element(trace::number_of(number.value), tensor.dtype, element->bytes);
           });
    });
  }

  template <typename Fits>
  void take(const trace::ScalarSite& site, Fits&& fits) {
    if (!take_as_given(site, fits)) take_from_one(site, fits);
  }

  template <typename Fits>
  bool take_as_given(const trace::ScalarSite& site, Fits&& fits) {
    const auto& announced = hints_.announced();
    for (std::size_t i = 0; i < announced.size(); ++i) {
      if (!fits(announced[i])) continue;
      for (std::size_t other = i + 1; other < announced.size(); ++other) {
        if (!fits(announced[other]) || announced[other].formula == announced[i].formula) {
          continue;
        }
        hints_.require(trace::same_bits(announced[i].formula, announced[other].formula), true);
      }
      // a front end has seen to it that an index is none of the others
      const bool is_certain = is_view_ && announced[i].use == Use::kIndex;
      if (!is_certain) taken_.push_back({hints_.sites().size(), announced[i].value});
      hints_.take(i, site, announced[i].formula);
      return true;
    }
    return false;
  }

  /// `narrow` gives aten::slice an end that is its start plus its length.
  void take_end(const trace::Op& op, trace::Index index) {
    const trace::Index end = trace::kBeginsAt + 1;
    if (taken_.size() != 1 || op.inputs.size() <= end) return;
    const FrontendHints::Site begin = hints_.sites()[taken_.front().site];
    const auto* last = std::get_if<std::int64_t>(&op.inputs[end].data);
    if (begin.site.argument != trace::kBeginsAt || last == nullptr) return;
    const double count = static_cast<double>(*last) - trace::number_of(taken_.front().value);
    hints_.add_site({index, end, trace::kNone, trace::kNone, trace::kNone},
                    begin.formula + trace::constant(count));
  }

  /// What dropout draws by is `1 - p`.
  template <typename Fits>
  void take_from_one(const trace::ScalarSite& site, Fits&& fits) {
    const auto& announced = hints_.announced();
    for (std::size_t i = 0; i < announced.size(); ++i) {
      const auto* given = std::get_if<trace::Real>(&announced[i].value.data);
      if (given == nullptr || announced[i].use != Use::kAny) continue;
      FrontendHints::Number rest = announced[i];
      rest.value = trace::Value{trace::Real{1 - given->value}};
      if (!fits(rest)) continue;
      taken_.push_back({hints_.sites().size(), rest.value});
      hints_.take(i, site, trace::constant(1) - rest.formula);
      return;
    }
  }

  FrontendHints& hints_;
  const trace::Recording& recording_;
  trace::BufferId first_new_;
  std::vector<Taken> taken_;
  bool is_view_ = false;
  bool fills_ = false;  ///< whether the op is what torch 2.15 assigns a number to an item by
};

}  // namespace

void take_announced(FrontendHints& hints, const trace::Recording& recording, const trace::Op& op,
                    trace::Index index, trace::BufferId first_new,
                    const std::vector<bool>& may_follow) {
  Takes(hints, recording, first_new).take_all(op, index, may_follow);
}

}  // namespace steptape::recorder
