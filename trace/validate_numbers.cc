#include <fmt/format.h>

#include "trace/numbers.h"
#include "trace/validate.h"

namespace steptape::trace {
namespace {

class NumberChecker {
 public:
  explicit NumberChecker(const Recording& recording)
      : recording_(recording), elements_(recording) {}

  void check(const Place& place) const {
    check_each(*this, recording_.leaves, place, "leaf", &NumberChecker::check_leaf);
    check_each(*this, recording_.formulas, place, "formula", &NumberChecker::check_formula);
    check_each(*this, recording_.scalars, place, "scalar", &NumberChecker::check_site);
    check_each(*this, recording_.proofs, place, "proof", &NumberChecker::check_proof);
    check_each(*this, recording_.predicates, place, "predicate", &NumberChecker::check_predicate);
    check_each(*this, recording_.reads, place, "host read", &NumberChecker::check_read);
    check_each(*this, recording_.numbers, place, "number", &NumberChecker::check_number);
    if (recording_.observed > recording_.results.size()) {
      place.fail(fmt::format("{} results are observed, but there are {}", recording_.observed,
                             recording_.results.size()));
    }
    for (std::size_t i = 1; i < recording_.reads.size(); ++i) {
      if (recording_.reads[i].op <= recording_.reads[i - 1].op) {
        Place(place, "host read", i).fail("is out of order");
      }
    }
  }

 private:
  void check_leaf(const Leaf& leaf, const Place& place) const {
    if (name_of(leaf.kind) == "unknown") {
      place.fail(fmt::format("kind {} is none that exists", static_cast<unsigned>(leaf.kind)));
    }
    if (leaf.path.empty()) place.fail("has no path");
  }

  void check_formula(const Formula& formula, const Place& place) const {
    if (!is_well_formed(formula, recording_.leaves.size())) place.fail("is not well formed");
  }

  void check_site(const ScalarSite& site, const Place& place) const {
    check_index(site.formula, recording_.formulas.size(), "formula", place);
    if (site.op == kNone) return check_content_site(site, place);
    check_index(site.op, recording_.ops.size(), "op", place);
    const Op& op = recording_.ops[site.op];
    check_index(site.argument, op.inputs.size(), "argument", place);
    const Value* value = &op.inputs[site.argument];
    if (site.item != kNone) {
      const auto* list = std::get_if<List>(&value->data);
      if (list == nullptr) place.fail(fmt::format("argument {} is not a list", site.argument));
      check_index(site.item, list->size(), "item", place);
      value = &(*list)[site.item];
    }
    if (!is_number(*value)) place.fail("stands where no number is");
  }

  void check_content_site(const ScalarSite& site, const Place& place) const {
    check_index(site.buffer, recording_.buffers.size(), "buffer", place);
    const Buffer& buffer = recording_.buffers[site.buffer];
    if (!buffer.content || buffer.role != Role::kConstant) {
      place.fail(fmt::format("buffer {} is not a constant whose bytes are kept", site.buffer));
    }
    const std::optional<Element> element = elements_.at(site);
    if (!element || element->bytes.empty()) {
      place.fail(fmt::format("buffer {} has no such element", site.buffer));
    }
    if (site.item == kNone && element->bytes.size() != buffer.bytes) {
      place.fail(fmt::format("buffer {} holds more than one element", site.buffer));
    }
  }

  void check_proof(const Proof& proof, const Place& place) const {
    check_index(proof.formula, recording_.formulas.size(), "formula", place);
  }

  void check_predicate(const Predicate& predicate, const Place& place) const {
    check_index(predicate.formula, recording_.formulas.size(), "formula", place);
  }

  void check_read(const HostRead& read, const Place& place) const {
    check_index(read.op, recording_.ops.size(), "op", place);
    if (name_of(read.use) == "unknown") {
      place.fail(fmt::format("use {} is none that exists", static_cast<unsigned>(read.use)));
    }
    const Op& op = recording_.ops[read.op];
    if (op.outputs.size() != 1 || !is_number(op.outputs[0])) {
      place.fail(fmt::format("op {} gives no number", read.op));
    }
  }

  void check_number(const Number& number, const Place& place) const {
    if (!is_number(number.value)) place.fail("is not a number");
    if (number.formula != kNone) {
      check_index(number.formula, recording_.formulas.size(), "formula", place);
    }
    if (number.op == kNone) return;
    for (const HostRead& read : recording_.reads) {
      if (read.op == number.op) return;
    }
    place.fail(fmt::format("op {} is no host read", number.op));
  }

  const Recording& recording_;
  Elements elements_;
};

}  // namespace

void validate_numbers(const Recording& recording, const Place& place) {
  NumberChecker(recording).check(place);
}

}  // namespace steptape::trace
