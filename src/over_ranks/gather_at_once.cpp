#include "over_ranks/gather_at_once.h"

#include "over_ranks/rows.h"

namespace cleave {

GatherAtOnce make_at_once(const GatherForm& form, const GatherTensors& tensors, const Places& places,
                          const PlanOptions& options) {
  GatherAtOnce made;
  const std::vector<GatheredTensor> gathered = gathered_tensors(form, tensors, places);
  GemmTensors t{
      .a = gathered_rows(form, gathered[0], places), .b = tensors.b, .c = {}, .bias = tensors.bias, .epilogue = {}};
  if (gathered.size() > 1) t.scale_a = gathered_rows(form, gathered[1], places);
  t.scale_b = tensors.scale_b;
  for (const GatheredTensor& x : gathered) {
    made.parts[made.count++] = {.own = x.own.data,
                                .bytes = size_t(x.own.rows()) * x.row_bytes(),
                                .share = size_t(form.share) * x.row_bytes(),
                                .place = x.at};
  }
  made.product = product_of(t, {.d_type = form.d, .activation = form.activation, .plan = options});
  return made;
}

void point(GatherAtOnce& made, const GatherAddresses& to) {
  made.parts[0].own = to.a, made.parts[1].own = to.scale_a;
  made.product.arguments.b = to.b, made.product.arguments.bias = to.bias;
  made.product.arguments.scale_b = static_cast<const float*>(to.scale_b);
}

void run(GatherAtOnce made, const GatherForm& form, Places& places, void* d, void* all, void* stream) {
  const size_t offset = size_t(places.next(stream)) * places.bytes();  // nothing can be refused any more
  for (Group::Rows& part : made.parts) part.place += offset;
  made.parts[0].out = all;
  move_on(made.product.arguments.a, offset);
  move_on(made.product.arguments.scale_a, offset);
  made.product.arguments.d = d;
  places.group().push({made.parts.data(), made.count}, form.call, stream);
  made.product.launch(stream);
}

}  // namespace cleave
