// Signatures and docstrings of the functions with many arguments, as users and the type stub see
// them. A signature is one line: of several, nanobind would show only the last.
#pragma once

namespace cleave::python {

inline constexpr const char* kGemmSignature =
    "def gemm(a: Array, b: Array, *, c: Array | None = None, alpha: float = 1.0, "
    "beta: float | None = None, bias: Array | None = None, activation: str = 'none', "
    "out: Array | None = None, out_dtype: object = None, split_k_mode: str = 'auto', "
    "split_k_slices: int | None = None, deterministic: bool = True, kernel: str = 'auto', "
    "stream: object = None, workspace: object = None) -> Array";

inline constexpr const char* kGemmDoc =
    R"(D = activation(alpha * a @ b + beta * c + bias), with K split where that is faster.

Arrays are torch tensors, NumPy, CuPy or JAX arrays, or anything else with DLPack or
``__cuda_array_interface__``, all on one device. CUDA arrays run on the GPU, and the call returns
once the work is enqueued; host arrays run on the CPU backend, and it returns when it is done.

Args:
    a: [M, K] or [B, M, K]; float16, bfloat16 or float32 (multiplied as tf32 on the GPU). Sums are
        float32.
    b: [K, N] or [B, K, N], of a's dtype. A two-dimensional operand, or one with B = 1, serves the
        whole batch. Of the last two strides of every array one must be 1: transposed and sliced
        views go through without a copy.
    c: [M, N] or [B, M, N], of any supported dtype; may be `out` itself. Not read if beta is 0.
    alpha, beta: numbers. By default beta is 1 with a `c`, and 0 without.
    bias: [N] or [1, N] adds one value per column of D, [M, 1] one per row; contiguous, of any
        supported dtype.
    activation: "none", "relu", "gelu", "gelu_tanh" or "silu".
    out: where D goes: [M, N], or [B, M, N] if an operand has a batch. Shares no memory with a, b
        or bias.
    out_dtype: D's dtype if there is no `out`: a name, or a torch or NumPy dtype; a's by default.
    split_k_mode: "none", "serial", "parallel", "cluster", "stream_k" or "auto". Every mode is
        repeatable bit by bit, but results of two modes or slice counts may differ in the last bits.
    split_k_slices: from 1 to K; None lets the planner choose.
    deterministic: repeatable results are demanded: honoured or refused.
    kernel: "auto", "sm90" (TMA and WGMMA) or "portable" (sm_80 and later, any alignment).
    stream: a CUDA stream of torch, CuPy, Numba or cuda.core, or its handle as an integer, which is
        not checked. By default the current stream of a's framework.
    workspace: a one-dimensional array of at least `GemmPlan.workspace_size` bytes on the same
        device, its first `counter_size` bytes zero before its first use. By default a pooled one
        of the stream.

Returns:
    `out`, or a new array of a's framework on a's device.

Raises:
    TypeError: an argument is no array, of an unsupported dtype, or otherwise of the wrong kind.
    ValueError: shapes, strides, devices or options do not fit; the message names the remedy.
    cleave.CudaError: the driver or the compiler failed, or a stream is being captured and the
        product needs a kernel that `GemmPlan.prepare` would have compiled.
    After any error `out` has its old contents.

Safe in CUDA graphs once the same product has run, or was prepared, on that stream. There is no
autograd formula: an operand that requires grad is refused while grad mode is on.)";

inline constexpr const char* kPlanGemmSignature =
    "def plan_gemm(a: Array, b: Array, *, c: Array | None = None, bias: Array | None = None, "
    "activation: str = 'none', out: Array | None = None, out_dtype: object = None, "
    "split_k_mode: str = 'auto', split_k_slices: int | None = None, "
    "deterministic: bool = True, kernel: str = 'auto') -> GemmPlan";

inline constexpr const char* kPlanGemmDoc =
    R"(Plans a product without running it; the arguments and errors are those of `gemm`.

Of the arrays only shape, strides, dtype, device and alignment matter; `c` and `bias` say whether
the product has them. Returns a `GemmPlan` for arrays of just this form. Compiles nothing.)";

inline constexpr const char* kPlanProblemSignature =
    "def plan_problem(m: int, n: int, k: int, *, batch: int = 1, dtype: object = 'bfloat16', "
    "layout: str = 'tn', out_dtype: object = None, activation: str = 'none', "
    "bias: str = 'none', split_k_mode: str = 'auto', "
    "split_k_slices: int | None = None, deterministic: bool = True, "
    "kernel: str = 'auto', device: str = 'cuda') -> GemmPlan";

inline constexpr const char* kPlanProblemDoc =
    R"(Plans a product of packed matrices from its sizes alone.

layout: a letter for A, one for B, as in BLAS, where matrices are column-major: "tn" has K
contiguous in both (A row-major, B column-major), "tt" has both row-major. bias: "none", "row" or
"column". device: "cpu", "cuda", "cuda:<index>", or "h100" to plan for an H100 on any machine.
The other arguments, and the errors, are those of `gemm`.)";

inline constexpr const char* kGemmPlanDoc =
    R"(One way to run products of one form: shapes, strides, dtypes, device and options.

Immutable and thread-safe. Made by `plan_gemm`.)";

inline constexpr const char* kRunSignature =
    "def run(self, a: Array, b: Array, *, c: Array | None = None, out: Array | None = None, "
    "bias: Array | None = None, alpha: float = 1.0, beta: float | None = None, "
    "stream: object = None, workspace: object = None) -> Array";

inline constexpr const char* kRunDoc =
    R"(Runs the product on arrays of the planned form; the arguments and errors are those of `gemm`.

Enqueues on the stream and returns; allocates nothing if `out` is given. Legal while the stream is
being captured if the plan has run, or was prepared, on that stream.)";

inline constexpr const char* kPrepareDoc =
    R"(Compiles and loads the kernel, and allocates the pooled workspace of `stream`.

Call it before capturing a CUDA graph on that stream (None: the legacy default stream).)";

inline constexpr const char* kCandidatesDoc =
    R"(What was considered, cheapest first.

Of each: kernel, split_k_mode, split_k_slices, predicted_us and workspace_size.)";

inline constexpr const char* kCompileAllDoc =
    R"(Compiles every kernel that the planner can choose for "sm_90a" or "sm_80", on all cores.

Needs NVRTC but no GPU, and fills the disk cache. Returns of each its name, arch, registers,
spill_bytes, shared_bytes, seconds and from_cache. Raises CudaError if one does not compile.)";

}  // namespace cleave::python
