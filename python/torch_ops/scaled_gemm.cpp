#include "autograd.h"
#include "ops.h"
#include "product.h"

namespace cleave::torch_ops {

Tensor scaled_gemm(const Tensor& a, const Tensor& b, const MaybeTensor& scale_a,
                   const MaybeTensor& scale_b, const MaybeTensor& bias,
                   std::optional<ScalarType> out_dtype, bool use_fast_accum) {
  return multiply({.a = read(a),
                   .b = read(b),
                   .bias = read(bias),
                   .scale_a = read(scale_a),
                   .scale_b = read(scale_b)},
                  {.out_dtype = out_dtype, .use_fast_accum = use_fast_accum});
}

Tensor scaled_gemm_full(const Tensor& a, const Tensor& b, const MaybeTensor& scale_a,
                        const MaybeTensor& scale_b, const MaybeTensor& bias,
                        std::optional<ScalarType> out_dtype, bool use_fast_accum,
                        const MaybeTensor& c, double alpha, std::optional<double> beta,
                        Name<Activation> activation, const MaybeTensor& scale_d,
                        const MaybeTensor& azp, const MaybeTensor& azp_adj,
                        Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices) {
  const ProductOptions options{alpha,        beta,           activation,    out_dtype,
                               split_k_mode, split_k_slices, use_fast_accum};
  return multiply({.a = read(a),
                   .b = read(b),
                   .c = read(c),
                   .bias = read(bias),
                   .scale_a = read(scale_a),
                   .scale_b = read(scale_b),
                   .scale_d = read(scale_d),
                   .azp = read(azp),
                   .azp_adj = read(azp_adj)},
                  options);
}

void scaled_gemm_out(const Tensor& a, const Tensor& b, const MaybeTensor& scale_a,
                     const MaybeTensor& scale_b, const MaybeTensor& bias, bool use_fast_accum,
                     const MaybeTensor& c, double alpha, std::optional<double> beta,
                     Name<Activation> activation, const MaybeTensor& scale_d,
                     const MaybeTensor& azp, const MaybeTensor& azp_adj,
                     Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                     const Tensor& out, const MaybeTensor& amax) {
  const ProductOptions options{alpha,        beta,           activation,    {},
                               split_k_mode, split_k_slices, use_fast_accum};
  multiply_out({.a = read_untracked(a, "a"),
                .b = read_untracked(b, "b"),
                .c = read_untracked(c, "c"),
                .bias = read_untracked(bias, "bias"),
                .out = read_untracked(out, "out"),
                .scale_a = read_untracked(scale_a, "scale_a"),
                .scale_b = read_untracked(scale_b, "scale_b"),
                .scale_d = read_untracked(scale_d, "scale_d"),
                .amax = read_untracked(amax, "amax"),
                .azp = read_untracked(azp, "azp"),
                .azp_adj = read_untracked(azp_adj, "azp_adj")},
               options);
  mark_written(out);
  mark_written(amax);
}

}  // namespace cleave::torch_ops
