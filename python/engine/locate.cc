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

Whose whose(std::string_view file) {
  const auto& folders = foreign_folders();
  const auto holds = [&file](const std::string& folder) { return file.starts_with(folder); };
  if (std::ranges::any_of(folders, holds) || file.starts_with('<')) return Whose::kOurs;
  const bool is_package = file.find("/site-packages/") != file.npos ||
                          file.find("/dist-packages/") != file.npos ||
                          file.find("/lib/python3") != file.npos;
  return is_package ? Whose::kPackage : Whose::kProgram;
}

std::string place_of(PyFrameObject* frame, std::string_view file) {
  return std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(frame));
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
    const auto code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(current)));
    const std::string_view file = view_of(reinterpret_cast<PyCodeObject*>(code.ptr())->co_filename);
    const Whose owner = whose(file);
    if (owner == Whose::kProgram) return place_of(current, file);
    if (owner == Whose::kPackage && package.empty()) package = place_of(current, file);
    frame =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(current)));
  }
  return package;
}

}  // namespace steptape::python
