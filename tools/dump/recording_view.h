#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tools/cli/json.h"
#include "trace/model.h"

namespace steptape::tools {

/// Lines of text, each with what stands before all lines of its part.
class Lines {
 public:
  explicit Lines(std::string indent) : indent_(std::move(indent)) {}
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_ += indent_ + fmt::format(format, std::forward<Args>(args)...) + "\n";
  }
  /// "head item, item," and below it what is more than 80 columns hold, indented as wide as `head`.
  void list(const std::string& head, const std::vector<std::string>& items);
  /// What lines begin with from here on.
  void set_indent(std::string indent) { indent_ = std::move(indent); }
  std::string take() { return std::move(text_); }

 private:
  std::string indent_;
  std::string text_;
};

/// What `steptape dump` shows of each recording of a trace when it is asked for one respect alone.
class RecordingView {
 public:
  virtual ~RecordingView() = default;
  virtual std::string text(const trace::Step& step, std::size_t position) const = 0;
  /// The object that stands for the recording, to which its position and status are added.
  virtual Json json(const trace::Step& step, std::size_t position) const = 0;
};

/// The view of every recording, under the headings of its step and recording. Warm-ups are marked.
std::string view_text(const trace::Trace& trace, const RecordingView& view);
Json view_json(const trace::Trace& trace, const RecordingView& view);

}  // namespace steptape::tools
