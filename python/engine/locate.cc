#include "python/engine/locate.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "python/engine/python.h"

namespace steptape::python {
namespace {

enum class Whose { kProgram, kPackage, kOurs };

std::vector<std::string>& foreign_folders() {
  static std::vector<std::string> folders;
  return folders;
}

Whose whose(const std::string& file) {
  const auto& folders = foreign_folders();
  const auto holds = [&file](const std::string& folder) { return file.starts_with(folder); };
  if (std::ranges::any_of(folders, holds) || file.starts_with('<')) return Whose::kOurs;
  const bool is_package = file.find("/site-packages/") != std::string::npos ||
                          file.find("/dist-packages/") != std::string::npos ||
                          file.find("/lib/python3") != std::string::npos;
  return is_package ? Whose::kPackage : Whose::kProgram;
}

std::string place_of(PyFrameObject* frame, const std::string& file) {
  return file + ":" + std::to_string(PyFrame_GetLineNumber(frame));
}

std::string file_of(PyFrameObject* frame) {
  const auto code =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  return text_of(reinterpret_cast<PyCodeObject*>(code.ptr())->co_filename);
}

}  // namespace

void set_foreign_folders(std::vector<std::string> folders) {
  foreign_folders() = std::move(folders);
}

std::string locate() {
  if (Py_IsInitialized() == 0) return "";
  const py::gil_scoped_acquire gil;
  auto frame = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string package;
  while (frame) {
    auto* current = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const std::string file = file_of(current);
    const Whose owner = whose(file);
    if (owner == Whose::kProgram) return place_of(current, file);
    if (owner == Whose::kPackage && package.empty()) package = place_of(current, file);
    frame =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(current)));
  }
  return package;
}

}  // namespace steptape::python
