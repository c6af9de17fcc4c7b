#include <nanobind/typing.h>

#include "call/define.h"
#include "module/bindings.h"
#include "plans/plan_docs.h"
#include "product/product.h"

namespace cleave::python {
namespace {

constexpr const char* kGemmDoc =
    R"(D = activation(alpha * a @ b + beta * c + bias), with K split where that is faster.

Arrays are torch tensors, NumPy, CuPy or JAX arrays, or anything else with DLPack or
``__cuda_array_interface__``, all on one device. CUDA arrays run on the GPU, and the call returns
once the work is enqueued; host arrays run on the CPU backend, and the call returns when it is done.

Args:
    a: [M, K] or [B, M, K]; float16, bfloat16 or float32 (see `precision`), accumulated in float32.
        Also int8, accumulated in int32, and the 8-bit floats: see `scaled_gemm`.
    b: [K, N] or [B, K, N], of a's dtype. A two-dimensional operand, or one with B = 1, is shared by
        the whole batch. One of the last two strides of every array must be 1: transposed and sliced
        views are used without a copy.
    c: [M, N] or [B, M, N]; float16, bfloat16, float32 or D's own dtype (int32 if D is int32). May be
        `out` itself. Not read if beta is 0.
    alpha, beta: numbers. beta defaults to 1 with a `c` and to 0 without one. If D is int32, sums and c
        are scaled and added as integers: both must be whole numbers, and alpha must be 1 without a c.
    bias: [N] or [1, N] for one value per column of D, [M, 1] for one per row; contiguous; float16,
        bfloat16 or float32.
    activation: {activations}. "swiglu" takes a b (and a bias per column) of
        2 N columns, gates before ups: D = silu(gates) * ups, row-major, without c; under
        "swiglu_interleaved" each gate is followed by its up.
    epilogue: a function made by `cleave.epilogue`, called with its inputs; it is applied to the sums
        instead of an activation. If it has several outputs, they are returned as a tuple, and `out`
        may be a tuple too.
    out: where D is written: [M, N], or [B, M, N] if an operand has a batch. Must not overlap a, b
        or bias.
    out_dtype: D's dtype if there is no `out`: a name, or a torch or NumPy dtype. Defaults to a's
        dtype, except int32 for int8 (exact for K < 131072) and bfloat16 for 8-bit floats.
    out_scale: "block_1x128" quantises D to int8 or an 8-bit float (see out_dtype) with one scale for
        every 128 columns of a row, and returns (D, scale). The scales are bit for bit those that
        `quantize` computes from D in float32: the largest magnitude / 127, 448 or 57344. Any
        activation, function, bias and c may come first; D is row-major.
        scale is float32, of D's shape with ceil(N / 128) columns, ready to be the next product's
        `scale_a`; it is 0 for rows of no group where these are zeroed. The product's own kernel
        quantises, or a second one where the planner expects that to be faster; where N is grouped, by
        `quantize` of D in float32, so that a scale may be two groups', columns of none are 0, and
        plans do not have it. "row", "tensor" and
        "block_128x128" find scales as `quantize` does for these granularities, and of its shapes, by
        kernels of their own on the current stream: this product, in bfloat16 (for int8 in float32), and
        `quantize`. They are for a D that is a matrix, in groups of rows, too, where rows of no group
        become 0; plans do not have them.
    scale_out: where the scales are written: that shape, any strides.
    scale_major: memory order of scales that are allocated: "k", or "mn" to make the rows of a column
        neighbours, as in `quantize`.
    use_ue8m0: round those scales up to powers of two, as the UE8M0 format stores them.
    split_k_mode: {modes}. Every mode is
        repeatable bit for bit, but two modes or slice counts may differ in the last bits. "serial" is
        refused where its CTAs, which wait for each other, are not all resident (in a green context,
        say), and "auto" never chooses it. All other modes finish wherever they run.
    split_k_slices: 1 or more, of which at most K are used; None lets the planner choose.
    deterministic: True demands repeatable results, and is honoured or refused. "batch_invariant" demands
        more: a row of D has the same bits whatever M is and whatever the rest of the batch or the other
        groups hold, on one kind of GPU; N and K alone then decide how K is split
        (docs/determinism.md). It serves products, and groups of rows, whose a is contiguous along K.
    sum_order: "k" demands more still, of the same products: K is summed as one slice, so that an element of
        D has the same bits whatever M and N are, as in a product that is dealt to several GPUs by rows
        or columns. Sums of int8 are split nevertheless; a split of floats is refused. It takes the place
        of `deterministic`.
    kernel: "auto", "sm90" (TMA and WGMMA), "portable" (sm_80 and later, any alignment), "direct"
        (convolutions of narrow groups or few channels, by multiply-adds) or "streamed" (packed weights,
        sm_80 and later).
    precision: how float32 operands are multiplied on a GPU. "tf32": rounded to 10 bits of mantissa, as
        tensor cores take them, with errors of about 1e-3. "ieee": as they are, by the portable kernel,
        at an eighth of the peak. "tf32x3" and "bf16x3": on tensor cores as sums of two tf32 or bfloat16
        numbers, with errors of about 1e-6 and 2e-5 (docs/precision.md). The CPU backend rounds nothing
        under "tf32", and has the same parts under the last two. torch's operators (`cleave.torch`,
        `cleave.compat.torch`) follow torch's own fp32_precision instead, or
        `cleave.torch.float32_precision`.
    static_b: True promises that no work that may still be running writes b, as is the case for the
        weights of a model in serving: some kernels then begin to load b while the launch ahead ends.
    stream: a CUDA stream of torch, CuPy, Numba or cuda.core, or its handle as an integer, which is
        not checked. Defaults to the current stream of a's framework. On another stream the result
        belongs to that stream, as under `torch.cuda.stream(stream)`, and torch keeps the memory of
        all arrays until the stream is done with them (`Tensor.record_stream`; CuPy cannot: keep
        them alive yourself). Ordering the streams before and after the call is up to the caller.
    workspace: a one-dimensional array on the same device, of at least `GemmPlan.workspace_size` bytes,
        the first `counter_size` of them zero before its first use. Until the call is done no other
        work may use it, and it must overlap no other array. The CPU backend refuses a workspace that
        breaks these rules; a GPU does not notice, and D is wrong, as may be the D of later calls with
        the same workspace. Defaults to a pooled workspace of the stream.

Returns:
    `out`, or a new array of a's framework on a's device. With out_scale a tuple: D, a function's other
    outputs, and the scales.

Raises:
    TypeError: an argument is not an array, has an unsupported dtype, or is otherwise of the wrong kind.
    ValueError: shapes, strides, devices or options do not fit; the message names the remedy.
    cleave.CudaError: the driver or the compiler failed, or the stream is being captured and the
        product needs a kernel that `GemmPlan.prepare` would have compiled.
    After any error `out` keeps its old contents.

With K = 0, a @ b is 0 whatever alpha and the scales are. Safe in CUDA graphs once the same product
has run, or was prepared, on that stream. There is no autograd formula here (see `cleave.torch`): an
operand that requires grad is refused while grad mode is on.)";

}  // namespace

void bind_gemm(nanobind::module_& m) {
  m.attr("Array") = nanobind::type_var("Array");

  using Operands = List<arg::A, arg::B>;
  using Options =
      Concat<List<arg::Bias, arg::C>, Scalars, List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype>,
             FoundScales, SplitK, List<arg::Precision, arg::StaticB>, Place>;

  define(m, "gemm", Operands(), Options(), "Array | tuple[Array, ...]", kGemmDoc,
         [](const auto& call) { return multiply(call, call, call); });
  define(m, "plan_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("gemm").c_str(),
         [](const auto& call) { return plan_product(call, call); });
}

}  // namespace cleave::python
