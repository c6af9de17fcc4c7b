#include "over_ranks/sum_form.h"

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "over_ranks/product.h"

namespace cleave {
namespace {

size_t padded_bytes(int64_t rows, int64_t columns, DType dtype) {
  return round_up(size_t(rows * columns) * size_of(dtype), size_t(256));
}

}  // namespace

size_t gathered_at(const SumForm& form, int ranks) {
  return padded_bytes(form.pushed ? form.rows : form.most * ranks, form.columns, form.partial);
}

size_t place_bytes(const SumForm& form, int ranks) {
  return gathered_at(form, ranks) + (form.gathered ? padded_bytes(form.most, form.made, form.d) : 0);
}

void check_place(const SumForm& form, const Places& places) {
  const size_t needed = place_bytes(form, places.group().size());
  if (needed > places.bytes())
    refuse_value("the sum takes {} bytes of each rank's memory, and the group's places have {}", needed,
                 places.bytes());
}

PlanOptions split_as(const SumForm& form, PlanOptions options) {
  options.split_k_mode = form.split, options.split_k_slices = form.slices;
  return form.unsplit && form.split == SplitKMode::automatic ? unsplit(options) : options;
}

}  // namespace cleave
