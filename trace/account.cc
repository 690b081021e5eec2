#include "trace/account.h"

#include <fmt/format.h>

#include "trace/text/text.h"

namespace steptape::trace {

std::string_view short_place(std::string_view place) {
  const std::size_t folders = place.rfind('/');
  return folders == std::string_view::npos ? place : place.substr(folders + 1);
}

std::string heading_of(std::string_view step, std::string_view place, const Account& account) {
  return on_one_line(
             fmt::format("step \"{}\" ({}): {} calls: {} recorded, {} trials, {} audits, {} "
                         "replayed, {} eager",
                         step, short_place(place), account.calls(), account.recorded,
                         account.trials, account.audits, account.replayed, account.eager)) +
         "\n";
}

std::string lines_of(const Reason& reason) {
  const auto line = [](const std::string& text) { return on_one_line(text) + "\n"; };
  const std::string_view place = short_place(reason.place);
  std::string text;
  if (reason.is_refusal) {
    const std::string_view comma = reason.where.empty() || place.empty() ? "" : ", ";
    const std::string inside = fmt::format("{}{}{}", reason.where, comma, place);
    text = line(fmt::format("  refused {}×: {}: {}{}", reason.times, reason.code, reason.text,
                            inside.empty() ? "" : " [" + inside + "]"));
  } else {
    text = line(fmt::format("  fell back {}×: {}", reason.times, reason.text));
  }
  if (!reason.source.empty()) text += line(fmt::format("      {}: {}", place, reason.source));
  if (!reason.remedy.empty()) text += line("      remedy: " + reason.remedy);
  return text;
}

}  // namespace steptape::trace
