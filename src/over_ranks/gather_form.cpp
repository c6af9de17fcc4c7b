#include "over_ranks/gather_form.h"

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "cleave/epilogue.h"

namespace cleave {

size_t place_bytes(const GatherForm& form, int ranks, size_t row_bytes) {
  return round_up(size_t(form.share * ranks) * row_bytes, size_t(256));
}

std::vector<GatheredTensor> gathered_tensors(const GatherForm& form, const GatherTensors& tensors,
                                             const Places& places) {
  std::vector<GatheredTensor> found;
  size_t end = 0;
  const auto add = [&](const Operand& own) {
    found.push_back({own, end});
    end += place_bytes(form, places.group().size(), found.back().row_bytes());
  };
  add(tensors.a);
  if (tensors.scale_a) add(*tensors.scale_a);
  if (end > places.bytes())
    refuse_value("the gathered rows take {} bytes of each rank's memory, and the group's places have {}", end,
                 places.bytes());
  return found;
}

Operand gathered_rows(const GatherForm& form, const GatheredTensor& tensor, const Places& places) {
  void* const at = places.at(places.group().rank(), 0) + tensor.at;
  return packed_matrix(at, tensor.own.dtype, places.group().device(), form.rows, tensor.own.columns());
}

int64_t columns_of_d(const GatherForm& form, const Operand& b) {
  return epilogue_of(form.activation).gates == Gates::none ? b.columns() : b.columns() / 2;
}

}  // namespace cleave
