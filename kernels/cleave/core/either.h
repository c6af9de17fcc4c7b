// Chooses one of two types by a constant.
#pragma once

namespace cleave {
namespace detail {

template <bool kFirst>
struct EitherOf {
  template <class A, class B>
  using type = A;
};
template <>
struct EitherOf<false> {
  template <class A, class B>
  using type = B;
};

}  // namespace detail

/// A if `kFirst`, else B. The other one need not be complete.
template <bool kFirst, class A, class B>
using Either = typename detail::EitherOf<kFirst>::template type<A, B>;

}  // namespace cleave
