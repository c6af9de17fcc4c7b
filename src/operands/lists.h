// Lists of parameters as types, of which front ends make their functions.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace cleave {

/// A string as an argument of templates.
template <size_t kSize>
struct Text {
  char characters[kSize];
  consteval Text(const char (&text)[kSize]) { std::copy_n(text, kSize, characters); }
};

template <class... Ps>
struct List {};

namespace detail {

template <class... Lists>
struct Concat {
  using Type = List<>;
};
template <class... Ps>
struct Concat<List<Ps...>> {
  using Type = List<Ps...>;
};
template <class... Ps, class... Qs, class... Lists>
struct Concat<List<Ps...>, List<Qs...>, Lists...> : Concat<List<Ps..., Qs...>, Lists...> {};

template <class P, class Left>
struct Unless;
template <class P, class... Qs>
struct Unless<P, List<Qs...>> {
  using Type = std::conditional_t<(std::same_as<P, Qs> || ...), List<>, List<P>>;
};

template <class From, class Left>
struct Without;
template <class... Ps, class Left>
struct Without<List<Ps...>, Left> : Concat<typename Unless<Ps, Left>::Type...> {};

}  // namespace detail

template <class... Lists>
using Concat = typename detail::Concat<Lists...>::Type;

/// The parameters of `From` that `Left` has not.
template <class From, class Left>
using Without = typename detail::Without<From, Left>::Type;

}  // namespace cleave
