// Docstrings, as users and the type stub see them.
#pragma once

#include <fmt/format.h>

#include <string>

namespace cleave::python {

inline constexpr const char* kGemmDoc =
    R"(D = activation(alpha * a @ b + beta * c + bias), with K split where that is faster.

Arrays are torch tensors, NumPy, CuPy or JAX arrays, or anything else with DLPack or
``__cuda_array_interface__``, all on one device. CUDA arrays run on the GPU, and the call returns
once the work is enqueued; host arrays run on the CPU backend, and it returns when it is done.

Args:
    a: [M, K] or [B, M, K]; float16, bfloat16 or float32 (see `precision`), with sums in float32.
        Also int8, with sums in int32, and the 8-bit floats: see `scaled_gemm`.
    b: [K, N] or [B, K, N], of a's dtype. A two-dimensional operand, or one with B = 1, serves the
        whole batch. One of the last two strides of every array must be 1: transposed and sliced
        views go through without a copy.
    c: [M, N] or [B, M, N], of float16, bfloat16, float32 or D's own dtype (of int32 D: int32); may
        be `out` itself. Not read if beta is 0.
    alpha, beta: numbers. By default beta is 1 with a `c`, and 0 without. An int32 D,
        whose sums and c are multiplied and added as integers, takes whole numbers, and without a c
        alpha is 1.
    bias: [N] or [1, N] adds one value per column of D, [M, 1] one per row; contiguous, of float16,
        bfloat16 or float32.
    activation: {activations}. For "swiglu", b (and a bias per column) has 2 N
        columns, gates before ups: D = silu(gates) * ups, without c, row-major.
    epilogue: a function made by `cleave.epilogue`, called with its inputs: what is done to the sums
        instead of an activation. With several outputs a tuple is returned, and `out` may be one.
    out: where D goes: [M, N], or [B, M, N] if an operand has a batch. Shares no memory with a, b
        or bias.
    out_dtype: D's dtype if there is no `out`: a name, or a torch or NumPy dtype. By default a's, but
        int32 for int8, exact for K < 131072, and bfloat16 for 8-bit floats.
    out_scale: "block_1x128" quantises D, of int8 or an 8-bit float (out_dtype says which), in the
        product's own kernel or, where the planner finds that faster, in one behind it, with a
        scale for each row of 128 columns: those that `quantize` would find for D in float32,
        largest magnitude / 127, 448 or 57344, bit by bit. Any activation, function, bias and c may
        precede; D is row-major, and N is not grouped. Returns (D, scale),
        scale float32 of D's shape with ceil(N / 128) columns; it is `scale_a` of the next product.
        What belongs to no group has scale 0 where it is zeroed.
    scale_out: where scales go: of that shape and any strides.
    scale_major: memory order of scales that are made: "k", or "mn" for the rows of a column as
        neighbours, as for `quantize`.
    use_ue8m0: round those scales up to powers of two, as UE8M0 has them.
    split_k_mode: {modes}. Every mode is
        repeatable bit by bit, but results of two modes or slice counts may differ in the last bits.
        "auto" never chooses "serial", whose CTAs wait for each other: it is refused where they do
        not fit (in a green context, say). All others end wherever they run.
    split_k_slices: 1 or more, of which at most K are used; None lets the planner choose.
    deterministic: True demands repeatable results: honoured or refused. "batch_invariant" demands more:
        a row of D has the same bits whatever M is, and whatever the batch or the other groups hold, on
        one kind of GPU; K is then split as N and K alone say (docs/determinism.md). It is
        served for products, and groups of rows, whose a is contiguous along K.
    kernel: "auto", "sm90" (TMA and WGMMA), "portable" (sm_80 and later, any alignment), "direct"
        (convolutions of narrow groups, by multiply-adds, or of few channels) or "streamed" (packed weights,
        sm_80 and later).
    precision: of float32 operands on a GPU. "tf32" has them rounded to 10 bits of mantissa, which is
        what tensor cores multiply: errors of about 1e-3. "ieee" has them multiplied as they are, by
        the portable kernel, at an eighth of the peak. "tf32x3" and "bf16x3" have the tensor cores
        multiply them as sums of two tf32 or bfloat16 numbers, with errors of about 1e-6 and 2e-5
        (docs/precision.md). The CPU rounds no operand, and has the same parts. torch's operators
        (`cleave.torch`, `cleave.compat.torch`) follow torch's own fp32_precision instead, or
        `cleave.torch.float32_precision`.
    static_b: True promises that nothing that may still be under way writes b, as nobody writes the
        weights of a model that serves: some kernels then begin to load it while the launch ahead ends.
    stream: a CUDA stream of torch, CuPy, Numba or cuda.core, or its handle as an integer, which is
        not checked. By default the current stream of a's framework. On another one, the result is
        memory of that stream, as under `torch.cuda.stream(stream)`, and torch keeps the memory of
        all arrays until that stream is done with them (`Tensor.record_stream`; CuPy cannot: keep
        them yourself). Whoever works on arrays before and after orders the streams.
    workspace: a one-dimensional array of at least `GemmPlan.workspace_size` bytes on the same
        device, its first `counter_size` bytes zero before its first use; of this call alone until
        it is done, and apart from all other arrays. Otherwise the CPU backend refuses it, but on a
        GPU, where nobody looks, D is wrong, of this call and perhaps of later ones with the same
        workspace. By default a pooled one of the stream.

Returns:
    `out`, or a new array of a's framework on a's device; with out_scale a tuple of it and its scales, which are
    behind a function's other outputs.

Raises:
    TypeError: an argument is no array, of an unsupported dtype, or otherwise of the wrong kind.
    ValueError: shapes, strides, devices or options do not fit; the message names the remedy.
    cleave.CudaError: the driver or the compiler failed, or a stream is being captured and the
        product needs a kernel that `GemmPlan.prepare` would have compiled.
    After any error `out` has its old contents.

With K = 0, a @ b is 0, whatever alpha (and scales) are. Safe in CUDA graphs once the same product
has run, or was prepared, on that stream. There is no autograd formula: an operand that requires
grad is refused while grad mode is on.)";

/// What the functions that plan `gemm`, `scaled_gemm` and `grouped_gemm` say of themselves.
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
    a: [M, K], float16 or bfloat16.
    packed: uint8 [ceil(N / 64), ceil(K / 64), 2048], the codes.
    scales: [groups of K, N], of a's dtype; bytes of "mxfp4", float8_e4m3fn of "nvfp4".
    zeros: uint8, as scales, or None for 8.
    global_scale: float32 [1], [E] of experts, or one for each row, [N] or [E, N]; of "nvfp4".
    out_features: N.
    group_size: columns that share a scale.
    format: of the codes.
    offs, indptr, starts, sizes, counts, alignment, zero_rest, check_offsets: as in `grouped_gemm`, for groups of rows.

The others are `gemm`'s.)";

inline constexpr const char* kScaledGemmDoc =
    R"(D = activation(alpha * (scale_a * a) @ (scale_b * b) + beta * c + bias), of 8-bit operands.

Args:
    a: [M, K] or [B, M, K]; {quantized}. Sums of int8 are int32: exact for
        K < 131072. From there on large ones wrap, scaled or not; under scales of blocks only 128 of
        K are added in int32.
    b: [K, N] or [B, K, N]; int8 if a is, else either 8-bit float. K contiguous in both (a row-major,
        b column-major, as in torch.nn.Linear's x @ weight.T) is what tensor cores read; other
        layouts are served by the portable kernel.
    scale_a: float32, with any strides; one of
        - one value for all of a;
        - [M] or [M, 1], one per row;
        - [M, ceil(K / 128)], one per 128 neighbours of a row;
        - [ceil(M / 128), ceil(K / 128)], one per square of 128 by 128;
        each with a batch before it, or without to serve the whole batch.
    scale_b: the same, transposed as b is: one value, [N] or [1, N], [ceil(K / 128), N] or
        [ceil(K / 128), ceil(N / 128)]. Scale both operands in blocks, or neither. The scales are
        read on the device: a NaN reaches the values it scales, a 0 makes them 0. None for both:
        there are none.
    out_dtype: D's dtype if there is no `out`: any float, int8, or, for int8 without scales, bias or
        activation, int32. By default bfloat16; without scales, of int8, int32.
    scale_d: float32, one value. D of 8 bits is stored as D * (1 / scale_d), rounded to the nearest (ties
        to even) and saturated; without it as D.
    out_scale: "block_1x128": as in `gemm`. "row", too, has D's scales computed, one per row: scale is float32 [M, 1].
        These are two kernels, this product and `quantize`, on the current stream, and of matrices only.
    amax: float32, one value, raised to the largest |D| (before scale_d): zero it to start anew.
    azp_adj: int32 [N], contiguous. It is taken off the sums of int8 operands, before any scale:
        the sums of b's columns, times a's zero point, if a is one value per tensor.
    azp: int32 [M], contiguous: a's zero points per row, which azp_adj (then the plain sums of b's
        columns) is multiplied by. The whole batch shares azp and azp_adj.
    use_fast_accum: 8-bit floats only, and as in torch: leave the sums in the tensor cores, which on
        Hopper keep about 14 bits of them. Else float32 takes over every 128 elements of K.

    The other arguments are those of `gemm`.

Returns:
    `out`, or a new array of a's framework on a's device; with out_scale a tuple of D and its scales.

Raises as `gemm` does. Results are repeatable bit by bit. Safe in CUDA graphs once the same product
has run, or was prepared, on that stream; replays follow the contents of every array, scales too.)";

inline constexpr const char* kGroupedGemmDoc =
    R"(A product for each of G groups, 1 to 1024, of any sizes, in one launch: a mixture of experts.

The ranks of a and b say which dimension is cut into groups; group g is its part from begin to end:

    a [M, K],    b [G, K, N]: D [M, N],    D[begin:end] = a[begin:end] @ b[g]        (forward, dgrad)
    a [M, K],    b [K, N]:    D [G, M, N], D[g] = a[:, begin:end] @ b[begin:end]             (wgrad)
    a [M * K],   b [N * K]:   D [G, M, N], D[g] = a_g @ b_g.T, stored one behind the other   (wgrad)
    a [G, M, K], b [K, N]:    D [M, N],    D[:, begin:end] = a[g] @ b[:, begin:end]
    a [G, L, K], b [G, K, N], counts: D [G, L, N], D[g, :count] = a[g, :count] @ b[g]       (masked)
    a [G, M, K], b [G, K, N]: D [G, M, N], D[g] = a[g] @ b[g]                              (batched)

Where groups begin and end, one of these says: int32 or int64, one-dimensional, contiguous, on a's
device. The kernel reads them, the host never does; no group needs padding.

Args:
    a, b: as in `gemm`, 8-bit operands as in `scaled_gemm`, with any layout of the last two
        dimensions. Under counts, a (as c and out) must have its groups' rows evenly spaced, as a
        contiguous array has. They may also have one dimension, contiguous, in which each group's
        part is a matrix a_g [M, room] and b_g [N, room], room being its size rounded up to
        alignment; these take offs and `out`.
    offs: [G], where each group ends: the running total of the sizes (torch's offs). With alignment,
        a group begins where the one before ends, rounded up to a multiple (DeepEP's prefix sums).
    indptr: [G + 1], the same after a leading 0 (FlashInfer's).
    starts, sizes: [G] each, in any order.
    counts: [G], the rows in use of each matrix of a. In matrices, group g begins at g * alignment.
    alignment: what groups begin at multiples of, for offs, or for counts of matrices.
    scale_a, scale_b: float32, of 8-bit operands: as in `scaled_gemm` for an operand without groups
        of its own ([M], or blocks [M, ceil(K / 128)]); else for each group: [G, N] (of an a, [G,
        M]), or blocks [G, ceil(K / 128), N] or [G, ceil(K / 128), ceil(N / 128)]. One value serves
        all. Where K is grouped, [G, M] and [G, N], or, with an alignment that is a multiple of 128,
        blocks of all of K: [M, ceil(K / 128)] and [ceil(K / 128), N], which have precedence. Where
        M or N is grouped, blocks are one row (column) wide along it.
    bias: as in `gemm`, or [G, N], a vector for each group (of a grouped N, [G, M]).
    c: of D's shape; may be `out` itself. beta = 1 and c = out accumulate.
    activation: as in `gemm`; "swiglu", with b [G, K, 2 N] and bias [G, 2 N], where M is grouped.
    epilogue: as in `gemm`. Scalars and vectors of its inputs may be other ones for each group: scalars
        [G], rows [G, N] (not of a grouped N), columns [G, M] (of a grouped N) or [G, M, 1]; or of three
        dimensions, [G, 1, 1] and [G, 1, N]. Matrices have D's shape.
    out: where D goes, of the shape above.
    out_dtype: as in `gemm`, but bfloat16 for int8 with scales.
    zero_rest: True to zero what of D, and of what an epilogue function makes beside it, belongs to no
        group (before, between and after them), False to leave it as it is. By default True for a new
        D, False for `out`; to be said where only some of several outputs are given. A D for each group
        of K has no rest: that of an empty group is zero, or beta * c, or what an epilogue function makes
        of that.
    check_offsets: True, for debugging, to wait for the GPU and check the offsets.

    The other arguments are those of `gemm`.

Returns:
    `out`, or a new array of a's framework on a's device.

Raises as `gemm` does, and with check_offsets ValueError, naming group, value and remedy, for
offsets that decrease, are negative or run past the end, and for groups that overlap. Unchecked,
such groups are clamped to the dimension: results are wrong, but nothing else is written.

Results are repeatable bit by bit. Safe in CUDA graphs once the same product has run, or was
prepared, on that stream (without check_offsets); replays follow the contents of every array,
offsets too.)";

inline constexpr const char* kGroupedGemmWgradDoc =
    R"(The weight gradient of every expert: dw[g] = alpha * dy[begin:end].T @ x[begin:end].

That is `grouped_gemm` of dy.T and x: its arguments, errors and repeatability, and graph safety.

Args:
    dy: [T, N], the gradients of T tokens; with counts also [G, L, N].
    x: [T, K], or [G, L, K]: what the tokens were multiplied from.
    scale_dy: float32, of 8-bit gradients: one value, [G, N], or, with an alignment that is a multiple of
        128, one per 128 tokens: [ceil(T / 128), N]. Where both fit, the latter.
    scale_x: the same of x.
    epilogue: as in `grouped_gemm`, of D = dw: rows have K values, [G, 1, K] of each group, columns N.
    out: [G, N, K], of any float dtype; float32 for a main_grad.
    out_dtype: dw's dtype if there is no `out`; by default dy's, bfloat16 for 8-bit gradients.
    precision: of float32 gradients, as in `gemm`.
    accumulate: True to add to `out` (dw's, of several), in which an empty group then leaves its part as
        it is, unless an epilogue function does more.

Returns:
    `out`, or a new array [G, N, K]. The gradient of an empty group is exactly zero.)";

inline constexpr const char* kPlanProblemDoc =
    R"(Plans a product of packed matrices from its sizes alone.

layout: a letter for A, one for B, as in BLAS, where matrices are column-major: "tn" has K
contiguous in both (A row-major, B column-major), "tt" has both row-major. bias: "none", "row" or
"column". scaling: what the scales of 8-bit operands cover: "none" (there are none), "tensor", "row"
(rows of A, columns of B), or "block_1x128" or "block_128x128", which are B's blocks, A's being
1x128 and stored by column; B's are stored by column if they are 1x128, else by K. epilogue: a
function called with the types of its arrays, as in gelu_residual(bias="bfloat16", scale=0.5,
residual="float16"). device: "cpu", "cuda", "cuda:<index>", or "h100" or "h200" to plan for one on any
machine.

grouping: "m", "n" or "k" for `batch` groups of that dimension, which bounds of int32 describe:
"ends", "indptr", "starts", "aligned_ends" or "counts"; groups of the latter two begin at multiples
of spacing. What `grouped_gemm` is given as matrices for each group is packed so.

weights: "int4", "mxfp4" or "nvfp4" for a packed weight as B, with groups of group_size columns (None: the format's
usual ones, 128, 32 and 16; -1: whole rows) and, with zeros, zero points.

The other arguments, and the errors, are those of `gemm`.)";

inline constexpr const char* kGemmPlanDoc =
    R"(One way to run products of one form: shapes, strides, dtypes, device and options.

Immutable and thread-safe. Made by `plan_gemm`, `plan_scaled_gemm`, `plan_grouped_gemm` and `plan_mixed_gemm`.)";

inline constexpr const char* kRunDoc =
    R"(Runs the product on arrays of the planned form.

The arguments and errors are those of `gemm`, or, if the plan is of plan_scaled_gemm or
plan_grouped_gemm, `scaled_gemm` or `grouped_gemm`; alignment and zero_rest are the plan's. If it is of
plan_mixed_gemm, b is `weights.packed`, and scales, zeros and global_scale are the weight's.

Enqueues on the stream and returns; allocates nothing if `out` is given. Legal while the stream is
being captured if the plan has run, or was prepared, on that stream.)";

inline constexpr const char* kKernelSourcesDoc = "The source text of each kernel; none of the CPU backend.";
inline constexpr const char* kKernelArchDoc =
    "What the kernels are compiled for, as \"sm_90a\"; empty of the CPU backend.";

inline constexpr const char* kPrepareDoc =
    R"(Compiles and loads what is launched, and allocates the pooled workspace of `stream`.

Call it before capturing a CUDA graph on that stream (None: the legacy default stream).)";

inline constexpr const char* kCandidatesDoc =
    R"(What was considered, cheapest first.

Each has kernel, split_k_mode, split_k_slices, predicted_us and workspace_size.)";

inline constexpr const char* kCompileAllDoc =
    R"(Compiles every kernel that the planner can choose for "sm_90a" or "sm_80", on all cores.

Needs NVRTC but no GPU, and fills the disk cache. Returns of each its name, arch, registers,
spill_bytes, shared_bytes, seconds, from_cache and cubin. Raises CudaError if one does not compile.)";

inline constexpr const char* kQuantizeDoc =
    R"(8-bit elements q and float32 scales with x ~ smooth * scale * (q - zero).

x is read once (for a tensor's own scale twice, by two kernels); the largest magnitude of a group
becomes the largest q. What `scaled_gemm` expects: of A its rows quantised, of B those of B.T, passed
as q.T and scale.T.

Args:
    x: [M, K]; float16, bfloat16 or float32, rows contiguous and any distance apart.
    dtype: of q: {quantized}, or such a dtype of torch or ml_dtypes.
    granularity: what shares a scale: "tensor" (scale [1, 1]), "row" ([M, 1]), "block_1x128"
        ([M, ceil(K / 128)]) or "block_128x128" ([ceil(M / 128), ceil(K / 128)]).
    scale: static scales, float32, to be used instead of found: of the shape above with any strides,
        or [M] for rows, or any array of one value for a tensor. Beyond them q saturates.
    zero: with scale and symmetric=False, the zero points: int32, [M] or [M, 1], or one value.
    smooth: [K], float32: x is divided by it, column by column, in the same pass (see `smooth`).
    norm: `cleave.rms_norm(weight, eps)` or `cleave.layer_norm(weight, bias, eps)`: what is quantised is the
        norm of x's rows, in the same kernel, with the roundings of float32 alone. By row, in blocks of
        1x128, or by tensor with `scale`; not with smooth (divide weight and bias by it) or transpose.
    residual: [M, K] like x, of any of its dtypes, with norm: x + residual is normalised, after it was
        rounded to the residual's dtype and written to residual_out.
    residual_out: where that sum goes, [M, K] of residual's dtype; without it a new array. It may be
        `residual` itself (vLLM's fused_add_rms_norm writes so, in place), or x.
    normed_out: [M, K] of x's dtype, with norm: the norm before it is quantised goes there, too. It may
        be x or residual itself.
    symmetric: False, for int8 by row or tensor, makes the range of a group, widened to include 0,
        -128 to 127, with a zero point (vLLM's azp).
    transpose: True, for the blocks, also gives x.T quantised, from the same read: in block_1x128 its
        scales cover 128 rows of x, in block_128x128 they are those of x transposed.
    offs: [G], int32 or int64: where groups of x's rows end, for weight gradients of 8-bit products
        grouped by tokens (block_1x128 with transpose). So that no scale covers two groups, each
        group's columns of q_t begin at a multiple of 128, and what lies between is zero: q_t is
        [K, P], P the largest multiple of 128 up to M + 127 * min(G, M). scale_t is [K, P / 128],
        its rows neighbours. Pass ends, which says where they end, as
        grouped_gemm(dy_t, x_t.T, ends, alignment=128, scale_a=..., scale_b=...).
    out, scale_out: where q and scale go, of their shapes; rows of out contiguous, scale_out of any
        strides. Neither shares memory with anything else.
    scale_major: memory order of a scale that is made: "k", or "mn" for the rows of a column as
        neighbours, which torch and DeepGEMM want for 1x128.
    stream: as in `gemm`; by default the current stream of x's framework.

Returns:
    (q, scale), without symmetry (q, scale, zero), with transpose (q, scale, q_t, scale_t), with
    offs (q, scale, q_t, scale_t, ends); with a residual residual_out follows, and then normed_out if
    it was given: what was given, or new arrays of x's framework on x's device.

Raises:
    TypeError, ValueError, cleave.CudaError: as `gemm`.

Scales are amax / 127, or the largest value of an 8-bit float (448 of e4m3), in float32. A group of
zeros has scale 0 and q 0, one with a NaN scale NaN. Results are bitwise repeatable, and equal on
every device; with a norm equal on one GPU, whatever rows are beside, and in all but last bits on
others. Safe in CUDA graphs once the same call has run, or was prepared by
`plan_quantize(...).prepare(stream)`.)";

inline constexpr const char* kPlanQuantizeDoc =
    R"(What `quantize` would run for arrays of this form; its arguments and errors. Compiles nothing.)";

inline constexpr const char* kQuantizePlanDoc =
    R"(The kernels that quantise arrays of one form: shape, strides, dtypes, device and options.

Immutable and thread-safe. Made by `plan_quantize`; `quantize` finds it by itself.)";

inline constexpr const char* kRouterLogitsDoc =
    R"(A router's logits, x @ weight^T in float32, of few tokens: one launch.

Args:
    x: [tokens, features]; weight: [experts, features]. float32, bfloat16 or float16 each, rows
        contiguous: bfloat16 activations and float32 weights meet without a copy.
    static_weight: True promises that nothing that may still be under way writes weight: it is read
        while the launch ahead ends.

Returns:
    logits, float32 [tokens, experts], as `route` takes them.

Operands are multiplied as they are, by multiply-adds: no product with a 16-bit factor is rounded, and
each is once when it is added. A logit has the same bits in every run, on the CPU and every GPU, and
whatever the other tokens are. Weights are read again for every eight tokens: beyond some 64 tokens
`cleave.gemm`, of float32 with precision="tf32x3" say, takes less time.)";

inline constexpr const char* kRouteDoc =
    R"(The experts that tokens go to, and their weights, from a router's logits: one launch.

    score = softmax(logits), or sigmoid(logits)
    chosen = the top_k experts with the largest score + bias, the best first
    weight = score, over the sum of the chosen ones' if renormalize, times routed_scaling_factor

Args:
    logits: [tokens, experts], float32, bfloat16 or float16, rows contiguous; up to 512 experts.
    top_k: from 1 to 32.
    bias: float32 [experts], for the choice alone: DeepSeek-V3's e_score_correction_bias.
    scoring_func: "softmax" over all experts, or "sigmoid" of each.
    n_group, topk_group: experts lie in n_group groups of neighbours, up to 32, and the choice is
        among those of the topk_group best; all of them if that is None.
    group_score: what a group is chosen for: the sum of its two best scores, with their biases,
        "top2_sum", as DeepSeek-V3, or its best, "max", as DeepSeek-V2.
    renormalize: of a softmax, weights are a softmax of the chosen logits; of sigmoids, 1e-20 is
        added to their sum.

Returns:
    weights, float32 [tokens, top_k], and expert_ids, int32 [tokens, top_k], as `permute` takes them.

Among equal scores the expert with the lower number comes first; -0 equals 0. Without a bias or a
group_score "top2_sum" logits are compared, so that scores which float32 rounds to the same number
are told apart. A NaN is larger than every number, as for torch.topk, and makes the token's weights
NaN where it takes part in them. Ids name experts, and no expert twice, whatever the logits are.
The same bits in every run and for every number of tokens.)";

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
