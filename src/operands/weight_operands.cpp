#include "operands/weight_operands.h"

#include <fmt/format.h>

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "cleave/memory/weight_layout.h"
#include "cleave/names.h"
#include "launch/product.h"
#include "operands/gemm_operands.h"

namespace cleave {
namespace {

/// What a packed weight multiplies.
constexpr DType kActivations[] = {DType::f16, DType::bf16, DType::e4m3, DType::i8};

/// Bytes may be signed or not.
void check_bytes(const Operand& x, const char* name, int min_rank, const Operand& a) {
  check_rank(x, name, min_rank, min_rank + 1);
  const bool bytes = x.other_type.empty() ? x.dtype == DType::i8 : x.other_type == "uint8";
  if (!bytes) refuse_type("{} is {}; it must be uint8", name, x.type_name());
  check_place(x, name, a.device, "a");
}

/// For each group of K and each row, rows side by side; of one matrix or of each of a batch.
void check_by_group(const Operand& x, const char* name, const WeightForm& form, const GemmProblem& p) {
  const int64_t groups = ceil_div(p.k, form.group_size);
  const int64_t entries = entries_of_b(p);
  const int64_t n = columns_of_b(p);
  if (x.rows() != groups || x.columns() != n || (x.ndim == 3 && x.shape[0] != entries && x.shape[0] != 1) ||
      (x.ndim == 2 && entries != 1)) {
    refuse_value("{} is {}; it must be ({}{}, {}): one for each group of {} of K and each row of the weight", name,
                 shape_text(x), entries == 1 ? std::string() : fmt::format("{}, ", entries), groups, n,
                 form.group_size);
  }
  if (x.columns() > 1 && x.stride[x.ndim - 1] != 1) {
    refuse_value("{} has a stride of {} from row to row of the weight; it must be contiguous, pass a copy", name,
                 x.stride[x.ndim - 1]);
  }
}

/// One for each matrix, of [1] or [E], or for each row as well, of [N] or [E, N].
ScaleLayout check_global_scale(const Operand& x, const GemmProblem& p) {
  constexpr Form kForm{1, 2, kFloat32};
  check_form(x, "global_scale", kForm, p.device, "a");
  const int64_t entries = entries_of_scale_b(p, Scaling::vector), n = columns_of_b(p);
  const bool experts = entries > 1;
  const bool serves_all = x.shape[0] == entries || x.shape[0] == 1;
  const bool single = x.ndim == 1 && serves_all;
  const bool by_row = x.ndim == 2 ? x.shape[1] == n && serves_all : !experts && x.shape[0] == n;
  if (!single && !by_row) {
    refuse_value("global_scale is {}; it must be ({},), one value for {}, or {}, one for each row of the weight",
                 shape_text(x), entries, experts ? "each expert" : "the weight",
                 experts ? fmt::format("({}, {})", entries, n) : fmt::format("({},)", n));
  }
  const auto stride = [&](int i) { return x.shape[i] > 1 ? x.stride[i] : 0; };
  return {.kind = Scaling::vector,
          .stride_row = single ? 0 : stride(x.ndim - 1),
          .stride_batch = single || x.ndim == 2 ? stride(0) : 0};
}

int64_t stride_of_groups(const Operand& x) {
  return x.rows() > 1 ? x.stride[x.ndim - 2] : x.columns();
}
int64_t stride_of_entries(const Operand& x) {
  return x.ndim == 3 && x.shape[0] > 1 ? x.stride[0] : 0;
}

}  // namespace

Operand unpacked(const Operand& packed, const WeightForm& form, const Operand& a) {
  check_rank(a, "a", 2, 3);
  check_type(a, "a", kActivations);
  check_bytes(packed, "packed", 3, a);
  if (form.format == WeightFormat::none) refuse_value("format is none, but packed is; pass the format of its codes");
  const int64_t k = a.columns(), batched = packed.ndim - 3;
  if (form.out_features <= 0)
    refuse_value("out_features is {}; a packed weight has one row at least", form.out_features);
  const int64_t down = weight_blocks(form.out_features), along = weight_blocks(k);
  const int64_t* const shape = packed.shape + batched;
  if (shape[0] != down || shape[1] != along || shape[2] != kWeightBlockBytes) {
    refuse_value("packed is {}, but a weight of {} rows and a's {} columns is ({}{}, {}, {}); pack it for this a",
                 shape_text(packed), form.out_features, k, batched ? fmt::format("{}, ", packed.shape[0]) : "", down,
                 along, kWeightBlockBytes);
  }
  const int64_t* const stride = packed.stride + batched;
  const int64_t bytes = down * along * kWeightBlockBytes;
  const bool follow = !batched || packed.shape[0] <= 1 || packed.stride[0] == bytes || packed.stride[0] == 0;
  const bool contiguous = follow && (down == 1 || stride[0] == along * kWeightBlockBytes) &&
                          (along == 1 || stride[1] == kWeightBlockBytes) && stride[2] == 1;
  if (!contiguous) refuse_value("packed is not contiguous; pass a copy");
  Operand b{.data = packed.data, .dtype = a.dtype, .device = packed.device, .ndim = int(2 + batched)};
  if (batched) b.shape[0] = packed.shape[0], b.stride[0] = 2 * packed.stride[0];
  b.shape[batched] = k, b.stride[batched] = 1;
  b.shape[batched + 1] = form.out_features, b.stride[batched + 1] = weight_extent(k);
  return b;
}

void place_weights(const GemmTensors& tensors, const WeightForm& form, GemmProblem& p, GemmArguments& arguments) {
  if (!tensors.scales) refuse_value("scales is missing, but b is a packed weight; pass those of the weight");
  const Operand& scales = *tensors.scales;
  if (form.group_size <= 0) refuse_value("group_size is {}; it must be positive", form.group_size);
  p.b.stride_row = 1;  // whatever has one element
  p.b.stride_col = weight_extent(p.k);
  const Operand a{.device = p.device};
  if (form.format == WeightFormat::mxfp4) {
    check_bytes(scales, "scales", 2, a);
  } else if (form.format == WeightFormat::nvfp4) {
    constexpr DType kE4m3[] = {DType::e4m3};
    check_form(scales, "scales", {2, 3, kE4m3}, p.device, "a");
  } else {
    check_rank(scales, "scales", 2, 3);
    const DType wanted = weight_scale_type(form.format, p.a.dtype);
    if (!scales.other_type.empty() || scales.dtype != wanted) {
      refuse_type("scales is {}, but a is {}, beside which it must be {}; convert one of them", scales.type_name(),
                  to_string(p.a.dtype), to_string(wanted));
    }
    check_place(scales, "scales", p.device, "a");
  }
  check_by_group(scales, "scales", form, p);
  p.weights_b = {.format = form.format,
                 .has_zero = tensors.zeros.has_value(),
                 .group = form.group_size,
                 .scale_stride_k = stride_of_groups(scales),
                 .scale_stride_batch = stride_of_entries(scales)};
  arguments.weight_scale = scales.data;
  if (tensors.global_scale) {
    p.scale_b = check_global_scale(*tensors.global_scale, p);
    arguments.scale_b = static_cast<const float*>(tensors.global_scale->data);
  }
  if (!tensors.zeros) return;
  const Operand& zeros = *tensors.zeros;
  check_bytes(zeros, "zeros", scales.ndim, a);
  check_by_group(zeros, "zeros", form, p);
  const bool alike =
      stride_of_groups(zeros) == stride_of_groups(scales) && stride_of_entries(zeros) == stride_of_entries(scales);
  if (!alike) refuse_value("zeros has other strides than scales; pass contiguous copies of both");
  arguments.weight_zero = static_cast<const uint8_t*>(zeros.data);
}

}  // namespace cleave
