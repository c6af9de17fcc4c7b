// The functions of cleave.moe.
#include <array>

#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "operands/moe_operands.h"
#include "parameters.h"
#include "plan_cache.h"
#include "tensor.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

using ExpertIds = Array<"expert_ids">;
using NumExperts = Integer<"num_experts">;
using X = Array<"x">;
using Y = Array<"y">;
using Indices = Array<"indices">;
using Weights = MaybeArray<"weights">;
using TopK = Integer<"top_k", "None", "int | None">;

using Arguments = Values<ExpertIds, NumExperts, X, Y, Indices, Weights, TopK, arg::Stream>;

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
  nb::object tokens() {
    return make(std::array{call_.problem.tokens, call_.problem.columns}, call_.problem.token.dtype,
                call_.arguments.tokens);
  }

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
    arguments.read<TopK>(options.top_k);
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
  bind(m, "permute", MoeOperation::permute, List<X, ExpertIds, NumExperts>(), List<>(), "tuple[Array, Array, Array]",
       kPermuteDoc, &Call::rows, &Call::offsets, &Call::indices);
  bind(m, "gather", MoeOperation::gather, List<X, Indices>(), List<>(), "Array", kGatherDoc, &Call::rows);
  bind(m, "unpermute", MoeOperation::combine, List<Y, Indices, Weights>(), List<TopK>(), "Array", kUnpermuteDoc,
       &Call::tokens);
}

}  // namespace cleave::python
