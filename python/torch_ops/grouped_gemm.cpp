#include "autograd.h"
#include "ops.h"
#include "product.h"

namespace cleave::torch_ops {

Tensor grouped_gemm(const Tensor& a, const Tensor& b, const MaybeTensor& offs,
                    const MaybeTensor& bias, std::optional<ScalarType> out_dtype,
                    const MaybeTensor& scale_a, const MaybeTensor& scale_b, bool use_fast_accum) {
  return multiply({.a = read(a),
                   .b = read(b),
                   .bias = read(bias),
                   .scale_a = read(scale_a),
                   .scale_b = read(scale_b),
                   .offs = read(offs)},
                  {.out_dtype = out_dtype, .use_fast_accum = use_fast_accum, .grouped = true});
}

Tensor grouped_gemm_full(const Tensor& a, const Tensor& b, const MaybeTensor& offs,
                         const MaybeTensor& bias, std::optional<ScalarType> out_dtype,
                         const MaybeTensor& scale_a, const MaybeTensor& scale_b,
                         bool use_fast_accum, const MaybeTensor& c, const MaybeTensor& indptr,
                         const MaybeTensor& starts, const MaybeTensor& sizes,
                         const MaybeTensor& counts, std::optional<int64_t> alignment, double alpha,
                         std::optional<double> beta, Name<Activation> activation,
                         std::optional<bool> zero_rest, Name<SplitKMode> split_k_mode,
                         std::optional<int64_t> split_k_slices) {
  const ProductOptions options{alpha,          beta,           activation, out_dtype, split_k_mode,
                               split_k_slices, use_fast_accum, true,       alignment, zero_rest};
  return multiply({.a = read(a),
                   .b = read(b),
                   .c = read(c),
                   .bias = read(bias),
                   .scale_a = read(scale_a),
                   .scale_b = read(scale_b),
                   .offs = read(offs),
                   .indptr = read(indptr),
                   .starts = read(starts),
                   .sizes = read(sizes),
                   .counts = read(counts)},
                  options);
}

void grouped_gemm_out(const Tensor& a, const Tensor& b, const MaybeTensor& offs,
                      const MaybeTensor& bias, const MaybeTensor& scale_a,
                      const MaybeTensor& scale_b, bool use_fast_accum, const MaybeTensor& c,
                      const MaybeTensor& indptr, const MaybeTensor& starts,
                      const MaybeTensor& sizes, const MaybeTensor& counts,
                      std::optional<int64_t> alignment, double alpha, std::optional<double> beta,
                      Name<Activation> activation, std::optional<bool> zero_rest,
                      Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                      const Tensor& out) {
  const ProductOptions options{alpha,          beta,           activation, {},        split_k_mode,
                               split_k_slices, use_fast_accum, true,       alignment, zero_rest};
  multiply_out({.a = read_untracked(a, "a"),
                .b = read_untracked(b, "b"),
                .c = read_untracked(c, "c"),
                .bias = read_untracked(bias, "bias"),
                .out = read_untracked(out, "out"),
                .scale_a = read_untracked(scale_a, "scale_a"),
                .scale_b = read_untracked(scale_b, "scale_b"),
                .offs = read_untracked(offs, "offs"),
                .indptr = read_untracked(indptr, "indptr"),
                .starts = read_untracked(starts, "starts"),
                .sizes = read_untracked(sizes, "sizes"),
                .counts = read_untracked(counts, "counts")},
               options);
  mark_written(out);
}

}  // namespace cleave::torch_ops
