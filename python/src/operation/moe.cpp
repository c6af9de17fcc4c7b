// The functions of cleave.moe.
#include <array>

#include "array/tensor.h"
#include "call/define.h"
#include "call/parameters.h"
#include "module/bindings.h"
#include "moe/problem.h"
#include "operands/moe_operands.h"
#include "plans/plan_cache.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

constexpr const char* kExpertOffsetsDoc =
    R"(Where each expert's rows end: the `offs` of `cleave.grouped_gemm`, in one kernel launch.

Args:
    expert_ids: of any shape, int32 or int64, contiguous. Ids that name no expert count nowhere.
    num_experts: from 1 to 1024.

Returns:
    int32 [num_experts]: how many ids are at most 0, 1, and so on.)";

constexpr const char* kSortTokensDoc =
    R"(`permute` without rows: for products that gather them, or for `gather`.

Args: as `expert_offsets`.

Returns:
    offs, int32 [num_experts], and indices, int32 [tokens * top_k]: of every row its slot, or
    ~slot, which is negative, of one that is dropped.)";

constexpr const char* kPermuteDoc =
    R"(The tokens' rows sorted by expert.

Args:
    x: [tokens, features], of any dtype, rows contiguous. Read once, whatever top_k is.
    expert_ids: [tokens, top_k] or [tokens], int32 or int64, contiguous.
    num_experts: from 1 to 1024.
    out_dtype: "int8", "float8_e4m3fn" or "float8_e5m2" quantises the tokens, float16, bfloat16 or
        float32, on their way, with a scale for each 128 columns, as `cleave.quantize(x, out_dtype,
        "block_1x128")` does. None copies them.

Returns:
    rows, [tokens * top_k, features], zeros where dropped; if they are quantised then scale, float32
    [tokens * top_k, ceil(features / 128)]; offs and indices as `sort_tokens`.)";

constexpr const char* kGatherDoc =
    R"(The rows of other tokens, by `indices` that are known: scales, say, or gradients.

Args:
    x: [tokens, features], of any dtype, rows contiguous.
    indices: int32 [tokens * top_k], as `permute` gives them. What is no such permutation gives
        rows with any contents.
    out_dtype: as in `permute`.

Returns:
    rows, [tokens * top_k, features], zeros where dropped; with out_dtype a tuple of rows and scale.)";

constexpr const char* kUnpermuteDoc =
    R"(Every token's sum of its slots' rows, times their weights.

Args:
    y: [tokens * top_k, features], float16, bfloat16 or float32, rows contiguous.
    indices: int32 [tokens * top_k], as `permute` gives them.
    weights: [tokens, top_k], float16, bfloat16 or float32, contiguous; None for ones.
    top_k: of a token, where there are no weights to tell; by default 1.

Returns:
    [tokens, features], of y's dtype: sums in float32, in the order of the slots. Dropped slots add
    nothing.)";

using ExpertIds = Array<"expert_ids">;
using NumExperts = Integer<"num_experts">;
using X = Array<"x">;
using Y = Array<"y">;
using Indices = Array<"indices">;
using Weights = MaybeArray<"weights">;
using MaybeTopK = Integer<"top_k", "None", "int | None">;

using Arguments = Values<ExpertIds, NumExperts, X, Y, Indices, Weights, MaybeTopK, arg::OutDtype, arg::Stream>;

/// One call: planned at once, so that what cannot be is refused before anything is made.
class Call {
 public:
  Call(MoeOperation operation, const Arguments& arguments)
      : reader_(arguments.get<arg::Stream>()), call_(read(operation, arguments)) {
    plan_ = RecentPlans<MoeProblem>::shared().get(call_.problem);
  }

  // What is returned, as arrays of the first argument's framework and class.
  nb::object offsets() { return make(std::array{call_.problem.experts}, DType::i32, call_.arguments.offsets); }
  nb::object indices() { return make(std::array{call_.slots()}, DType::i32, call_.arguments.indices); }
  nb::object rows() {
    return make(std::array{call_.slots(), call_.problem.columns}, call_.problem.row.dtype, call_.arguments.rows);
  }
  nb::object row_scales() {
    return make(std::array{call_.slots(), call_.scales()}, DType::f32, call_.arguments.row_scales);
  }
  nb::object tokens() {
    return make(std::array{call_.problem.tokens, call_.problem.columns}, call_.problem.token.dtype,
                call_.arguments.tokens);
  }

  bool is_scaled() const { return call_.problem.scaled; }

  /// Makes `results`, members of this class, runs, and gives them to the user.
  template <class... Results>
  nb::object run(Results... results) {
    const std::array made{(this->*results)()...};
    {
      const nb::gil_scoped_release unlocked;
      plan_->run(call_.arguments, reader_.stream());
    }
    if constexpr (sizeof...(results) == 1) return finished(like_, made[0]);
    nb::list list;
    for (const nb::object& array : made) list.append(finished(like_, array));
    return nb::tuple(list);
  }

 private:
  MoeCall read(MoeOperation operation, const Arguments& arguments) {
    MoeOptions options{.operation = operation};
    arguments.read<NumExperts>(options.experts);
    arguments.read<MaybeTopK>(options.top_k);
    arguments.read<arg::OutDtype>(options.out_dtype);
    // The first one's framework says what the stream is.
    MoeTensors tensors{.tokens = reader_.read<X>(arguments), .rows = reader_.read<Y>(arguments)};
    like_ = tensors.tokens ? arguments.get<X>() : tensors.rows ? arguments.get<Y>() : arguments.get<ExpertIds>();
    tensors.ids = reader_.read<ExpertIds>(arguments);
    tensors.indices = reader_.read<Indices>(arguments);
    tensors.weights = reader_.read<Weights>(arguments);
    return make_call(tensors, options);
  }

  template <class T>
  nb::object make(Shape shape, DType dtype, T*& data) {
    const nb::object array =
        reader_.make(&ArrayType::empty, like_, shape, dtype, call_.problem.device, "another framework");
    data = static_cast<T*>(reader_.read(array, "the result").data);
    return array;
  }

  TensorReader reader_;
  nb::handle like_;
  MoeCall call_;
  RecentPlans<MoeProblem>::Plan plan_;
};

template <class... Ps, class... Ks, class... Results>
void bind(nb::module_& m, const char* name, MoeOperation operation, List<Ps...> positional, List<Ks...>,
          const char* returns, const char* doc, Results... results) {
  define(m, name, positional, List<Ks..., arg::Stream>(), returns, doc,
         [=](const auto& call) { return Call(operation, call).run(results...); });
}

}  // namespace

void bind_moe(nb::module_& m) {
  bind(m, "expert_offsets", MoeOperation::offsets, List<ExpertIds, NumExperts>(), List<>(), "Array", kExpertOffsetsDoc,
       &Call::offsets);
  bind(m, "sort_tokens", MoeOperation::sort, List<ExpertIds, NumExperts>(), List<>(), "tuple[Array, Array]",
       kSortTokensDoc, &Call::offsets, &Call::indices);
  define(m, "permute", List<X, ExpertIds, NumExperts>(), List<arg::OutDtype, arg::Stream>(), "tuple[Array, ...]",
         kPermuteDoc, [](const auto& arguments) {
           Call call(MoeOperation::permute, arguments);
           if (!call.is_scaled()) return call.run(&Call::rows, &Call::offsets, &Call::indices);
           return call.run(&Call::rows, &Call::row_scales, &Call::offsets, &Call::indices);
         });
  define(m, "gather", List<X, Indices>(), List<arg::OutDtype, arg::Stream>(), "Array | tuple[Array, Array]", kGatherDoc,
         [](const auto& arguments) {
           Call call(MoeOperation::gather, arguments);
           return call.is_scaled() ? call.run(&Call::rows, &Call::row_scales) : call.run(&Call::rows);
         });
  bind(m, "unpermute", MoeOperation::combine, List<Y, Indices, Weights>(), List<MaybeTopK>(), "Array", kUnpermuteDoc,
       &Call::tokens);
}

}  // namespace cleave::python
