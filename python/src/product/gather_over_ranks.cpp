// A whole call of cleave.distributed: rows that are gathered through memory that all ranks see, and their product.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>

#include "module/bindings.h"
#include "peers/places.h"
#include "product/product.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// What calls with the same sizes, dtypes and options have in common.
struct GatherForm {
  int64_t rows, share;  // of all ranks, and of each but the last
  DType d;
  Activation activation;
  std::string call;  // how ranks name it to each other
};

/// What of this rank's goes to its place, and where all ranks' goes.
struct Gathered {
  nb::object array;
  const void* own = nullptr;
  size_t own_bytes = 0, share_bytes = 0, offset = 0;
  Operand all;  // but for what the last ranks lack
};

/// `own`: rows that are packed; `offset` goes on behind it.
Gathered gathered_of(nb::handle own, const char* name, const GatherForm& form, const Places& places,
                     TensorReader& reader, size_t& offset) {
  const Operand x = reader.read(own, name);
  const int64_t shape[] = {form.share * places.group().size(), x.columns()};
  Gathered made{.array = reader.make(&ArrayType::empty, own, shape, x.dtype, x.device, "`out`"), .all = {}};
  const size_t row_bytes = size_t(x.columns()) * size_of(x.dtype);
  made.own = x.data;
  made.own_bytes = size_t(x.rows()) * row_bytes;
  made.share_bytes = size_t(form.share) * row_bytes;
  made.offset = offset;
  offset += (made.share_bytes + 255) / 256 * 256;
  made.all = reader.read(made.array, name);
  made.all.shape[0] = form.rows;
  return made;
}

nb::tuple gather_over_ranks(Places& places, const GatherForm& form, nb::handle a, nb::handle b, nb::handle scale_a,
                            nb::handle scale_b, nb::handle bias, nb::handle precision, bool use_fast_accum) {
  TensorReader reader{nb::none()};
  size_t bytes = 0;
  std::vector<Gathered> parts;
  parts.push_back(gathered_of(a, "a", form, places, reader, bytes));
  if (given(scale_a)) parts.push_back(gathered_of(scale_a, "scale_a", form, places, reader, bytes));
  GemmTensors tensors{.a = parts[0].all, .b = reader.read(b, "b"), .c = {}, .bias = {}, .epilogue = {}};
  if (given(scale_a)) tensors.scale_a = parts[1].all;
  if (given(scale_b)) tensors.scale_b = reader.read(scale_b, "scale_b");
  if (given(bias)) tensors.bias = reader.read(bias, "bias");
  GemmOptions options{.d_type = form.d, .activation = form.activation, .plan = {.fast_accumulation = use_fast_accum}};
  if (given(precision)) options.plan.precision = parse_name<Precision>(precision, "precision");
  GemmCall product = make_call(tensors, options);
  cleave::set_scalars(1.0f, std::nullopt, product);
  const auto plan = RecentPlans<GemmProblem>::shared().get(product.problem);
  const int64_t shape[] = {form.rows, tensors.b->columns()};
  const nb::object d = reader.make(&ArrayType::empty, a, shape, form.d, product.problem.device, "`out`");
  product.arguments.d = reader.read(d, "out").data;
  {
    const nb::gil_scoped_release unlocked;
    const int place = places.next(reader.stream());  // nothing can be refused any more
    for (const Gathered& part : parts) places.put(part.own, part.own_bytes, place, part.offset, reader.stream());
    for (const Gathered& part : parts) {
      const char* const own = places.at(places.group().rank(), place) + part.offset;
      places.group().gather(own, part.share_bytes, part.all.data, form.call, reader.stream());
    }
    plan->run(product.arguments, nullptr, 0, reader.stream());
  }
  return nb::make_tuple(d, parts[0].array);
}

}  // namespace

void bind_gather_over_ranks(nb::module_& m) {
  nb::class_<GatherForm>(m, "GatherForm", "What gathered products with the same sizes, dtypes and options share.")
      .def(
          "__init__",
          [](GatherForm* form, int64_t rows, int64_t share, nb::handle out_dtype, std::string_view activation,
             std::string call) {
            new (form) GatherForm{rows, share, parse_dtype(out_dtype, "out_dtype"), from_string<Activation>(activation),
                                  std::move(call)};
          },
          "rows"_a, "share"_a, "out_dtype"_a, "activation"_a, "call"_a);
  m.def("gather_over_ranks", &gather_over_ranks, "places"_a, "form"_a, "a"_a, "b"_a, "scale_a"_a.none(),
        "scale_b"_a.none(), "bias"_a.none(), "precision"_a.none(), "use_fast_accum"_a,
        "The product of all ranks' a, whose rows are packed, and a new [ranks * share, K] of them.");
}

}  // namespace cleave::python
