#include "live/op_digest.h"

#include <bit>

#include "live/operators.h"
#include "live/tensors.h"
#include "live/values.h"

namespace steptape::live {
namespace {

class Sum {
 public:
  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || unplannable_kind(tensor) || foreign_device(tensor)) return;
    const trace::Digest digest = digest_with_shape(tensor);
    sum_.low = std::rotl(sum_.low, 7) ^ digest.low;
    sum_.high = std::rotl(sum_.high, 7) ^ digest.high;
  }
  trace::Digest take() const { return sum_; }

 private:
  trace::Digest sum_;
};

}  // namespace

std::vector<at::Tensor> written_tensors(const c10::OperatorHandle& op,
                                        c10::ArrayRef<c10::IValue> arguments) {
  std::vector<at::Tensor> written;
  const Effects& effects = effects_of(op);
  for (std::size_t a = 0; a < arguments.size(); ++a) {
    if (!effects.writes[a]) continue;
    for_each_tensor(arguments[a], [&](const at::Tensor& tensor) { written.push_back(tensor); });
  }
  return written;
}

trace::Digest op_digest(c10::ArrayRef<c10::IValue> results,
                        const std::vector<at::Tensor>& written) {
  Sum sum;
  for (const c10::IValue& result : results) {
    for_each_tensor(result, [&](const at::Tensor& tensor) { sum.add(tensor); });
  }
  for (const at::Tensor& tensor : written) sum.add(tensor);
  return sum.take();
}

}  // namespace steptape::live
