#include "product/quantized_apart.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "call/values.h"
#include "cleave/names.h"
#include "module/errors.h"
#include "operands/channels_last.h"
#include "operands/quantize_operands.h"
#include "plans/plan_cache.h"
#include "product/product.h"
#include "quantize/problem.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// The type of what is quantised. bfloat16 has four bits more than the 8-bit floats, but only one more than int8. What
/// lines of 128 share is found of D in float32, by whichever kernel.
DType type_between(DType quantized, Granularity granularity) {
  return quantized == DType::i8 || granularity == Granularity::block_1x128 ? DType::f32 : DType::bf16;
}

/// D, and what a function makes beside it.
nb::tuple as_tuple(const nb::object& product) {
  return nb::isinstance<nb::tuple>(product) ? nb::cast<nb::tuple>(product) : nb::make_tuple(product);
}

/// The results with `q` as D, and its scales after them.
nb::tuple with_scales(const nb::tuple& made, const nb::object& q, const nb::object& scales) {
  nb::list results;
  results.append(q);
  for (size_t i = 1; i < made.size(); ++i) results.append(made[i]);
  results.append(scales);
  return nb::tuple(results);
}

/// What quantisation sees of (N, C, ...): pixels are rows.
Operand rows_of_pixels(const TensorView& x, const char* name) {
  const std::optional<int64_t> stride = pixel_stride(x);
  if (!stride) {
    refuse_value("{} is {}, which is not channels last; beside out_scale, pass {}", name, shape_text(x),
                 channels_last_remedy(name, x.ndim - 2, true));
  }
  Operand rows = x;
  rows.ndim = 2;
  const int64_t pixels = std::accumulate(x.shape + 2, x.shape + x.ndim, x.shape[0], std::multiplies());
  rows.shape[0] = pixels;
  rows.shape[1] = x.shape[1];
  rows.stride[0] = *stride;
  rows.stride[1] = 1;
  return rows;
}

bool groups_columns(const GemmInputs& inputs) {
  TensorReader reader{nb::none()};
  return reader.read(inputs.get<arg::A>(), "a").ndim == 3 && reader.read(inputs.get<arg::B>(), "b").ndim == 2;
}

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

void check_options(nb::handle out, nb::handle scale_d, nb::handle stream) {
  if (given(scale_d)) {
    refuse_value(
        "scale_d is given beside out_scale; pass scale_d where the scale is known, out_scale where "
        "it is to be computed");
  }
  if (PyTuple_Check(out.ptr())) {
    refuse_value("out is a tuple, but out_scale has one result to quantise; pass an array, or no out");
  }
  if (given(stream)) {
    // The product in between is its framework's memory, which may be used again, on the current
    // stream, as soon as this call returns.
    refuse_value(
        "stream is given beside out_scale, which works on the current stream only; make it the "
        "current one");
  }
}

void check_zero_rest(const ProductArguments& arguments, Granularity granularity) {
  bool zero_rest = true;
  arguments.read<arg::ZeroRest>(zero_rest);
  if (!zero_rest) {
    refuse_value("zero_rest is False beside out_scale=\"{}\", which quantises all rows of D; omit it",
                 to_string(granularity));
  }
}

}  // namespace

bool is_quantized_apart(const GemmInputs& inputs, const GemmOptions& options) {
  if (!options.out_scale) return false;
  const bool of_experts = options.grouped && options.weights.has_value();
  return *options.out_scale != Granularity::block_1x128 || of_experts || (options.grouped && groups_columns(inputs));
}

nb::object multiply_and_quantize(GemmInputs inputs, ProductArguments arguments, const CallArguments& call,
                                 const GemmOptions& form, Granularity granularity) {
  check_options(inputs.get<arg::Out>(), inputs.get<arg::ScaleD>(), call.get<arg::Stream>());
  check_zero_rest(arguments, granularity);
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
  arguments.set<arg::OutDtype>(dtype_name(type_between(type, granularity)));
  const nb::tuple made = as_tuple(multiply(inputs, arguments, call, form));
  const nb::object quantized =
      nb::module_::import_("cleave._core")
          .attr("quantize")(made[0], dtype_name(type), nb::str(std::string(to_string(granularity)).c_str()),
                            "out"_a = out, "scale_out"_a = scale_out, "scale_major"_a = scale_major,
                            "use_ue8m0"_a = ue8m0);
  return with_scales(made, quantized[0], quantized[1]);
}

QuantizedPixels::QuantizedPixels(const Arguments& arguments) : out_(arguments.get<arg::Out>()) {
  arguments.read<arg::OutScale>(granularity_);
  arguments.read<arg::UseUe8m0>(ue8m0_);
  if (!wanted()) {
    if (ue8m0_) refuse_value("use_ue8m0 is True, but no scales are found; pass out_scale, or leave it out");
    return;
  }
  check_options(out_, arguments.get<arg::ScaleD>(), arguments.get<arg::Stream>());
  if (*granularity_ == Granularity::block_128x128) {
    refuse_value(
        "out_scale is \"block_128x128\", but a convolution's output is no matrix; pass \"block_1x128\" (128 channels "
        "of "
        "a pixel), \"row\" (a pixel) or \"tensor\"");
  }
  type_ = quantized_type(out_, arguments.get<arg::OutDtype>());
}

DType QuantizedPixels::unquantized() const {
  return type_between(type_, *granularity_);
}

nb::object QuantizedPixels::quantize(const nb::object& product, nb::handle like) const {
  const nb::tuple made = as_tuple(product);
  TensorReader reader{nb::none()};
  const TensorView y = reader.read(made[0], "the product");
  QuantizeTensors tensors{.x = rows_of_pixels(y, "the product")};
  nb::object q = nb::borrow(out_);
  if (given(out_)) {
    const TensorView out = reader.read_output(out_, "out");
    if (!std::equal(y.shape, y.shape + y.ndim, out.shape, out.shape + out.ndim))
      refuse_value("out is {}; it must be {}", shape_text(out), shape_text(y));
    tensors.q = rows_of_pixels(out, "out");
  } else {
    q = reader.make(&ArrayType::empty_channels_last, like, Shape(y.shape, size_t(y.ndim)), type_, y.device, "`out`");
    tensors.q = rows_of_pixels(reader.read(q, "out"), "out");
  }
  Extents shape{};
  std::copy_n(y.shape, y.ndim, shape.begin());
  shape[1] = *granularity_ == Granularity::block_1x128 ? ceil_div<int64_t>(shape[1], kScaleBlock) : 1;
  if (*granularity_ == Granularity::tensor) std::fill_n(shape.begin(), y.ndim, 1);
  const nb::object scales = reader.make(&ArrayType::empty_channels_last, like, Shape(shape).first(size_t(y.ndim)),
                                        DType::f32, y.device, "`out`");
  QuantizeCall call = make_call(tensors, {.granularity = *granularity_, .ue8m0 = ue8m0_});
  call.arguments.scale = static_cast<float*>(reader.read(scales, "the scales").data);
  const auto plan = RecentPlans<QuantizeProblem>::shared().get(call.problem);
  {
    const nb::gil_scoped_release unlocked;
    plan->run(call.arguments, reader.stream());
  }
  reader.mark_written();
  return with_scales(made, given(out_) ? q : finished(like, q), finished(like, scales));
}

}  // namespace cleave::python
