#include "over_ranks/sum_at_once.h"

#include "cleave/across.h"
#include "operands/fold_operands.h"
#include "over_ranks/product.h"
#include "peers/fold_problem.h"

namespace cleave {
namespace {

/// Into the first of the places.
Product partial_of(const SumForm& form, const SumTensors& tensors, const Places& places, const PlanOptions& options) {
  void* const own = places.at(places.group().rank(), 0);
  GemmTensors t{.a = tensors.a, .b = tensors.b, .c = {}, .bias = {}, .epilogue = {}};
  t.out = packed_matrix(own, form.partial, places.group().device(), form.rows, form.columns);
  if (!form.exact) t.scale_a = tensors.scale_a, t.scale_b = tensors.scale_b;
  return product_of(t, {.plan = options});
}

/// What is added up, in the first of the places; and where all ranks get the rows of each, to there.
FoldCall sum_of(const SumForm& form, const SumTensors& tensors, const SumResults& results, const Places& places) {
  const Group& group = places.group();
  FoldTensors t{.bias = tensors.bias, .c = tensors.c, .scale_d = tensors.scale_d, .scale_out = results.scale_out};
  t.d = results.d;
  if (form.gathered) {
    void* const own = places.at(group.rank(), 0) + gathered_at(form, group.size());
    t.d = packed_matrix(own, form.d, group.device(), form.own, form.made);
    if (t.c) t.c = rows_of(*t.c, form.first, form.own);
  }
  if (form.exact) t.scale_a = rows_of(tensors.scale_a, form.rows, form.first, form.own), t.scale_b = tensors.scale_b;
  const size_t offset = size_t(form.first * form.columns) * size_of(form.partial);
  for (int rank = 0; rank < group.size(); ++rank)
    t.partials.push_back(packed_matrix(places.at(rank, 0) + offset, form.partial, t.d.device, form.own, form.columns));
  FoldCall sum = make_call(t, form.activation, form.most, form.use_ue8m0);
  sum.arguments.group = &group;
  sum.arguments.call = form.call;
  sum.problem.pushed = form.pushed && can_push(sum.problem);
  sum.problem.in_strips = form.in_strips && sum.problem.pushed && can_strip(sum.problem);
  return sum;
}

/// nullptr where no product makes the sum itself.
std::shared_ptr<const GemmPlan> plan_of_whole(const SumForm& form, const SumTensors& tensors, const Places& places,
                                              const Operand& d, const PlanOptions& options, GemmArguments& arguments) {
  GemmTensors t{.a = tensors.a, .b = tensors.b, .c = tensors.c, .bias = tensors.bias, .epilogue = {}};
  t.out = d;
  GemmCall whole = make_call(t, {.activation = form.activation, .plan = options});
  set_scalars(1.0f, std::nullopt, whole);
  arguments = whole.arguments;
  arguments.group = &places.group();
  arguments.call = form.call;
  return plan_across({whole.problem, places.group().size(), form.partial});
}

}  // namespace

SumAtOnce make_at_once(const SumForm& form, const SumTensors& tensors, const SumResults& results, const Places& places,
                       const PlanOptions& options) {
  check_place(form, places);
  SumAtOnce made{.d = results.d.data};
  if (form.in_strips) {
    made.product = plan_of_whole(form, tensors, places, results.d, options, made.product_arguments);
    if (made.product != nullptr) return made;
  }
  if (tensors.b) {
    const Product product = partial_of(form, tensors, places, options);
    made.product = product.plan;
    made.product_arguments = product.arguments;
  } else {
    made.product_arguments.a = tensors.a.data;
  }
  const FoldCall fold = sum_of(form, tensors, results, places);
  made.fold = plan(fold.problem);
  made.fold_arguments = fold.arguments;
  if (form.gathered && tensors.c)
    made.first_of_c = size_t(form.first * tensors.c->stride[0]) * size_of(tensors.c->dtype);
  return made;
}

void point(SumAtOnce& made, const SumForm& form, const SumAddresses& to) {
  const auto floats = [](const void* data) { return static_cast<const float*>(data); };
  made.d = to.d;
  GemmArguments& product = made.product_arguments;
  product.a = to.a, product.b = to.b;
  product.scale_a = floats(to.scale_a), product.scale_b = floats(to.scale_b);
  if (made.fold == nullptr) {
    product.bias = to.bias, product.c = to.c, product.d = to.d;
    return;
  }
  FoldArguments& fold = made.fold_arguments;
  fold.bias = to.bias, fold.c = to.c, fold.scale_d = floats(to.scale_d);
  move_on(fold.c, made.first_of_c);
  if (!form.gathered) fold.d = to.d;
}

void run(SumAtOnce made, const SumForm& form, Places& places, void* stream) {
  const Group& group = places.group();
  const int place = places.next(stream);  // operands have been checked, and all ranks take theirs
  GemmArguments& product = made.product_arguments;
  FoldArguments& fold = made.fold_arguments;
  if (made.fold == nullptr) return made.product->run(product, nullptr, 0, stream);
  const size_t offset = size_t(place) * places.bytes();
  move_on(product.d, offset);
  for (int rank = 0; rank < group.size(); ++rank) move_on(fold.partials[rank], offset);
  if (made.product != nullptr) {
    made.product->run(product, nullptr, 0, stream);
  } else {
    const size_t bytes = size_t(form.rows * form.columns) * size_of(form.partial);
    places.put(place, 0, product.a, bytes, stream);
  }
  if (!form.gathered) return made.fold->run(fold, stream);
  move_on(fold.d, offset);
  made.fold->run(fold, stream);
  const size_t bytes = size_t(form.most * form.made) * size_of(form.d);
  const void* const own = places.at(group.rank(), place) + gathered_at(form, group.size());
  if (bytes == 0) return group.barrier(form.call, stream);
  group.gather(own, bytes, made.d, form.call, stream);
}

}  // namespace cleave
