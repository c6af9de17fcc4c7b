#include "product/quantized_apart.h"

#include "call/values.h"
#include "cleave/names.h"
#include "module/errors.h"
#include "product/product.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

void check_that_d_is_a_matrix(const GemmInputs& inputs, const GemmOptions& form, Granularity granularity) {
  TensorReader reader{nb::none()};
  const TensorView a = reader.read(inputs.get<arg::A>(), "a"), b = reader.read(inputs.get<arg::B>(), "b");
  const bool grouped = form.grouped;
  const int of_blocks = form.weights.has_value() ? 1 : 0;  // a packed weight's dimension
  const int ranks = a.ndim + b.ndim - of_blocks;
  // Groups of rows or columns have one operand with a matrix for each; other forms have a D for each.
  if (grouped ? ranks == 5 : ranks <= 4 && a.ndim <= 2) return;
  refuse_value("a is {} and b is {}, but out_scale=\"{}\" is for products whose D is a matrix{}", shape_text(a),
               shape_text(b), to_string(granularity),
               grouped ? ": of groups of rows, or of columns" : "; pass no batch");
}

/// The type to quantise to: that of `out`, or out_dtype.
DType quantized_type(nb::handle out, nb::handle out_dtype) {
  if (!given(out)) return parse_dtype(out_dtype, "out_dtype", kQuantizedTypes);
  const TensorView view = TensorReader(nb::none()).read(out, "out");
  check_type(view, "out", kQuantizedTypes);
  if (out_dtype.is_none() || parse_dtype(out_dtype, "out_dtype") == view.dtype) return view.dtype;
  refuse_type("out is {}, but out_dtype is not; omit one of them", to_string(view.dtype));
}

void check_options(const GemmInputs& inputs, const ProductArguments& arguments, const CallArguments& call,
                   Granularity granularity) {
  if (given(inputs.get<arg::ScaleD>())) {
    refuse_value(
        "scale_d is given beside out_scale; pass scale_d where the scale is known, out_scale where "
        "it is to be computed");
  }
  bool zero_rest = true;
  arguments.read<arg::ZeroRest>(zero_rest);
  if (!zero_rest) {
    refuse_value("zero_rest is False beside out_scale=\"{}\", which quantises all rows of D; omit it",
                 to_string(granularity));
  }
  if (PyTuple_Check(inputs.get<arg::Out>().ptr())) {
    refuse_value("out is a tuple, but out_scale has one result to quantise; pass an array, or no out");
  }
  if (given(call.get<arg::Stream>())) {
    // The product in between is its framework's memory, which may be used again, on the current
    // stream, as soon as this call returns.
    refuse_value(
        "stream is given beside out_scale, which works on the current stream only; make it the "
        "current one");
  }
}

}  // namespace

nb::object multiply_and_quantize(GemmInputs inputs, ProductArguments arguments, const CallArguments& call,
                                 const GemmOptions& form, Granularity granularity) {
  check_options(inputs, arguments, call, granularity);
  check_that_d_is_a_matrix(inputs, form, granularity);
  const nb::handle out = inputs.get<arg::Out>(), scale_out = inputs.get<arg::ScaleOut>();
  const DType type = quantized_type(out, arguments.get<arg::OutDtype>());
  bool ue8m0 = false;
  arguments.read<arg::UseUe8m0>(ue8m0);
  arguments.set<arg::UseUe8m0>({});
  inputs.set<arg::Out>({});
  inputs.set<arg::ScaleOut>({});
  const nb::handle scale_major = arguments.get<arg::ScaleMajor>();
  arguments.set<arg::OutScale>({});
  arguments.set<arg::ScaleMajor>({});
  // bfloat16 has four bits more than the 8-bit floats, but only one more than int8.
  arguments.set<arg::OutDtype>(dtype_name(type == DType::i8 ? DType::f32 : DType::bf16));
  const nb::object product = multiply(inputs, arguments, call, form);
  // D, and what a function makes beside it.
  const nb::tuple made = nb::isinstance<nb::tuple>(product) ? nb::cast<nb::tuple>(product) : nb::make_tuple(product);
  const nb::object quantized =
      nb::module_::import_("cleave._core")
          .attr("quantize")(made[0], dtype_name(type), nb::str(std::string(to_string(granularity)).c_str()),
                            "out"_a = out, "scale_out"_a = scale_out, "scale_major"_a = scale_major,
                            "use_ue8m0"_a = ue8m0);
  nb::list results;
  results.append(quantized[0]);
  for (size_t i = 1; i < made.size(); ++i) results.append(made[i]);
  results.append(quantized[1]);
  return nb::tuple(results);
}

}  // namespace cleave::python
