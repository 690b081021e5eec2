#include "tools/cli/command_outline.h"

namespace steptape::tools {
namespace {

std::vector<const CLI::App*> below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// The words of "TEXT:{auto,always,never}", as the help shows a choice.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

OptionOutline outline_of(const CLI::Option& option) {
  OptionOutline outline;
  for (const std::string& name : option.get_snames()) outline.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) outline.names.push_back("--" + name);
  outline.is_positional = outline.names.empty();
  if (outline.is_positional) outline.names.push_back(option.get_name(true));
  outline.description = option.get_description();
  outline.is_required = option.get_required();
  outline.takes_value = option.get_items_expected_max() > 0;
  if (outline.takes_value) outline.choices = choices_of(option);
  return outline;
}

/// Options of a command, those of its groups too, which are apps without a name and have a help of
/// their own that nobody can ask for.
void add_options(const CLI::App& app, std::vector<OptionOutline>& options) {
  for (const CLI::Option* option : app.get_options()) {
    const bool is_help_of_group = app.get_name().empty() && option == app.get_help_ptr();
    if (!is_help_of_group) options.push_back(outline_of(*option));
  }
  for (const CLI::App* group : below(app)) {
    if (group->get_name().empty()) add_options(*group, options);
  }
}

CommandOutline command_of(const CLI::App& app) {
  CommandOutline outline = {app.get_name(), app.get_description(), app.get_footer(), {}};
  add_options(app, outline.options);
  return outline;
}

}  // namespace

std::vector<CommandOutline> outline_of(const CLI::App& app) {
  std::vector<CommandOutline> outlines = {command_of(app)};
  for (const CLI::App* command : below(app)) {
    if (!command->get_name().empty()) outlines.push_back(command_of(*command));
  }
  return outlines;
}

}  // namespace steptape::tools
