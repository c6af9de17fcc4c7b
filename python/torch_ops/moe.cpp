#include "operands/moe_operands.h"

#include "product.h"

namespace cleave::torch_ops {
namespace {

/// One call, and what it makes.
class Call {
 public:
  Call(const MoeTensors& tensors, const MoeOptions& options)
      : call_(make_call(tensors, options)), plan_(plan(call_.problem)) {}

  Tensor offsets() { return vector(call_.problem.experts, call_.arguments.offsets); }
  Tensor indices() { return vector(call_.slots(), call_.arguments.indices); }
  Tensor rows() { return matrix(call_.slots(), call_.problem.row, call_.arguments.rows); }
  Tensor row_scales() {
    const int64_t shape[] = {call_.slots(), call_.scales()};
    return make(shape, DType::f32, call_.problem.device, call_.arguments.row_scales);
  }
  Tensor rows_grad() { return matrix(call_.slots(), call_.problem.row_grad, call_.arguments.rows_grad); }
  Tensor tokens() { return matrix(call_.problem.tokens, call_.problem.token, call_.arguments.tokens); }
  Tensor weights_grad() {
    const int64_t shape[] = {call_.problem.tokens, call_.problem.top_k};
    return make(shape, call_.problem.weights_dtype, call_.problem.device, call_.arguments.weights_grad);
  }

  void run() const { plan_->run(call_.arguments, current_stream(call_.problem.device)); }

 private:
  Tensor vector(int64_t size, int32_t*& data) {
    const int64_t shape[] = {size};
    return make(shape, DType::i32, call_.problem.device, data);
  }
  Tensor matrix(int64_t rows, const MatrixLayout& layout, void*& data) {
    const int64_t shape[] = {rows, call_.problem.columns};
    return make(shape, layout.dtype, call_.problem.device, data);
  }

  MoeCall call_;
  std::shared_ptr<const MoePlan> plan_;
};

using ExpertIds = TensorArgument<"expert_ids">;
using NumExperts = Argument<"num_experts", "int", int64_t>;
using X = TensorArgument<"x">;
using Y = TensorArgument<"y">;
using Grad = TensorArgument<"grad">;
using Indices = TensorArgument<"indices">;
using Weights = MaybeTensorArgument<"weights">;
using GivenWeights = TensorArgument<"weights">;
using RowDtype = Argument<"dtype", "ScalarType", ScalarType>;
using TopK = Argument<"top_k", "int?", std::optional<int64_t>, "None">;

/// Plans what the operation makes of the arguments that it has.
template <class Arguments>
Call begin(MoeOperation operation, const Arguments& arguments) {
  MoeOptions options{.operation = operation};
  arguments.template read<NumExperts>(options.experts);
  arguments.template read<TopK>(options.top_k);
  if constexpr (Arguments::template has<RowDtype>()) {
    options.out_dtype = dtype_of(arguments.template get<RowDtype>(), "dtype");
  }
  const bool is_backward = operation == MoeOperation::combine_backward;
  return Call({.ids = operand<ExpertIds>(arguments),
               .indices = operand<Indices>(arguments),
               .tokens = is_backward ? operand<Grad>(arguments) : operand<X>(arguments),
               .rows = operand<Y>(arguments),
               .weights = is_backward ? operand<GivenWeights>(arguments) : operand<Weights>(arguments)},
              options);
}

}  // namespace

void add_moe(Operators& operators) {
  operators.add("moe_expert_offsets", List<ExpertIds, NumExperts>(), List<>(), [](const auto& arguments) {
    Call call = begin(MoeOperation::offsets, arguments);
    const Tensor offs = call.offsets();
    call.run();
    return offs;
  });
  operators.add("moe_sort_tokens", List<ExpertIds, NumExperts>(), List<>(), [](const auto& arguments) {
    Call call = begin(MoeOperation::sort, arguments);
    const Tensor offs = call.offsets(), indices = call.indices();
    call.run();
    return std::tuple{offs, indices};
  });
  operators.add("moe_permute", List<X, ExpertIds, NumExperts>(), List<>(), [](const auto& arguments) {
    Call call = begin(MoeOperation::permute, arguments);
    const Tensor rows = call.rows(), offs = call.offsets(), indices = call.indices();
    call.run();
    return std::tuple{rows, offs, indices};
  });
  operators.add("moe_gather", List<X, Indices>(), List<>(), [](const auto& arguments) {
    Call call = begin(MoeOperation::gather, arguments);
    const Tensor rows = call.rows();
    call.run();
    return rows;
  });
  operators.add(
      "moe_permute_quantized", List<X, ExpertIds, NumExperts, RowDtype>(), List<>(), [](const auto& arguments) {
        Call call = begin(MoeOperation::permute, arguments);
        const Tensor rows = call.rows(), scale = call.row_scales(), offs = call.offsets(), indices = call.indices();
        call.run();
        return std::tuple{rows, scale, offs, indices};
      });
  operators.add("moe_gather_quantized", List<X, Indices, RowDtype>(), List<>(), [](const auto& arguments) {
    Call call = begin(MoeOperation::gather, arguments);
    const Tensor rows = call.rows(), scale = call.row_scales();
    call.run();
    return std::tuple{rows, scale};
  });
  operators.add("moe_unpermute", List<Y, Indices, Weights, TopK>(), List<>(), [](const auto& arguments) {
    Call call = begin(MoeOperation::combine, arguments);
    const Tensor tokens = call.tokens();
    call.run();
    return tokens;
  });
  operators.add("moe_unpermute_backward", List<Grad, Y, Indices, GivenWeights>(), List<>(), [](const auto& arguments) {
    Call call = begin(MoeOperation::combine_backward, arguments);
    const Tensor rows_grad = call.rows_grad(), weights_grad = call.weights_grad();
    call.run();
    return std::tuple{rows_grad, weights_grad};
  });
}

}  // namespace cleave::torch_ops
