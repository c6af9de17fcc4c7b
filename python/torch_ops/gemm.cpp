#include "autograd.h"
#include "ops.h"
#include "product.h"

namespace cleave::torch_ops {

Tensor gemm(const Tensor& a, const Tensor& b, const MaybeTensor& bias, const MaybeTensor& c,
            double alpha, std::optional<double> beta, Name<Activation> activation,
            std::optional<ScalarType> out_dtype, Name<SplitKMode> split_k_mode,
            std::optional<int64_t> split_k_slices) {
  const ProductOptions options{alpha, beta, activation, out_dtype, split_k_mode, split_k_slices};
  return multiply({.a = read(a), .b = read(b), .c = read(c), .bias = read(bias)}, options);
}

void gemm_out(const Tensor& a, const Tensor& b, const MaybeTensor& bias, const MaybeTensor& c,
              double alpha, std::optional<double> beta, Name<Activation> activation,
              Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
              const Tensor& out) {
  const ProductOptions options{alpha, beta, activation, {}, split_k_mode, split_k_slices};
  multiply_out({.a = read_untracked(a, "a"),
                .b = read_untracked(b, "b"),
                .c = read_untracked(c, "c"),
                .bias = read_untracked(bias, "bias"),
                .out = read_untracked(out, "out")},
               options);
  mark_written(out);
}

}  // namespace cleave::torch_ops
