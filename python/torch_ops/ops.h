// The operators, one function per schema of library.cpp.
#pragma once

#include <tuple>
#include <vector>

#include "name.h"
#include "tensor.h"

namespace cleave::torch_ops {

using MaybeTensor = std::optional<Tensor>;

Tensor gemm(const Tensor& a, const Tensor& b, const MaybeTensor& bias, const MaybeTensor& c,
            double alpha, std::optional<double> beta, Name<Activation> activation,
            std::optional<ScalarType> out_dtype, Name<SplitKMode> split_k_mode,
            std::optional<int64_t> split_k_slices);

void gemm_out(const Tensor& a, const Tensor& b, const MaybeTensor& bias, const MaybeTensor& c,
              double alpha, std::optional<double> beta, Name<Activation> activation,
              Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
              const Tensor& out);

Tensor scaled_gemm(const Tensor& a, const Tensor& b, const MaybeTensor& scale_a,
                   const MaybeTensor& scale_b, const MaybeTensor& bias,
                   std::optional<ScalarType> out_dtype, bool use_fast_accum);

Tensor scaled_gemm_full(const Tensor& a, const Tensor& b, const MaybeTensor& scale_a,
                        const MaybeTensor& scale_b, const MaybeTensor& bias,
                        std::optional<ScalarType> out_dtype, bool use_fast_accum,
                        const MaybeTensor& c, double alpha, std::optional<double> beta,
                        Name<Activation> activation, const MaybeTensor& scale_d,
                        const MaybeTensor& azp, const MaybeTensor& azp_adj,
                        Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices);

void scaled_gemm_out(const Tensor& a, const Tensor& b, const MaybeTensor& scale_a,
                     const MaybeTensor& scale_b, const MaybeTensor& bias, bool use_fast_accum,
                     const MaybeTensor& c, double alpha, std::optional<double> beta,
                     Name<Activation> activation, const MaybeTensor& scale_d,
                     const MaybeTensor& azp, const MaybeTensor& azp_adj,
                     Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                     const Tensor& out, const MaybeTensor& amax);

Tensor grouped_gemm(const Tensor& a, const Tensor& b, const MaybeTensor& offs,
                    const MaybeTensor& bias, std::optional<ScalarType> out_dtype,
                    const MaybeTensor& scale_a, const MaybeTensor& scale_b, bool use_fast_accum);

Tensor grouped_gemm_full(const Tensor& a, const Tensor& b, const MaybeTensor& offs,
                         const MaybeTensor& bias, std::optional<ScalarType> out_dtype,
                         const MaybeTensor& scale_a, const MaybeTensor& scale_b,
                         bool use_fast_accum, const MaybeTensor& c, const MaybeTensor& indptr,
                         const MaybeTensor& starts, const MaybeTensor& sizes,
                         const MaybeTensor& counts, std::optional<int64_t> alignment, double alpha,
                         std::optional<double> beta, Name<Activation> activation,
                         std::optional<bool> zero_rest, Name<SplitKMode> split_k_mode,
                         std::optional<int64_t> split_k_slices);

void grouped_gemm_out(const Tensor& a, const Tensor& b, const MaybeTensor& offs,
                      const MaybeTensor& bias, const MaybeTensor& scale_a,
                      const MaybeTensor& scale_b, bool use_fast_accum, const MaybeTensor& c,
                      const MaybeTensor& indptr, const MaybeTensor& starts,
                      const MaybeTensor& sizes, const MaybeTensor& counts,
                      std::optional<int64_t> alignment, double alpha, std::optional<double> beta,
                      Name<Activation> activation, std::optional<bool> zero_rest,
                      Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                      const Tensor& out);

/// Sizes and geometry of convolutions: a list may have one number for all axes, and padding two for
/// each, those before the axes first.
using Integers = std::vector<int64_t>;

Tensor conv(const Tensor& input, const Tensor& weight, const MaybeTensor& bias,
            const Integers& stride, const Integers& padding, const Integers& dilation,
            int64_t groups);

Tensor conv_full(const Tensor& input, const Tensor& weight, const MaybeTensor& bias,
                 const Integers& stride, const Integers& padding, const Integers& dilation,
                 int64_t groups, const MaybeTensor& c, double alpha, std::optional<double> beta,
                 Name<Activation> activation, std::optional<ScalarType> out_dtype,
                 Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices);

void conv_out(const Tensor& input, const Tensor& weight, const MaybeTensor& bias,
              const Integers& stride, const Integers& padding, const Integers& dilation,
              int64_t groups, const MaybeTensor& c, double alpha, std::optional<double> beta,
              Name<Activation> activation, Name<SplitKMode> split_k_mode,
              std::optional<int64_t> split_k_slices, const Tensor& out);

Tensor conv_dgrad(const Integers& input_size, const Tensor& weight, const Tensor& grad_output,
                  const Integers& stride, const Integers& padding, const Integers& dilation,
                  int64_t groups, const MaybeTensor& bias);

Tensor conv_dgrad_full(const Integers& input_size, const Tensor& weight, const Tensor& grad_output,
                       const Integers& stride, const Integers& padding, const Integers& dilation,
                       int64_t groups, const MaybeTensor& bias, const MaybeTensor& c, double alpha,
                       std::optional<double> beta, Name<Activation> activation,
                       std::optional<ScalarType> out_dtype, Name<SplitKMode> split_k_mode,
                       std::optional<int64_t> split_k_slices);

void conv_dgrad_out(const Integers& input_size, const Tensor& weight, const Tensor& grad_output,
                    const Integers& stride, const Integers& padding, const Integers& dilation,
                    int64_t groups, const MaybeTensor& bias, const MaybeTensor& c, double alpha,
                    std::optional<double> beta, Name<Activation> activation,
                    Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                    const Tensor& out);

Tensor conv_wgrad(const Tensor& input, const Integers& weight_size, const Tensor& grad_output,
                  const Integers& stride, const Integers& padding, const Integers& dilation,
                  int64_t groups);

Tensor conv_wgrad_full(const Tensor& input, const Integers& weight_size, const Tensor& grad_output,
                       const Integers& stride, const Integers& padding, const Integers& dilation,
                       int64_t groups, const MaybeTensor& c, double alpha,
                       std::optional<double> beta, std::optional<ScalarType> out_dtype,
                       Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices);

void conv_wgrad_out(const Tensor& input, const Integers& weight_size, const Tensor& grad_output,
                    const Integers& stride, const Integers& padding, const Integers& dilation,
                    int64_t groups, const MaybeTensor& c, double alpha, std::optional<double> beta,
                    Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                    const Tensor& out);

std::tuple<Tensor, Tensor> quantize(const Tensor& x, ScalarType dtype,
                                    Name<Granularity> granularity, const MaybeTensor& smooth,
                                    Name<Major> scale_major);

void quantize_out(const Tensor& x, Name<Granularity> granularity, const MaybeTensor& smooth,
                  const Tensor& out, const Tensor& scale_out);

std::tuple<Tensor, Tensor, Tensor> quantize_asymmetric(const Tensor& x,
                                                       Name<Granularity> granularity,
                                                       const MaybeTensor& smooth);

void quantize_asymmetric_out(const Tensor& x, Name<Granularity> granularity,
                             const MaybeTensor& smooth, const Tensor& out, const Tensor& scale_out,
                             const Tensor& zero_out);

Tensor quantize_static(const Tensor& x, const Tensor& scale, ScalarType dtype,
                       Name<Granularity> granularity, const MaybeTensor& smooth,
                       const MaybeTensor& zero);

void quantize_static_out(const Tensor& x, const Tensor& scale, Name<Granularity> granularity,
                         const MaybeTensor& smooth, const MaybeTensor& zero, const Tensor& out);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> quantize_grouped(const Tensor& x,
                                                                    const Tensor& offs,
                                                                    ScalarType dtype,
                                                                    Name<Major> scale_major);

Tensor moe_expert_offsets(const Tensor& expert_ids, int64_t num_experts);

std::tuple<Tensor, Tensor> moe_sort_tokens(const Tensor& expert_ids, int64_t num_experts);

std::tuple<Tensor, Tensor, Tensor> moe_permute(const Tensor& x, const Tensor& expert_ids,
                                               int64_t num_experts);

Tensor moe_gather(const Tensor& x, const Tensor& indices);

Tensor moe_unpermute(const Tensor& y, const Tensor& indices, const MaybeTensor& weights,
                     std::optional<int64_t> top_k);

std::tuple<Tensor, Tensor> moe_unpermute_backward(const Tensor& grad, const Tensor& y,
                                                  const Tensor& indices, const Tensor& weights);

}  // namespace cleave::torch_ops
