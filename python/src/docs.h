// Docstrings, as users and the type stub see them.
#pragma once

#include <fmt/format.h>

#include <string>

namespace cleave::python {

inline constexpr const char* kGemmDoc =
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
        activation, function, bias and c may come first; D is row-major, and N must not be grouped.
        scale is float32, of D's shape with ceil(N / 128) columns, ready to be the next product's
        `scale_a`; it is 0 for rows of no group where these are zeroed. The product's own kernel
        quantises, or a second one where the planner expects that to be faster.
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

/// The docstring of the functions that plan `gemm`, `scaled_gemm` and `grouped_gemm`.
inline std::string plan_doc(const char* function) {
  constexpr const char* kText =
      R"(Plans a product without running it; the arguments and errors are those of `{}`.

Only shape, strides, dtype, device and alignment of the arrays matter, and which of them are given;
sizes of groups do not. Returns a `GemmPlan` for arrays of just this form. Compiles nothing.)";
  return fmt::format(fmt::runtime(kText), function);
}

inline constexpr const char* kMixedGemmDoc =
    R"(What `cleave.mixed_gemm` calls with the tensors of a packed weight.

Args:
    a: [M, K], float16 or bfloat16; float8_e4m3fn of "int4" and "mxfp4", int8 of "int4".
    packed: uint8 [ceil(N / 64), ceil(K / 64), 2048], the codes.
    scales: [groups of K, N], of a's dtype, float16 for an a of 8 bits; bytes of "mxfp4", float8_e4m3fn of "nvfp4".
    zeros: uint8, as scales, or None for 8.
    global_scale: float32 [1], [E] of experts, or one for each row, [N] or [E, N]; of "nvfp4".
    out_features: N.
    group_size: columns that share a scale.
    format: of the codes.
    scale_a: float32 [M] or [M, 1], or one value, of an a of 8 bits.
    offs, indptr, starts, sizes, counts, alignment, zero_rest, check_offsets: as in `grouped_gemm`, for groups of rows.

The others are `gemm`'s.)";

inline constexpr const char* kScaledGemmDoc =
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
    out_scale: "block_1x128" as in `gemm`, or "row": one scale per row of D, float32 [M, 1]. "row" is
        two kernels on the current stream, this product and `quantize`, and serves matrices only.
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

inline constexpr const char* kGroupedGemmDoc =
    R"(A product for each of G groups (1 to 1024) of any sizes in one launch: a mixture of experts.

The ranks of a and b decide which dimension is grouped; group g is its range from begin to end:

    a [M, K],    b [G, K, N]: D [M, N],    D[begin:end] = a[begin:end] @ b[g]        (forward, dgrad)
    a [M, K],    b [K, N]:    D [G, M, N], D[g] = a[:, begin:end] @ b[begin:end]             (wgrad)
    a [M * K],   b [N * K]:   D [G, M, N], D[g] = a_g @ b_g.T, stored one behind the other   (wgrad)
    a [G, M, K], b [K, N]:    D [M, N],    D[:, begin:end] = a[g] @ b[:, begin:end]
    a [G, L, K], b [G, K, N], counts: D [G, L, N], D[g, :count] = a[g, :count] @ b[g]       (masked)
    a [G, M, K], b [G, K, N]: D [G, M, N], D[g] = a[g] @ b[g]                              (batched)

One of offs, indptr, starts and sizes, or counts says where groups begin and end: int32 or int64,
one-dimensional, contiguous, on a's device. The kernel reads it, the host never does, and no group
needs padding.

Args:
    a, b: as in `gemm`, 8-bit operands as in `scaled_gemm`, with any layout of the last two
        dimensions. With counts, the rows of all groups of a (and of c and out) must be evenly spaced,
        as in a contiguous array. Both may also be one-dimensional and contiguous, each group's part
        being a matrix a_g [M, room] or b_g [N, room], where room is the group's size rounded up to
        alignment; this form needs offs and `out`.
    offs: [G], where each group ends: the running total of the sizes (torch's offs). With alignment,
        a group begins where the one before ends, rounded up to a multiple (DeepEP's prefix sums).
    indptr: [G + 1], the same after a leading 0 (FlashInfer's).
    starts, sizes: [G] each, in any order.
    counts: [G], how many rows of each matrix of a are used. Where groups lie in one matrix, group g
        begins at g * alignment.
    alignment: every group begins at a multiple of it; for offs, and for counts where groups lie in one
        matrix.
    gather: int32 [M], contiguous, for a forward product of an a [T, K] with contiguous rows: row i of the
        product is row gather[i] // top_k of a, and scale_a is laid out as a is ([T], or
        [T, ceil(K / 128)]). So rows need no copy for each group that they go to: with the indices and
        top_k of `cleave.moe.sort_tokens` the product is that of cleave.moe.gather(a, indices). A value
        that names no row of a, such as a negative one, stands for a row of zeros, scaled as row 0 is.
        Not with counts.
    top_k: how often gather names each row of a; 1 if its values are rows themselves.
    scale_a, scale_b: float32, of 8-bit operands. For an operand that all groups share, as in
        `scaled_gemm` ([M], or blocks [M, ceil(K / 128)]); else one set per group: [G, N] (for a,
        [G, M]), or blocks [G, ceil(K / 128), N] or [G, ceil(K / 128), ceil(N / 128)]. One value serves
        all. Where K is grouped: [G, M] and [G, N], or, with an alignment that is a multiple of 128,
        blocks along all of K, [M, ceil(K / 128)] and [ceil(K / 128), N]; blocks win where both fit.
        Where M or N is grouped, blocks are one row (column) wide along it.
    bias: as in `gemm`, or [G, N], a vector for each group (if N is grouped, [G, M]).
    c: of D's shape; may be `out` itself. beta = 1 with c = out accumulates.
    activation: as in `gemm`; "swiglu", with b [G, K, 2 N] and bias [G, 2 N], where M is grouped.
    epilogue: as in `gemm`. Its inputs may differ from group to group: scalars are then [G], rows [G, N]
        (not if N is grouped), columns [G, M] (if N is grouped) or [G, M, 1]; or all three-dimensional,
        [G, 1, 1] and [G, 1, N]. Matrices have D's shape.
    out: where D is written, of the shape above.
    out_dtype: as in `gemm`, but bfloat16 for scaled int8.
    zero_rest: whether to zero the parts of D, and of an epilogue function's other outputs, that belong
        to no group (before, between and after the groups); False leaves them as they are. Defaults to
        True for a new D and False for `out`; required where only some of several outputs are given. If
        K is grouped there are no such parts: an empty group gives zero, or beta * c, or what an epilogue
        function makes of that.
    check_offsets: True waits for the GPU and checks the offsets, for debugging.

    The other arguments are those of `gemm`.

Returns:
    `out`, or a new array of a's framework on a's device.

Raises as `gemm` does, and with check_offsets ValueError, naming group, value and remedy, for
offsets that decrease, are negative or run past the end, and for groups that overlap. Without the
check such groups are clamped to the dimension: results are wrong, but nothing outside D is written.

Results are repeatable bit for bit. Safe in CUDA graphs once the same product has run, or was
prepared, on that stream (without check_offsets); replays read the current contents of every array,
offsets included.)";

inline constexpr const char* kGroupedGemmWgradDoc =
    R"(The weight gradient of every expert: dw[g] = alpha * dy[begin:end].T @ x[begin:end].

The same as `grouped_gemm` of dy.T and x, whose arguments, errors, repeatability and graph safety it
has.

Args:
    dy: [T, N], the output gradients of T tokens; with counts also [G, L, N].
    x: [T, K], or [G, L, K]: the layer's input.
    scale_dy: float32, of 8-bit gradients: one value, [G, N], or, with an alignment that is a multiple of
        128, [ceil(T / 128), N], one per 128 tokens. The latter wins where both fit.
    scale_x: the same for x.
    epilogue: as in `grouped_gemm` with D = dw: rows have K values ([G, 1, K] if they differ from group
        to group), columns N.
    out: [G, N, K], any float dtype; float32 for a main_grad.
    out_dtype: dw's dtype if there is no `out`. Defaults to dy's, and to bfloat16 for 8-bit gradients.
    precision: of float32 gradients, as in `gemm`.
    accumulate: True adds to `out` (to dw if there are several outputs). An empty group then leaves its
        part as it is, unless an epilogue function does more.

Returns:
    `out`, or a new array [G, N, K]. The gradient of an empty group is exactly zero.)";

inline constexpr const char* kPlanProblemDoc =
    R"(Plans a product of packed matrices from its sizes alone.

Args:
    m, n, k: the sizes.
    layout: a letter for A and one for B, as in BLAS, whose matrices are column-major: "tn" has K
        contiguous in both (A row-major, B column-major), "tt" has both row-major.
    bias: "none", "row" or "column".
    scaling: what shares a scale of 8-bit operands: "none" (they are unscaled), "tensor", "row" (rows
        of A, columns of B), or "block_1x128" or "block_128x128", which are B's blocks; A's are 1x128
        and stored by column. B's scales are stored by column if its blocks are 1x128, else by K.
    epilogue: a function called with the dtypes of its arrays, as in gelu_residual(bias="bfloat16",
        scale=0.5, residual="float16").
    device: "cpu", "cuda", "cuda:<index>", or "h100" or "h200" to plan for one on any machine.
    grouping: "m", "n" or "k" for `batch` groups of that dimension, whose int32 bounds are given as
        bounds says: "ends", "indptr", "starts", "aligned_ends" or "counts"; groups of the latter two
        begin at multiples of spacing. Matrices that `grouped_gemm` takes one per group are packed.
    weights: "int4", "mxfp4" or "nvfp4" for a packed weight as B, with groups of group_size columns
        (None: the format's usual 128, 32 or 16; -1: whole rows), and with zero points if zeros is True;
        scaling is A's alone then.

The other arguments, and the errors, are those of `gemm`.)";

inline constexpr const char* kGemmPlanDoc =
    R"(How products of one form run: shapes, strides, dtypes, device and options.

Immutable and thread-safe. Made by `plan_gemm`, `plan_scaled_gemm`, `plan_grouped_gemm` and `plan_mixed_gemm`.)";

inline constexpr const char* kRunDoc =
    R"(Runs the product on arrays of the planned form.

The arguments and errors are those of the function that was planned: `gemm`, `scaled_gemm` or
`grouped_gemm`, whose alignment, top_k and zero_rest the plan keeps. For a plan of plan_mixed_gemm, b is
`weights.packed`, and scales, zeros and global_scale are the weight's.

Enqueues on the stream and returns; allocates nothing if `out` is given. Legal while the stream is
being captured if the plan has run, or was prepared, on that stream.)";

inline constexpr const char* kKernelSourcesDoc = "The source text of each kernel; empty on the CPU backend.";
inline constexpr const char* kKernelArchDoc =
    "What the kernels are compiled for, such as \"sm_90a\"; empty on the CPU backend.";

inline constexpr const char* kPrepareDoc =
    R"(Compiles and loads the kernels, and allocates the pooled workspace of `stream`.

Call it before capturing a CUDA graph on that stream (None: the legacy default stream).)";

inline constexpr const char* kCandidatesDoc =
    R"(The choices that the planner considered, cheapest first.

Each has kernel, split_k_mode, split_k_slices, predicted_us and workspace_size.)";

inline constexpr const char* kCompileAllDoc =
    R"(Compiles every kernel that the planner can choose for "sm_90a" or "sm_80", on all cores.

Needs NVRTC but no GPU, and fills the disk cache. Returns for each kernel its name, arch, registers,
spill_bytes, shared_bytes, seconds, from_cache and cubin. Raises CudaError if one does not compile.)";

inline constexpr const char* kQuantizeDoc =
    R"(Quantises x to 8 bits: q and float32 scales with x ~ smooth * scale * (q - zero).

x is read once (for one scale of the whole tensor twice, by two kernels); the largest magnitude of a
group becomes the largest q. `scaled_gemm` takes A's rows quantised as they are, and B.T's rows
quantised, passed as q.T and scale.T.

Args:
    x: [M, K]; float16, bfloat16 or float32; rows contiguous, at any distance from each other.
    dtype: of q: {quantized}, or such a dtype of torch or ml_dtypes.
    granularity: what shares a scale: "tensor" (scale [1, 1]), "row" ([M, 1]), "block_1x128"
        ([M, ceil(K / 128)]) or "block_128x128" ([ceil(M / 128), ceil(K / 128)]).
    scale: static scales, float32, used instead of computed ones: of the shape above with any strides,
        or [M] for rows, or any array of one value for a tensor. Values beyond their range saturate.
    zero: with scale and symmetric=False, the zero points: int32, [M] or [M, 1], or one value.
    smooth: [K], float32: x is divided by it, column by column, in the same pass (see `smooth`).
    norm: `cleave.rms_norm(weight, eps)` or `cleave.layer_norm(weight, bias, eps)`: quantise the norm of
        x's rows, computed by the same kernel in float32, without a rounding to x's dtype. By row, in
        blocks of 1x128, or by tensor with `scale`; not with transpose, nor with smooth (divide weight
        and bias by it instead).
    residual: [M, K] like x, of any of its dtypes, with norm: x + residual is rounded to the residual's
        dtype, written to residual_out, and then normalised.
    residual_out: where that sum is written, [M, K] of residual's dtype. Defaults to a new array; may be
        `residual` itself (in place, as vLLM's fused_add_rms_norm does) or x.
    normed_out: [M, K] of x's dtype, with norm: the norm before quantisation is written here as well.
        May be x or residual itself.
    symmetric: False, for int8 by row or tensor, maps the range of a group, widened to include 0, to
        -128 to 127, with a zero point (vLLM's azp).
    transpose: True, for block scales, also quantises x.T from the same read: with block_1x128 its
        scales cover 128 rows of x, with block_128x128 they are those of x transposed.
    offs: [G], int32 or int64: where groups of x's rows end, for 8-bit weight gradients grouped by
        tokens (block_1x128 with transpose). Each group's columns of q_t begin at a multiple of 128, so
        that no scale covers two groups, and the columns between are zero: q_t is [K, P], P being the
        largest multiple of 128 up to M + 127 * min(G, M). scale_t is [K, P / 128], its rows neighbours.
        ends says where the groups end in q_t: pass it as
        grouped_gemm(dy_t, x_t.T, ends, alignment=128, scale_a=..., scale_b=...).
    out, scale_out: where q and scale are written, of their shapes; rows of out contiguous, scale_out of
        any strides. Neither may overlap any other array.
    scale_major: memory order of scales that are allocated: "k", or "mn" to make the rows of a column
        neighbours, as torch and DeepGEMM want for 1x128.
    stream: as in `gemm`; defaults to the current stream of x's framework.

Returns:
    (q, scale); (q, scale, zero) if not symmetric; (q, scale, q_t, scale_t) with transpose;
    (q, scale, q_t, scale_t, ends) with offs. With a residual, residual_out follows, and then normed_out
    if it was given. Each is what was given, or a new array of x's framework on x's device.

Raises:
    TypeError, ValueError, cleave.CudaError: as `gemm`.

Scales are amax / 127, or amax over the largest value of an 8-bit float (448 for e4m3), in float32. A
group of zeros has scale 0 and q 0; one with a NaN has scale NaN. Results are bitwise repeatable and
the same on every device. With a norm they are the same on one GPU, whatever the other rows are, and
in all but the last bits on others. Safe in CUDA graphs once the same call has run, or was
prepared by `plan_quantize(...).prepare(stream)`.)";

inline constexpr const char* kPlanQuantizeDoc =
    R"(Plans what `quantize` runs on arrays of this form; its arguments and errors. Compiles nothing.)";

inline constexpr const char* kQuantizePlanDoc =
    R"(How arrays of one form are quantised: shape, strides, dtypes, device and options.

Immutable and thread-safe. Made by `plan_quantize`; `quantize` finds its own.)";

inline constexpr const char* kRouterLogitsDoc =
    R"(A router's logits for few tokens, x @ weight^T in float32, in one launch.

Args:
    x: [tokens, features]; weight: [experts, features]. float32, bfloat16 or float16 each, rows
        contiguous: bfloat16 activations and float32 weights need no conversion.
    static_weight: True promises that no work that may still be running writes weight: it is then read
        while the launch ahead ends.

Returns:
    logits, float32 [tokens, experts], as `route` takes them.

Operands are multiplied as they are, by multiply-adds: a product with a 16-bit factor is exact, and
rounded only when it is added. A logit has the same bits in every run, on the CPU and every GPU, and
whatever the other tokens are. Weights are read again for every eight tokens: beyond some 64 tokens
`cleave.gemm` is faster, in float32 with precision="tf32x3", say.)";

inline constexpr const char* kRouteDoc =
    R"(Chooses each token's experts, and their weights, from a router's logits, in one launch.

    score = softmax(logits), or sigmoid(logits)
    chosen = the top_k experts with the largest score + bias, the best first
    weight = score, over the sum of the chosen scores if renormalize, times routed_scaling_factor

Args:
    logits: [tokens, experts], float32, bfloat16 or float16, rows contiguous; up to 512 experts.
    top_k: from 1 to 32.
    bias: float32 [experts], which affects the choice alone: DeepSeek-V3's e_score_correction_bias.
    scoring_func: "softmax" over all experts, or "sigmoid" of each.
    n_group, topk_group: experts form n_group groups of neighbours, up to 32, and are chosen from the
        topk_group best groups; from all if that is None.
    group_score: what ranks a group: "top2_sum", the sum of its two best scores, biases included, as in
        DeepSeek-V3, or "max", its best score, as in DeepSeek-V2.
    renormalize: for a softmax, the weights are a softmax of the chosen logits; for sigmoids, 1e-20 is
        added to the sum.

Returns:
    weights, float32 [tokens, top_k], and expert_ids, int32 [tokens, top_k], as `permute` takes them.

Among equal scores the expert with the lower number comes first; -0 equals 0. Unless there is a bias
or group_score="top2_sum", logits are compared instead of scores, which tells apart scores that
float32 rounds to the same number. A NaN is larger than every number, as in torch.topk, and makes the
token's weights NaN where it takes part in them. expert_ids are valid, and never repeat within a
token, whatever the logits are. Results have the same bits in every run and for every number of tokens.)";

inline constexpr const char* kExpertOffsetsDoc =
    R"(Where each expert's rows end: the `offs` of `cleave.grouped_gemm`, in one kernel launch.

Args:
    expert_ids: of any shape, int32 or int64, contiguous. Ids that name no expert count nowhere.
    num_experts: from 1 to 1024.

Returns:
    int32 [num_experts]: how many ids are at most 0, 1, and so on.)";

inline constexpr const char* kSortTokensDoc =
    R"(`permute` without rows: for products that gather them, or for `gather`.

Args: as `expert_offsets`.

Returns:
    offs, int32 [num_experts], and indices, int32 [tokens * top_k]: of every row its slot, or
    ~slot, which is negative, of one that is dropped.)";

inline constexpr const char* kPermuteDoc =
    R"(The tokens' rows sorted by expert.

Args:
    x: [tokens, features], of any dtype, rows contiguous. Read once, whatever top_k is.
    expert_ids: [tokens, top_k] or [tokens], int32 or int64, contiguous.
    num_experts: from 1 to 1024.

Returns:
    rows, [tokens * top_k, features], zeros where dropped; offs and indices as `sort_tokens`.)";

inline constexpr const char* kGatherDoc =
    R"(The rows of other tokens, by `indices` that are known: scales, say, or gradients.

Args:
    x: [tokens, features], of any dtype, rows contiguous.
    indices: int32 [tokens * top_k], as `permute` gives them. What is no such permutation gives
        rows with any contents.

Returns:
    rows, [tokens * top_k, features], zeros where dropped.)";

inline constexpr const char* kUnpermuteDoc =
    R"(Every token's sum of its slots' rows, times their weights.

Args:
    y: [tokens * top_k, features], float16, bfloat16 or float32, rows contiguous.
    indices: int32 [tokens * top_k], as `permute` gives them.
    weights: [tokens, top_k], float16, bfloat16 or float32, contiguous; None for ones.
    top_k: of a token, where there are no weights to tell; by default 1.

Returns:
    [tokens, features], of y's dtype: sums in float32, in the order of the slots. Dropped slots
    add nothing.)";

}  // namespace cleave::python
