// What `cleave.op` asks about arrays.
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "array/tensor.h"
#include "call/values.h"
#include "cleave/core/routing.h"
#include "cleave/names.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "plan/model_device.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

nb::tuple inspect(nb::handle array, const char* name, nb::handle stream) {
  TensorReader reader(stream);
  const TensorView view = reader.read(array, name);
  check_type(view, name, kAnyType);
  nb::list shape, strides;
  for (int i = 0; i < view.ndim && i < TensorView::kMaxRank; ++i) {
    shape.append(view.shape[i]);
    strides.append(view.stride[i]);
  }
  return nb::make_tuple(nb::borrow(dtype_name(view.dtype)), nb::tuple(shape), nb::tuple(strides), view.device,
                        reinterpret_cast<uintptr_t>(reader.stream()));
}

}  // namespace

void bind_inspect(nb::module_& m) {
  nb::dict choices;
  choices["activation"] = nb::tuple(nb::cast(names_of<Activation>()));
  choices["arch"] = nb::tuple(nb::cast(model_architectures()));
  choices["bias"] = nb::tuple(nb::cast(names_of<Bias>()));
  choices["division"] = nb::tuple(nb::cast(names_of<Division>()));
  choices["kernel"] = nb::tuple(nb::cast(names_of<KernelFamily>()));
  choices["precision"] = nb::tuple(nb::cast(names_of<Precision>()));
  choices["scoring_func"] = nb::tuple(nb::cast(names_of<ScoringFunc>()));
  choices["split_k_mode"] = nb::tuple(nb::cast(names_of<SplitKMode>()));
  m.attr("choices") = choices;  // what these parameters may be
  m.def("inspect", &inspect, "array"_a, "name"_a, "stream"_a = nb::none(),
        "dtype, shape, strides, device and stream of an array, as `gemm` reads it.",
        nb::sig("def inspect(array: object, name: str, stream: object = None) -> "
                "tuple[str, tuple[int, ...], tuple[int, ...], int, int]"));
  m.def(
      "dtype_name",
      [](nb::handle dtype, const char* name) { return nb::borrow<nb::str>(dtype_name(parse_dtype(dtype, name))); },
      "dtype"_a, "name"_a = "element",
      "The name of an element type, for that or another name, or a torch or NumPy dtype.");
}

}  // namespace cleave::python
