#include "python/engine/dict_memo.h"

#include "python/engine/plain.h"

namespace steptape::python {

std::uint64_t version_of(PyObject* dict) {
#if PY_VERSION_HEX < 0x030D0000
  // deprecated from 3.12 on (PEP 699)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<const PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
#else
  // 3.13 does not count stores to attributes of an instance
  static_cast<void>(dict);
  return 0;
#endif
}

std::optional<bool> DictMemo::same(PyObject* dict) const {
  if (version_ == 0 || version_ != version_of(dict)) return std::nullopt;
  for (const Inner& inner : dicts_) {
    if (version_of(inner.dict) != inner.version || !inner.plain->admits(inner.dict))
      return std::nullopt;
  }
  for (const auto& [plain, now] : nested_) {
    if (!plain->same(now)) return false;
  }
  return true;
}

void DictMemo::add(const Plain& plain, PyObject* now) {
  if (!plain.is_mutable() && !plain.may_be_exchanged()) return;
  const DictMemo* inner = plain.memo_of(now);
  if (inner == nullptr) {
    nested_.emplace_back(&plain, now);
    return;
  }
  dicts_.push_back({now, inner->version_, &plain});
  dicts_.insert(dicts_.end(), inner->dicts_.begin(), inner->dicts_.end());
  nested_.insert(nested_.end(), inner->nested_.begin(), inner->nested_.end());
}

void DictMemo::keep(PyObject* dict) {
  // the order of an OrderedDict may change and be no change of the dict
  if (!PyODict_Check(dict) || PyDict_GET_SIZE(dict) <= 1) version_ = version_of(dict);
}

}  // namespace steptape::python
