#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "tests/trace/text/text_reader.h"
#include "trace/model.h"

namespace steptape::trace {

/// Fills one recording from the lines that follow its `recording` line.
class RecordingParser {
 public:
  /// `reader` stands after the word `recording`; both must outlive the parser.
  RecordingParser(TextReader& reader, Recording& recording);

  /// Reads the line on which the reader stands; false, with nothing taken, when its first word
  /// belongs to no recording.
  bool parse_line();

 private:
  using Parse = void (RecordingParser::*)();
  static Parse parse_of(std::string_view word) noexcept;

  void parse_ambient();
  void parse_operator();
  void parse_module();
  void parse_option();
  void parse_scope();
  void parse_buffer();
  void parse_tensor();
  void parse_tracked();
  void parse_input();
  void parse_optimizer();
  void parse_group();
  void parse_hyperparameter();
  void parse_parameter();
  void parse_state();
  void parse_op();
  void parse_op_attributes(Op& op);
  /// Of what each op has, or none, `count` have it with this one's.
  void require_all_have(std::size_t count, std::string_view what);
  void parse_access();
  void parse_generator();
  void parse_seek();
  void parse_result();
  void parse_exit_gradient();
  void parse_exit_memory();
  void parse_refusal();
  void parse_host_value();
  void parse_lookup();
  void parse_fact();
  void parse_leaf();
  void parse_formula();
  void parse_scalar();
  void parse_window();
  void parse_proof();
  void parse_predicate();
  void parse_advance();
  void parse_read();
  void parse_number();
  void parse_observed();
  void parse_update();
  void parse_effect();
  void parse_place();
  void parse_held();

  Index take_op(std::string_view expected);
  void take_named_value(std::vector<NamedValue>& values);
  void take_aliases(std::vector<std::string>& aliases);

  Index take_operator();
  std::uint32_t take_call();
  void expect_position(char prefix, std::size_t position);
  OptimizerLayout& last_optimizer();
  ParameterGroup& last_group();

  TextReader& in_;
  Recording& recording_;
  std::unordered_map<std::string, Index> operators_;  ///< the first of each full name
};

}  // namespace steptape::trace
