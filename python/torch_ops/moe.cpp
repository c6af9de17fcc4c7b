#include "operands/moe_operands.h"

#include "ops.h"

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
  Tensor rows_grad() {
    return matrix(call_.slots(), call_.problem.row_grad, call_.arguments.rows_grad);
  }
  Tensor tokens() {
    return matrix(call_.problem.tokens, call_.problem.token, call_.arguments.tokens);
  }
  Tensor weights_grad() {
    const int64_t shape[] = {call_.problem.tokens, call_.problem.top_k};
    return made(shape, call_.problem.weights_dtype, call_.arguments.weights_grad);
  }

  void run() const { plan_->run(call_.arguments, current_stream(call_.problem.device)); }

 private:
  Tensor vector(int64_t size, int32_t*& data) {
    const int64_t shape[] = {size};
    return made(shape, DType::i32, data);
  }
  Tensor matrix(int64_t rows, const MatrixLayout& layout, void*& data) {
    const int64_t shape[] = {rows, call_.problem.columns};
    return made(shape, layout.dtype, data);
  }
  template <class T>
  Tensor made(std::span<const int64_t> shape, DType dtype, T*& data) {
    Tensor tensor = empty(shape, dtype, call_.problem.device);
    data = static_cast<T*>(tensor.data_ptr());
    return tensor;
  }

  MoeCall call_;
  std::shared_ptr<const MoePlan> plan_;
};

}  // namespace

Tensor moe_expert_offsets(const Tensor& expert_ids, int64_t num_experts) {
  Call call({.ids = read(expert_ids)},
            {.operation = MoeOperation::offsets, .experts = num_experts});
  const Tensor offs = call.offsets();
  call.run();
  return offs;
}

std::tuple<Tensor, Tensor> moe_sort_tokens(const Tensor& expert_ids, int64_t num_experts) {
  Call call({.ids = read(expert_ids)}, {.operation = MoeOperation::sort, .experts = num_experts});
  const Tensor offs = call.offsets(), indices = call.indices();
  call.run();
  return {offs, indices};
}

std::tuple<Tensor, Tensor, Tensor> moe_permute(const Tensor& x, const Tensor& expert_ids,
                                               int64_t num_experts) {
  Call call({.ids = read(expert_ids), .tokens = read(x)},
            {.operation = MoeOperation::permute, .experts = num_experts});
  const Tensor rows = call.rows(), offs = call.offsets(), indices = call.indices();
  call.run();
  return {rows, offs, indices};
}

Tensor moe_gather(const Tensor& x, const Tensor& indices) {
  Call call({.indices = read(indices), .tokens = read(x)}, {.operation = MoeOperation::gather});
  const Tensor rows = call.rows();
  call.run();
  return rows;
}

Tensor moe_unpermute(const Tensor& y, const Tensor& indices, const MaybeTensor& weights,
                     std::optional<int64_t> top_k) {
  Call call({.indices = read(indices), .rows = read(y), .weights = read(weights)},
            {.operation = MoeOperation::combine, .top_k = top_k});
  const Tensor tokens = call.tokens();
  call.run();
  return tokens;
}

std::tuple<Tensor, Tensor> moe_unpermute_backward(const Tensor& grad, const Tensor& y,
                                                  const Tensor& indices, const Tensor& weights) {
  Call call(
      {.indices = read(indices), .tokens = read(grad), .rows = read(y), .weights = read(weights)},
      {.operation = MoeOperation::combine_backward});
  const Tensor rows_grad = call.rows_grad(), weights_grad = call.weights_grad();
  call.run();
  return {rows_grad, weights_grad};
}

}  // namespace cleave::torch_ops
