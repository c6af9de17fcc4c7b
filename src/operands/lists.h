// Lists of parameters as types, from which front ends define their functions.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <type_traits>

namespace cleave {

/// A string as a template argument.
template <size_t kSize>
struct Text {
  char characters[kSize];
  consteval Text(const char (&text)[kSize]) { std::copy_n(text, kSize, characters); }
};

template <class... Ps>
struct List {};

template <class... Ps, class... Qs>
List<Ps..., Qs...> operator+(List<Ps...>, List<Qs...>);

namespace detail {

template <class P, class... Qs>
std::conditional_t<(std::same_as<P, Qs> || ...), List<>, List<P>> unless(List<Qs...>);

template <class... Ps, class Left>
auto without(List<Ps...>, Left left) -> decltype((List<>() + ... + unless<Ps>(left)));

}  // namespace detail

template <class... Lists>
using Concat = decltype((List<>() + ... + Lists()));

/// The parameters of `From` that are not in `Left`.
template <class From, class Left>
using Without = decltype(detail::without(From(), Left()));

}  // namespace cleave
