#include "live/tensors.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <vector>

#include "live/ambient.h"
#include "steptape/error.h"

namespace steptape::live {
namespace {

const c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  return *tensor.storage().unsafeGetStorageImpl();
}

TEST(DTypeTest, EveryNameOfATraceIsOneOfLibTorch) {
  for (std::uint32_t number = 0; number < 64; ++number) {
    if (!trace::is_dtype(number)) continue;
    const auto dtype = static_cast<trace::DType>(number);
    EXPECT_EQ(dtype_of(scalar_type_of(dtype)), dtype);
    EXPECT_EQ(c10::elementSize(scalar_type_of(dtype)), trace::bytes_of(dtype));
  }
}

TEST(DTypeTest, QuantizedTypesHaveNoName) { EXPECT_THROW(dtype_of(at::ScalarType::QInt8), Error); }

TEST(DeviceTest, GoesBothWays) {
  EXPECT_EQ(device_of(device_of(c10::Device("cuda:1"))), c10::Device("cuda:1"));
  EXPECT_EQ(device_of(device_of(c10::Device("cpu"))), c10::Device("cpu"));
  EXPECT_THROW(device_of(trace::Device{trace::DeviceKind::kOther, 0}), Error);
}

TEST(KindTest, PlainTensorsHaveNone) {
  EXPECT_FALSE(unplannable_kind(at::zeros({2, 3}).t()));
  EXPECT_FALSE(unplannable_kind(at::zeros({2}, at::kComplexFloat).conj()));
}

TEST(KindTest, NamesWhatNoPlanHolds) {
  EXPECT_EQ(unplannable_kind(at::eye(3).to_sparse()), "sparse");
  EXPECT_EQ(unplannable_kind(at::eye(3).to_sparse_csr()), "sparse");
  EXPECT_EQ(unplannable_kind(at::empty({3}, at::device(at::kMeta))), "meta");
  EXPECT_EQ(unplannable_kind(at::_efficientzerotensor({3})), "a zero tensor");
  EXPECT_EQ(unplannable_kind(at::quantize_per_tensor(at::ones({2}), 0.1, 0, at::kQInt8)),
            "quantized");
}

TEST(GeometryTest, KeepsSizesStridesOffsetAndBits) {
  const auto tensor = at::zeros({4, 5}, at::kComplexFloat).narrow(0, 1, 2).t().conj();
  const auto geometry = geometry_of(tensor, 7);
  EXPECT_EQ(geometry.buffer, 7u);
  EXPECT_EQ(geometry.dtype, trace::DType::kComplex64);
  EXPECT_EQ(geometry.sizes, (std::vector<std::int64_t>{5, 2}));
  EXPECT_EQ(geometry.strides, (std::vector<std::int64_t>{1, 5}));
  EXPECT_EQ(geometry.offset, 5);
  EXPECT_TRUE(geometry.conj);
  EXPECT_FALSE(geometry.wrapped_number);
}

TEST(DigestTest, OfATensorIsThatOfItsElementsInOrder) {
  const auto base = at::randn({6, 7});
  const auto strided = base.narrow(0, 1, 4).t();
  EXPECT_EQ(digest_of(strided), digest_of(strided.contiguous()));
  EXPECT_FALSE(digest_of(strided) == digest_of(strided.t()));
}

TEST(DigestTest, SeesThroughLazyBits) {
  const auto z = at::randn({3, 2}, at::kComplexDouble);
  EXPECT_EQ(digest_of(z.conj()), digest_of(z.conj().resolve_conj()));
  EXPECT_EQ(digest_of(at::imag(z.conj())), digest_of(at::imag(z.conj()).resolve_neg()));
}

TEST(DigestTest, OfAStorageNoticesAChangeOfOneByte) {
  auto tensor = at::zeros({1000});
  const auto before = sampled_digest(storage_of(tensor));
  EXPECT_EQ(before, full_digest(storage_of(tensor)));
  tensor.data_ptr<float>()[999] = 1;
  EXPECT_FALSE(before == sampled_digest(storage_of(tensor)));
}

TEST(DigestTest, OfALargeStorageLooksAtBothEnds) {
  auto tensor = at::zeros({3'000'001}, at::kByte);
  const auto before = sampled_digest(storage_of(tensor));
  tensor.data_ptr<std::uint8_t>()[3'000'000] = 1;
  const auto last = sampled_digest(storage_of(tensor));
  EXPECT_FALSE(before == last);
  tensor.data_ptr<std::uint8_t>()[0] = 1;
  EXPECT_FALSE(last == sampled_digest(storage_of(tensor)));
}

TEST(AmbientTest, NoticesASwitch) {
  const auto before = Ambient::current();
  EXPECT_EQ(before, Ambient::current());
  const c10::NoGradGuard no_grad;
  const auto after = Ambient::current();
  EXPECT_FALSE(before == after);
  EXPECT_EQ(after.facts().at(0), (trace::Fact{"grad_mode", "off"}));
}

TEST(AmbientTest, NamesTheEnvironmentInOneLineEach) {
  for (const auto& fact : environment()) {
    EXPECT_FALSE(fact.value.empty()) << fact.name;
    EXPECT_EQ(fact.value.find('\n'), std::string::npos) << fact.name;
  }
}

}  // namespace
}  // namespace steptape::live
