#include "call/define.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "operands/roles.h"
#include "plans/plan_docs.h"
#include "product/product.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

constexpr const char* kGroupedGemmDoc =
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
        dimensions. With counts, the rows of all groups of a must be evenly spaced, as in a contiguous
        array, and so must those of all other arrays but scale_a. Both may also be one-dimensional and
        contiguous, each group's part being a matrix a_g [M, room] or b_g [N, room], where room is the
        group's size rounded up to alignment; this form needs offs and `out`.
    offs: [G], where each group ends: the running total of the sizes (torch's offs). With alignment,
        a group begins where the one before ends, rounded up to a multiple (DeepEP's prefix sums).
    indptr: [G + 1], the same after a leading 0 (FlashInfer's).
    starts, sizes: [G] each, in any order.
    counts: [G], how many rows of each matrix of a are used. Where groups lie in one matrix, group g
        begins at g * alignment.
    alignment: every group begins at a multiple of it; for offs, and for counts where groups lie in one
        matrix.
    expected_m: how many rows a group is expected to have, on average, where M is grouped and a has room
        for more: a hint, with which a kernel is chosen that is fast for so many. It changes no result
        but its last bits, and groups may have any size. It is rounded up by an eighth at most, so that
        few plans are made. Without it, groups are expected to fill a.
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
    scale_d, amax: as in `scaled_gemm`, for all groups together; amax is that of what belongs to groups.
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

constexpr const char* kGroupedGemmWgradDoc =
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
    out_scale, scale_out, scale_major, use_ue8m0: as in `grouped_gemm`: "block_1x128" alone.
    accumulate: True adds to `out` (to dw if there are several outputs). An empty group then leaves its
        part as it is, unless an epilogue function does more.

Returns:
    `out`, or a new array [G, N, K]. The gradient of an empty group is exactly zero.)";

void check_ranks(nb::handle dy, nb::handle x, bool has_counts) {
  TensorReader reader{nb::none()};
  const TensorView view_dy = reader.read(dy, "dy"), view_x = reader.read(x, "x");
  const int rank = view_dy.ndim;
  if (rank == view_x.ndim && (rank == 2 || (rank == 3 && has_counts))) return;
  refuse_value("dy is {} and x is {}; both must be matrices, or, with counts, batches of them", shape_text(view_dy),
               shape_text(view_x));
}

using Dy = Array<"dy">;
using X = Array<"x">;
using ScaleDy = MaybeArray<"scale_dy">;
using ScaleX = MaybeArray<"scale_x">;

template <class Call>
nb::object weight_gradient(const Call& call) {
  check_ranks(call.template get<Dy>(), call.template get<X>(), given(call.template get<arg::Counts>()));
  GemmInputs inputs(call);
  inputs.set<arg::A>(call.template get<Dy>());
  inputs.set<arg::B>(call.template get<X>());
  inputs.set<arg::ScaleA>(call.template get<ScaleDy>());
  inputs.set<arg::ScaleB>(call.template get<ScaleX>());
  bool accumulate = false;
  call.template read<arg::Accumulate>(accumulate);
  const nb::handle out = first_output(inputs.get<arg::Out>());
  if (accumulate && !given(out)) {
    refuse_value("accumulate is True, but there is no out to add to; pass out");
  }
  if (accumulate) inputs.set<arg::C>(out);
  return with_roles({{"a", "dy transposed"}, {"b", "x"}},
                    [&] { return multiply(inputs, call, call, {.grouped = true, .a_is_transposed = true}); });
}

}  // namespace

void bind_grouped_gemm(nb::module_& m) {
  m.attr("most_groups") = kMostGroups;
  using Operands = List<arg::A, arg::B, arg::Offs>;
  using Options =
      Concat<Bounds, List<arg::ExpectedM, arg::Gather, arg::SlotsOfRow, arg::ScaleA, arg::ScaleB, arg::Bias, arg::C>,
             Scalars, List<arg::ScaleD, arg::Amax>,
             List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype, arg::UseFastAccum, arg::ZeroRest,
                  arg::CheckOffsets>,
             FoundScales, SplitK, List<arg::Precision>, Place>;

  define(m, "grouped_gemm", Operands(), Options(), "Array | tuple[Array, ...]", kGroupedGemmDoc,
         [](const auto& call) { return multiply(call, call, call, {.grouped = true}); });
  define(m, "plan_grouped_gemm", Operands(), Without<Options, OfCalls>(), "GemmPlan", plan_doc("grouped_gemm").c_str(),
         [](const auto& call) { return plan_product(call, call, {.grouped = true}); });

  using WgradOptions = Concat<Bounds,
                              List<ScaleDy, ScaleX, arg::Alpha, arg::Epilogue, arg::Out, arg::OutDtype, arg::Accumulate,
                                   arg::UseFastAccum, arg::CheckOffsets>,
                              FoundScales, SplitK, List<arg::Precision>, Place>;

  define(m, "grouped_gemm_wgrad", List<Dy, X, arg::Offs>(), WgradOptions(), "Array | tuple[Array, ...]",
         kGroupedGemmWgradDoc, [](const auto& call) { return weight_gradient(call); });
}

}  // namespace cleave::python
