#include <ATen/ATen.h>
#include <steptape/steptape.h>

int main() {
  const auto weight = at::ones({8, 8});
  steptape::Session session({.trace = "consumer.tape"});
  session.track("weight", weight);
  auto step = session.wrap("grow", [&](at::Tensor x) { return weight.add_(at::mm(x, x)).sum(); });
  for (int i = 0; i < 10; ++i) step(at::eye(8));
  session.save("consumer.tape");
  const bool right = weight.equal(at::ones({8, 8}) + at::eye(8) * 10);
  return right && step.stats().replayed > 0 ? 0 : 1;
}
