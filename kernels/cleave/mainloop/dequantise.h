// Which way of making elements of a packed weight is a kernel's.
#pragma once

#include "cleave/mainloop/dequantise_e2m1.h"
#include "cleave/mainloop/dequantise_int4.h"

namespace cleave {
namespace detail {

template <GemmConfig C>
struct DequantiserOf {
  using type = DequantiseInt4<C>;
};
template <GemmConfig C>
  requires(C.weights.format == WeightFormat::mxfp4 || C.weights.format == WeightFormat::nvfp4)
struct DequantiserOf<C> {
  using type = DequantiseE2m1<C>;
};

}  // namespace detail

/// Row: what a row has for one group. rows(scales, zeros, to) makes those of a fragment's two rows of their bits,
/// pair(word, r, row) register `r` of a fragment.
template <GemmConfig C>
using Dequantiser = typename detail::DequantiserOf<C>::type;

}  // namespace cleave
