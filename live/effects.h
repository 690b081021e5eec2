#pragma once

#include <span>
#include <string_view>

/// The exceptions to what schemas and tags say about operators: data, each row with the reason it
/// is needed.
namespace steptape::live {

enum class ExceptionKind {
  kWrites,            ///< writes the named arguments without a write annotation
  kAlias,             ///< returns its first argument's memory without an alias annotation
  kReturns,           ///< returns the named argument among its results, as it is
  kDraws,             ///< draws from a state of its own in training, if the named argument is not 0
  kGeometryQuestion,  ///< returns a host value that follows from geometry: no host read
  kChangesStorage,    ///< changes size or identity of a storage: geometry alone does not tell it
  kDynamicShape,      ///< the shape of a result depends on bytes though no tag says so
  kThrowsOnData,      ///< pointwise, but may raise depending on the bytes
  kNeverThrows,       ///< not pointwise, and what it checks is geometry alone
  kSizesByScalar,     ///< a Scalar argument decides the shape of a result
  kUnreadAtZero,      ///< does not look at its first argument where the named one is 0
  kFillsByIndex,      ///< writes all of its first argument where the named one has each index once
  kGivesEachIndex,    ///< gives, in one dimension, each index once, as its last result
  kExchanges,         ///< a collective; the named argument is written, whatever it holds before
  kSideEffect,        ///< acts on something that is not a tensor: a file, a stream, the console
};

struct Exception {
  /// "aten::copy_ aten::fill_": every overload; "c10d::": every operator of the library.
  std::string_view names;
  ExceptionKind kind;
  std::string_view
      arguments;  ///< kWrites: names, comma-separated; empty: every tensor. kReturns,
                  ///< kDraws, kUnreadAtZero, kFillsByIndex: one; kExchanges: one or none
  std::string_view reason;

  bool is_of(std::string_view name) const noexcept;
};

std::span<const Exception> exceptions() noexcept;

/// The row of this kind for the operator `name`, or null.
const Exception* find_exception(std::string_view name, ExceptionKind kind) noexcept;

}  // namespace steptape::live
