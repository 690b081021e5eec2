#include "live/op_digest.h"

#include <bit>

#include "live/operators.h"
#include "live/tensors.h"
#include "live/values.h"

namespace steptape::live {
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

std::vector<at::Tensor> left_tensors(c10::ArrayRef<c10::IValue> results,
                                     const std::vector<at::Tensor>& written) {
  std::vector<at::Tensor> left;
  const auto add = [&left](const at::Tensor& tensor) {
    if (!tensor.defined() || unplannable_kind(tensor) || foreign_device(tensor)) return;
    left.push_back(tensor);
  };
  for (const c10::IValue& result : results) for_each_tensor(result, add);
  for (const at::Tensor& tensor : written) add(tensor);
  return left;
}

trace::Digest digest_of(const std::vector<at::Tensor>& left) {
  trace::Digest sum;
  for (const at::Tensor& tensor : left) {
    const trace::Digest digest = digest_with_shape(tensor);
    sum.low = std::rotl(sum.low, 7) ^ digest.low;
    sum.high = std::rotl(sum.high, 7) ^ digest.high;
  }
  return sum;
}

trace::Digest op_digest(c10::ArrayRef<c10::IValue> results,
                        const std::vector<at::Tensor>& written) {
  return digest_of(left_tensors(results, written));
}

}  // namespace steptape::live
