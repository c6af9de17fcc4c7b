#include "plan/no_kernel.h"

#include "base/refuse.h"
#include "cleave/names.h"
#include "launch/conv_grid.h"
#include "plan/batch_invariant.h"
#include "plan/catalogue/candidates.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// As an argument.
const char* promise_text(const GemmProblem& p) {
  return p.deterministic == Determinism::k_order ? "sum_order=\"k\"" : "deterministic=\"batch_invariant\"";
}

}  // namespace

void refuse_unserved(const GemmProblem& problem, const DeviceInfo& device) {
  if (is_batch_invariant(problem) && cheapest(problem, device, Kernels::all).choice) {
    const bool k_order = problem.deterministic == Determinism::k_order;
    refuse(ErrorCode::unsupported,
           "{} cannot be served: no kernel adds up k={} for n={} in one order for every number of rows with what else "
           "is asked; leave split_k_mode, split_k_slices and kernel to the library, or {}",
           promise_text(problem), problem.k, problem.n, k_order ? "leave sum_order out" : "pass deterministic=True");
  }
  if (problem.weights_b.format != WeightFormat::none) {
    refuse(
        ErrorCode::unsupported,
        "packed weights cannot be served on {} with kernel=\"{}\", split_k_mode=\"{}\" and split_k_slices={}: sm90 "
        "needs sm_90, rows of a that start at multiples of 16 bytes, and of cluster at most 16 slices; streamed needs "
        "a of 16 bits, contiguous along K, and split_k_mode none or parallel; copy a into such rows, choose another "
        "mode, or multiply by cleave.dequantize_weights(weights)",
        device.name, to_string(problem.kernel), to_string(problem.split_k_mode), problem.split_k_slices);
  }
  if (problem.kernel == KernelFamily::sm90 && problem.conv.kind != Conv::none) {
    refuse(ErrorCode::unsupported,
           "kernel=\"sm90\" cannot serve this convolution on {}: it needs sm_90, channels and filters whose bytes are "
           "multiples of 16, 16-bit operands (or fprop), groups of whole blocks of 128 bytes or at most 32 wider "
           "ones, strides up to 8 (4 x 4 in dgrad), and padding and filters within 128 pixels (16 where there is "
           "depth); use kernel=\"portable\" or \"auto\"",
           device.name);
  }
  if (problem.kernel == KernelFamily::sm90) {
    refuse(ErrorCode::unsupported,
           "kernel=\"sm90\" cannot serve this problem on {}: TMA needs sm_90, rows of a and b that start at multiples "
           "of 16 bytes (under swiglu, with b contiguous along n, n columns of whole 16 bytes, too), K > 0 and, for "
           "float32, a and b contiguous along K; use kernel=\"portable\" or \"auto\"",
           device.name);
  }
  if (problem.kernel == KernelFamily::streamed) {
    refuse(
        ErrorCode::unsupported,
        "kernel=\"streamed\" serves packed weights alone (cleave.mixed_gemm), but b is a matrix; use kernel=\"auto\"");
  }
  if (problem.kernel == KernelFamily::direct) {
    refuse(
        ErrorCode::unsupported,
        "kernel=\"direct\" cannot serve this {}: it serves convolutions and gradients of narrow groups, few channels "
        "or few filters, as docs/convolution.md#direct-kernels lists them, without split_k_mode (weight gradients: "
        "\"parallel\") and without a function that reduces D (weight gradients: without any); use kernel=\"auto\"",
        problem.conv.kind == Conv::none ? "product" : "convolution");
  }
  if (problem.conv.kind != Conv::none && problem.split_k_mode == SplitKMode::stream_k) {
    refuse(ErrorCode::unsupported,
           "split_k_mode=\"stream_k\" does not serve a strided dgrad with groups; use \"parallel\" or \"serial\"");
  }
  if (is_gated(problem)) {
    refuse(
        ErrorCode::unsupported,
        "{}, and so the product cannot be served on {}: its kernels take no b that is contiguous along n if it has 8 "
        "bits or if gates and ups alternate, no split_k_mode=\"cluster\", no scales that 128 columns share where n "
        "is no multiple of 128, with out_scale in groups no split_k_mode=\"parallel\" and, where columns have scales "
        "of blocks, no \"stream_k\", and, with out_scale in groups or a batch, of kernel=\"portable\", which every "
        "GPU before Hopper has, \"none\" and \"serial\" alone, without scales of blocks in the latter, and without "
        "use_fast_accum; copy b, choose another mode or type, or apply the activation in a step of its own",
        gate_of(problem), device.name);
  }
  refuse(ErrorCode::unsupported,
         "split_k_mode=\"{}\" with split_k_slices={} cannot be served on {}: cluster needs sm_90 and at most 16 "
         "slices (with out_scale 7, or 3 of the portable kernel); use \"parallel\"",
         to_string(problem.split_k_mode), problem.split_k_slices, device.name);
}

}  // namespace cleave
