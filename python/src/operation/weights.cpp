// What cleave._weights needs to pack and unpack 4-bit weights.
#include "cleave/weights.h"

#include "array/tensor.h"
#include "base/enumerators.h"
#include "base/refuse.h"
#include "cleave/memory/weight_layout.h"
#include "cleave/names.h"
#include "module/bindings.h"
#include "module/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

constexpr DType kBytes[] = {DType::i8};  // of whatever sign

/// A contiguous array of bytes in the host's memory.
uint8_t* bytes_of(const TensorView& view, const char* name) {
  check_form(view, name, {2, 3, kBytes}, kCpu, "the host");
  int64_t stride = 1;
  for (int i = view.ndim - 1; i >= 0; --i) {
    if (view.shape[i] != 1 && view.stride[i] != stride) refuse_value("{} is not contiguous", name);
    stride *= view.shape[i];
  }
  return static_cast<uint8_t*>(view.data);
}

/// An array may have been resized since its weight was made.
void check_size(const TensorView& packed, const TensorView& codes) {
  const int64_t bytes = packed.batch() * packed.rows() * packed.columns();
  const int64_t needed = packed_weight_bytes(codes.rows(), codes.columns());
  if (codes.ndim == 2 && bytes == needed) return;
  refuse_value("packed is {} and codes are {}, which take {} bytes; pack the weight anew", shape_text(packed),
               shape_text(codes), needed);
}

void pack(nb::handle codes, int padding, nb::handle packed) {
  TensorReader reader{nb::none()};
  const TensorView from = reader.read(codes, "codes"), to = reader.read_output(packed, "packed");
  const uint8_t* const source = bytes_of(from, "codes");
  uint8_t* const target = bytes_of(to, "packed");
  check_size(to, from);
  {
    const nb::gil_scoped_release unlocked;
    pack_weights(source, from.rows(), from.columns(), uint8_t(padding), target);
  }
  reader.mark_written();
}

void unpack(nb::handle packed, nb::handle codes) {
  TensorReader reader{nb::none()};
  const TensorView from = reader.read(packed, "packed"), to = reader.read_output(codes, "codes");
  const uint8_t* const source = bytes_of(from, "packed");
  uint8_t* const target = bytes_of(to, "codes");
  check_size(from, to);
  {
    const nb::gil_scoped_release unlocked;
    unpack_weights(source, to.rows(), to.columns(), target);
  }
  reader.mark_written();
}

/// For each code of a packed block, lower halves of bytes first, 64 * its row + its column.
nb::list block_order() {
  nb::list order;
  for (uint32_t byte = 0; byte < kWeightBlockBytes; ++byte) {
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t in_thread = byte % kWeightThreadBytes;
      const WeightCoord coord = weight_coord({byte / kWeightThreadBytes, in_thread / 4, in_thread % 4 * 8 + half * 4});
      order.append(coord.row * kWeightBlock + coord.column);
    }
  }
  return order;
}

/// By the names of the formats.
nb::dict usual_groups() {
  nb::dict groups;
  for (const WeightFormat format : values_of<WeightFormat>) {
    if (format == WeightFormat::none) continue;
    const std::string_view name = to_string(format);
    groups[nb::str(name.data(), name.size())] = usual_group(format);
  }
  return groups;
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.attr("weight_block") = kWeightBlock;
  m.attr("weight_block_bytes") = kWeightBlockBytes;
  m.attr("weight_gate_rows") = kGateRows;
  m.attr("weight_groups") = usual_groups();
  m.def("pack_weight_codes", &pack, "codes"_a, "padding"_a, "packed"_a,
        "Packs codes [N, K] into [ceil(N / 64), ceil(K / 64), 2048]; both int8, contiguous, in the host's memory.");
  m.def("unpack_weight_codes", &unpack, "packed"_a, "codes"_a, "The reverse.");
  m.def("weight_block_order", &block_order,
        "For each code of a packed block of weights, lower halves of bytes first, 64 * its row + its column.",
        nb::sig("def weight_block_order() -> list[int]"));
}

}  // namespace cleave::python
