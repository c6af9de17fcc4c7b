// cleave._core.moe_*: what cleave.moe documents.
#include "array_type.h"
#include "bindings.h"
#include "define.h"
#include "errors.h"
#include "operands/moe_operands.h"
#include "parameters.h"
#include "plan_cache.h"
#include "tensor.h"
#include "unlocked.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

using MoePlans = RecentPlans<MoeProblem, MoePlan>;

/// One call: planned at once, so that what cannot be is refused before anything is made.
class Call {
 public:
  Call(nb::handle like, TensorReader& reader, const MoeTensors& tensors, const MoeOptions& options)
      : like_(like), reader_(reader), call_(make_call(tensors, options)) {
    plan_ = MoePlans::shared().find(call_.problem);
    known_ = plan_ != nullptr;
    if (known_) return;
    const Unlocked unlocked;
    plan_ = plan(call_.problem);
  }

  // What is returned, as arrays of the framework and class of `like`.
  nb::object offsets() { return make(nb::make_tuple(call_.problem.experts), DType::i32, call_.arguments.offsets); }
  nb::object indices() { return make(nb::make_tuple(call_.slots()), DType::i32, call_.arguments.indices); }
  nb::object rows() {
    return make(nb::make_tuple(call_.slots(), call_.problem.columns), call_.problem.row.dtype, call_.arguments.rows);
  }
  nb::object tokens() {
    return make(nb::make_tuple(call_.problem.tokens, call_.problem.columns), call_.problem.token.dtype,
                call_.arguments.tokens);
  }

  /// Runs, and gives what the user gets.
  template <class... Arrays>
  auto run(const Arrays&... made) {
    {
      const Unlocked unlocked;
      plan_->run(call_.arguments, reader_.stream());
    }
    if (!known_) MoePlans::shared().insert(call_.problem, std::move(plan_));
    if constexpr (sizeof...(made) == 1) {
      return (finish(made), ...);
    } else {
      return nb::make_tuple(finish(made)...);
    }
  }

 private:
  template <class T>
  nb::object make(nb::tuple shape, DType dtype, T*& data) {
    if (array_type_of(like_)->empty.is_none()) {
      refuse_value(
          "{} is of no framework that arrays can be made of; pass torch, NumPy, CuPy or "
          "JAX arrays",
          class_name(like_));
    }
    nb::object array = reader_.make(&ArrayType::empty, like_, shape, dtype, call_.problem.device);
    data = static_cast<T*>(reader_.read(array, "the result").data);
    return array;
  }

  nb::object finish(const nb::object& array) const {
    const nb::object finish = array_type_of(like_)->finish;
    return finish.is_none() ? array : finish(array);
  }

  nb::handle like_;
  TensorReader& reader_;
  MoeCall call_;
  std::shared_ptr<const MoePlan> plan_;
  bool known_ = false;
};

using ExpertIds = Array<"expert_ids">;
using NumExperts = Integer<"num_experts">;
using X = Array<"x">;
using Y = Array<"y">;
using Indices = Array<"indices">;
using Weights = MaybeArray<"weights">;
using TopK = Integer<"top_k", "None", "int | None">;

using Arguments = Values<ExpertIds, NumExperts, X, Y, Indices, Weights, TopK, arg::Stream>;

MoeOptions parse_options(MoeOperation operation, const Arguments& arguments) {
  MoeOptions options{.operation = operation};
  arguments.read<NumExperts>(options.experts);
  arguments.read<TopK>(options.top_k);
  return options;
}

template <class P>
Operand read(const Arguments& arguments, TensorReader& reader) {
  return reader.read(arguments.get<P>(), P::name());
}

nb::object expert_offsets(const Arguments& arguments) {
  TensorReader reader(arguments.get<arg::Stream>());
  Call call(arguments.get<ExpertIds>(), reader, {.ids = read<ExpertIds>(arguments, reader)},
            parse_options(MoeOperation::offsets, arguments));
  return call.run(call.offsets());
}

nb::tuple sort_tokens(const Arguments& arguments) {
  TensorReader reader(arguments.get<arg::Stream>());
  Call call(arguments.get<ExpertIds>(), reader, {.ids = read<ExpertIds>(arguments, reader)},
            parse_options(MoeOperation::sort, arguments));
  const nb::object offs = call.offsets(), indices = call.indices();
  return call.run(offs, indices);
}

nb::tuple permute(const Arguments& arguments) {
  TensorReader reader(arguments.get<arg::Stream>());
  const Operand tokens = read<X>(arguments, reader);
  Call call(arguments.get<X>(), reader, {.ids = read<ExpertIds>(arguments, reader), .tokens = tokens},
            parse_options(MoeOperation::permute, arguments));
  const nb::object rows = call.rows(), offs = call.offsets(), indices = call.indices();
  return call.run(rows, offs, indices);
}

nb::object gather(const Arguments& arguments) {
  TensorReader reader(arguments.get<arg::Stream>());
  const Operand tokens = read<X>(arguments, reader);
  Call call(arguments.get<X>(), reader, {.indices = read<Indices>(arguments, reader), .tokens = tokens},
            parse_options(MoeOperation::gather, arguments));
  return call.run(call.rows());
}

nb::object unpermute(const Arguments& arguments) {
  TensorReader reader(arguments.get<arg::Stream>());
  const Operand rows = read<Y>(arguments, reader);
  Call call(arguments.get<Y>(), reader,
            {.indices = read<Indices>(arguments, reader),
             .rows = rows,
             .weights = reader.read_given(arguments.get<Weights>(), Weights::name())},
            parse_options(MoeOperation::combine, arguments));
  return call.run(call.tokens());
}

}  // namespace

void bind_moe(nb::module_& m) {
  const char* const doc = "See cleave.moe.";
  define(m, "moe_expert_offsets", List<ExpertIds, NumExperts, arg::Stream>(), List<>(), "Array", doc,
         [](const auto& call) { return expert_offsets(call); });
  define(m, "moe_sort_tokens", List<ExpertIds, NumExperts, arg::Stream>(), List<>(), "tuple[Array, Array]", doc,
         [](const auto& call) { return sort_tokens(call); });
  define(m, "moe_permute", List<X, ExpertIds, NumExperts, arg::Stream>(), List<>(), "tuple[Array, Array, Array]", doc,
         [](const auto& call) { return permute(call); });
  define(m, "moe_gather", List<X, Indices, arg::Stream>(), List<>(), "Array", doc,
         [](const auto& call) { return gather(call); });
  define(m, "moe_unpermute", List<Y, Indices, Weights, TopK, arg::Stream>(), List<>(), "Array", doc,
         [](const auto& call) { return unpermute(call); });
}

}  // namespace cleave::python
