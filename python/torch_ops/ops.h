// The operators, one function per schema of library.cpp.
#pragma once

#include <tuple>

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

}  // namespace cleave::torch_ops
