#include "call/define.h"
#include "module/bindings.h"
#include "plans/plan_docs.h"
#include "product/product.h"

namespace cleave::python {
namespace {

constexpr const char* kScaledGemmDoc =
    R"(D = activation(alpha * (scale_a * a) @ (scale_b * b) + beta * c + bias), of 8-bit operands.

Args:
    a: [M, K] or [B, M, K]; {quantized}. int8 is accumulated in int32: exact
        for K < 131072, and wrapping beyond, except under block scales, where only 128 products at a
        time are added in int32.
    b: [K, N] or [B, K, N]; int8 if a is, else either 8-bit float. Tensor cores read operands that are
        contiguous along K (a row-major, b column-major, as in torch.nn.Linear's x @ weight.T); the
        portable kernel serves other layouts.
    scale_a: float32, any strides; one of
        - one value for all of a;
        - [M] or [M, 1], one per row;
        - [M, ceil(K / 128)], one per 128 neighbours of a row;
        - [ceil(M / 128), ceil(K / 128)], one per square of 128 by 128;
        each with a leading batch dimension, or without one if the whole batch shares it. With one, rows
        have [B, M, 1].
    scale_b: the same, transposed as b is: one value, [N] or [1, N], [ceil(K / 128), N] or
        [ceil(K / 128), ceil(N / 128)]. Give both operands block scales, or neither. The scales are
        read on the device: a NaN reaches the values that it scales, and a 0 makes them 0. None for
        both: the operands are unscaled.
    out_dtype: D's dtype if there is no `out`: any float, int8, or, for int8 without scales, bias or
        activation, int32. Defaults to bfloat16, and to int32 for unscaled int8.
    scale_d: float32, one value. An 8-bit D is stored as D * (1 / scale_d), rounded to nearest (ties
        to even) and saturated; without scale_d as D.
    out_scale: as in `gemm`.
    amax: float32, one value, raised to the largest |D| (before scale_d). Zero it to start anew.
    azp_adj: int32 [N], contiguous: subtracted from the sums of int8 operands before any scaling. If a
        has one zero point, pass that times the sums of b's columns.
    azp: int32 [M], contiguous: a's zero points per row, by which azp_adj (then the plain sums of b's
        columns) is multiplied. The whole batch shares azp and azp_adj.
    use_fast_accum: 8-bit floats only, as in torch: leave the sums in the tensor cores, which keep about
        14 bits of them on Hopper. Otherwise they are added up in float32 every 128 elements of K.

    The other arguments are those of `gemm`.

Returns:
    `out`, or a new array of a's framework on a's device; with out_scale a tuple of D and its scales.

Raises as `gemm` does. Results are repeatable bit for bit. Safe in CUDA graphs once the same product
has run, or was prepared, on that stream; replays read the current contents of every array, scales
included.)";

}  // namespace

void bind_scaled_gemm(nanobind::module_& m) {
  using Operands = List<arg::A, arg::B, Required<arg::ScaleA>, Required<arg::ScaleB>>;
  using Options = Concat<List<arg::Bias, arg::C>, Scalars,
                         List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype, arg::ScaleD, arg::Amax, arg::Azp,
                              arg::AzpAdj, arg::UseFastAccum>,
                         FoundScales, SplitK, List<arg::StaticB>, Place>;

  define(m, "scaled_gemm", Operands(), Options(), "Array | tuple[Array, ...]", kScaledGemmDoc,
         [](const auto& call) { return multiply(call, call, call); });
  define(m, "plan_scaled_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("scaled_gemm").c_str(),
         [](const auto& call) { return plan_product(call, call); });
}

}  // namespace cleave::python
