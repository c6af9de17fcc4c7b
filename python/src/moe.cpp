// cleave._core.moe_*: what cleave.moe documents.
#include "array_type.h"
#include "bindings.h"
#include "errors.h"
#include "operands/moe_operands.h"
#include "plan_cache.h"
#include "tensor.h"
#include "unlocked.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

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
  nb::object offsets() {
    return make(nb::make_tuple(call_.problem.experts), DType::i32, call_.arguments.offsets);
  }
  nb::object indices() {
    return make(nb::make_tuple(call_.slots()), DType::i32, call_.arguments.indices);
  }
  nb::object rows() {
    return make(nb::make_tuple(call_.slots(), call_.problem.columns), call_.problem.row.dtype,
                call_.arguments.rows);
  }
  nb::object tokens() {
    return make(nb::make_tuple(call_.problem.tokens, call_.problem.columns),
                call_.problem.token.dtype, call_.arguments.tokens);
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

int64_t parse_experts(nb::handle num_experts) {
  return parse_integer(num_experts, "num_experts");
}

nb::object expert_offsets(nb::handle expert_ids, nb::handle num_experts, nb::handle stream) {
  TensorReader reader(stream);
  Call call(expert_ids, reader, {.ids = reader.read(expert_ids, "expert_ids")},
            {.operation = MoeOperation::offsets, .experts = parse_experts(num_experts)});
  return call.run(call.offsets());
}

nb::tuple sort_tokens(nb::handle expert_ids, nb::handle num_experts, nb::handle stream) {
  TensorReader reader(stream);
  Call call(expert_ids, reader, {.ids = reader.read(expert_ids, "expert_ids")},
            {.operation = MoeOperation::sort, .experts = parse_experts(num_experts)});
  const nb::object offs = call.offsets(), indices = call.indices();
  return call.run(offs, indices);
}

nb::tuple permute(nb::handle x, nb::handle expert_ids, nb::handle num_experts, nb::handle stream) {
  TensorReader reader(stream);
  const TensorView tokens = reader.read(x, "x");
  Call call(x, reader, {.ids = reader.read(expert_ids, "expert_ids"), .tokens = tokens},
            {.operation = MoeOperation::permute, .experts = parse_experts(num_experts)});
  const nb::object rows = call.rows(), offs = call.offsets(), indices = call.indices();
  return call.run(rows, offs, indices);
}

nb::object gather(nb::handle x, nb::handle indices, nb::handle stream) {
  TensorReader reader(stream);
  const TensorView tokens = reader.read(x, "x");
  Call call(x, reader, {.indices = reader.read(indices, "indices"), .tokens = tokens},
            {.operation = MoeOperation::gather});
  return call.run(call.rows());
}

nb::object unpermute(nb::handle y, nb::handle indices, nb::handle weights, nb::handle top_k,
                     nb::handle stream) {
  TensorReader reader(stream);
  const TensorView rows = reader.read(y, "y");
  MoeOptions options{.operation = MoeOperation::combine};
  if (given(top_k)) options.top_k = parse_integer(top_k, "top_k");
  Call call(y, reader,
            {.indices = reader.read(indices, "indices"),
             .rows = rows,
             .weights = reader.read_given(weights, "weights")},
            options);
  return call.run(call.tokens());
}

}  // namespace

void bind_moe(nb::module_& m) {
  m.def("moe_expert_offsets", &expert_offsets, "expert_ids"_a.none(), "num_experts"_a.none(),
        "stream"_a = nb::none());
  m.def("moe_sort_tokens", &sort_tokens, "expert_ids"_a.none(), "num_experts"_a.none(),
        "stream"_a = nb::none());
  m.def("moe_permute", &permute, "x"_a.none(), "expert_ids"_a.none(), "num_experts"_a.none(),
        "stream"_a = nb::none());
  m.def("moe_gather", &gather, "x"_a.none(), "indices"_a.none(), "stream"_a = nb::none());
  m.def("moe_unpermute", &unpermute, "y"_a.none(), "indices"_a.none(), "weights"_a = nb::none(),
        "top_k"_a = nb::none(), "stream"_a = nb::none());
}

}  // namespace cleave::python
