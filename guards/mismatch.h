#pragma once

#include <cstdint>
#include <string>

#include "live/hooks.h"
#include "live/tensors.h"
#include "steptape/verdict.h"
#include "trace/model.h"

/// How guards put a mismatch into words. Called only once a check has failed.
namespace steptape::guards {

/// The verdict that `path` is not what the plan needs.
Verdict failed(GuardKind kind, std::string path, std::string expected, std::string found);
Verdict failed(GuardKind kind, std::string path, std::int64_t expected, std::int64_t found);
/// The same of a flag: "true" and "false".
Verdict failed_flag(GuardKind kind, std::string path, bool expected);

/// The first respect in which `tensor` has not the geometry `expected`; holds when it has. Device,
/// dtype, dimensions, sizes, strides, conj and neg; the offset is the caller's matter.
Verdict geometry_mismatch(const std::string& path, const trace::Tensor& expected,
                          const trace::Device& device, const at::Tensor& tensor);
/// Whether it lies where the trace says.
bool is_on(const at::Tensor& tensor, const trace::Device& device);
/// Whether `tensor` has the geometry: loads and compares alone.
bool has_geometry(const at::Tensor& tensor, const trace::Tensor& expected, at::ScalarType dtype);

/// The same of the offset, and of the bytes of its memory: as many as `buffer` has, or more.
Verdict offset_mismatch(const std::string& path, const trace::Tensor& expected,
                        const at::Tensor& tensor);
Verdict bytes_mismatch(const std::string& path, const trace::Buffer& buffer,
                       const c10::StorageImpl& storage);
/// Whether autograd would run others than `expected`.
Verdict hooks_mismatch(const std::string& path, const live::Hooks& expected,
                       const at::Tensor& tensor);
/// Whether memory at `address` may stand where `buffer` lay: ops pick other kernels by alignment.
Verdict alignment_mismatch(const std::string& path, const trace::Buffer& buffer,
                           const void* address);
/// Of a tensor that an op has just made: the first of these respects but the alignment, or that its
/// memory is not its own.
Verdict result_mismatch(const std::string& path, const trace::Tensor& expected,
                        const trace::Buffer& buffer, const at::Tensor& result);

}  // namespace steptape::guards
