// A whole call of cleave.distributed: rows that are gathered through memory that all ranks see, and their product.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <optional>

#include "module/bindings.h"
#include "over_ranks/known_calls.h"
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

/// What the product reads.
constexpr const char* kNames[] = {"a", "b", "scale_a", "scale_b", "bias"};
constexpr size_t kTensors = std::size(kNames);
using Given = std::array<nb::handle, kTensors>;
using Views = ViewsOf<kTensors>;

/// All ranks' rows of what lies packed in `own`; `offset`, in a place of the staging, goes on behind them.
Group::Rows rows_of(const Operand& own, const GatherForm& form, int size, size_t& offset) {
  const size_t row_bytes = size_t(own.columns()) * size_of(own.dtype);
  const Group::Rows rows{.own = own.data,
                         .bytes = size_t(own.rows()) * row_bytes,
                         .share = size_t(form.share) * row_bytes,
                         .place = offset};
  offset += (rows.share * size_t(size) + 255) / 256 * 256;
  return rows;
}

/// The product of gathered tensors, which lie in `a` and `scale_a`.
GemmCall product_of(const GatherForm& form, const Views& views, const Operand& a, const std::optional<Operand>& scale_a,
                    PlanOptions options) {
  GemmTensors tensors{.a = a, .b = views[1], .c = {}, .bias = views[4], .epilogue = {}};
  tensors.scale_a = scale_a, tensors.scale_b = views[3];
  GemmCall product = make_call(tensors, {.d_type = form.d, .activation = form.activation, .plan = options});
  cleave::set_scalars(1.0f, std::nullopt, product);
  return product;
}

/// A call: launches with all that they are given, in the first of the places.
struct MadeGather {
  std::shared_ptr<const GemmPlan> product;
  GemmArguments arguments;
  std::array<Group::Rows, 2> parts;
  size_t count = 1;     // of them
  int64_t columns = 0;  // of D
};

MadeGather make_gather(const GatherForm& form, const Views& views, const Places& places, PlanOptions options) {
  MadeGather made;
  size_t offset = 0;
  const int size = places.group().size();
  const auto placed = [&](const TensorView& own, Group::Rows& rows) {
    rows = rows_of(own, form, size, offset);
    void* const place = places.at(places.group().rank(), 0) + rows.place;
    return packed_matrix(place, own.dtype, own.device, form.rows, own.columns());
  };
  const Operand a = placed(views[0].value(), made.parts[0]);
  std::optional<Operand> scale_a;
  if (views[2]) scale_a = placed(*views[2], made.parts[made.count++]);
  const GemmCall product = product_of(form, views, a, scale_a, options);
  made.product = RecentPlans<GemmProblem>::shared().get(product.problem);
  made.arguments = product.arguments;
  made.columns = product.problem.n;
  return made;
}

/// Points a call that was made for other tensors at these.
void point(MadeGather& made, const Views& views) {
  const auto data = [&](size_t i) { return views[i] ? views[i]->data : nullptr; };
  made.parts[0].own = data(0), made.parts[1].own = data(2);
  made.arguments.b = data(1), made.arguments.scale_b = static_cast<const float*>(data(3)),
  made.arguments.bias = data(4);
}

/// In the next place: D, and all ranks' rows or None.
nb::object run(const GatherForm& form, MadeGather made, Places& places, TensorReader& reader, nb::handle like,
               const TensorView& a, bool kept) {
  const int64_t shape[] = {form.rows, made.columns};
  const nb::object d = reader.make(&ArrayType::empty, like, shape, form.d, a.device, "`out`");
  made.arguments.d = reader.read(d, "out").data;
  nb::object all = nb::none();
  if (kept) {
    const int64_t of_all[] = {form.share * places.group().size(), a.columns()};
    all = reader.make(&ArrayType::empty, like, of_all, a.dtype, a.device, "`out`");
    made.parts[0].out = reader.read(all, "out").data;
  }
  {
    const nb::gil_scoped_release unlocked;
    const size_t offset = size_t(places.next(reader.stream())) * places.bytes();  // nothing can be refused any more
    for (Group::Rows& part : made.parts) part.place += offset;
    made.arguments.a = static_cast<const char*>(made.arguments.a) + offset;
    if (made.arguments.scale_a != nullptr) {
      const char* const scale_a = reinterpret_cast<const char*>(made.arguments.scale_a) + offset;
      made.arguments.scale_a = reinterpret_cast<const float*>(scale_a);
    }
    places.group().push({made.parts.data(), made.count}, form.call, reader.stream());
    made.product->run(made.arguments, nullptr, 0, reader.stream());
  }
  return nb::make_tuple(d, all);
}

nb::object gather_over_ranks(Places& places, const GatherForm& form, nb::handle a, nb::handle b, nb::handle scale_a,
                             nb::handle scale_b, nb::handle bias, nb::handle precision, bool use_fast_accum,
                             bool kept) {
  TensorReader reader{nb::none()};
  const Views views = read(reader, Given{a, b, scale_a, scale_b, bias}, kNames);
  MadeGather made = make_gather(form, views, places, product_options(precision, use_fast_accum));
  point(made, views);
  return run(form, std::move(made), places, reader, a, *views[0], kept);
}

/// A call that was checked.
struct KnownGather {
  nb::object places;
  GatherForm form;
  MadeGather made;
};

class KnownGathers {
 public:
  using Calls = KnownCalls<KnownGather, kTensors, 4>;  // the last option is the precision
  using Options = Calls::Others;

  void add(const nb::object& places, const GatherForm& form, const Given& arrays, const Options& options,
           std::optional<int64_t> rows, bool use_fast_accum) {
    TensorReader reader{nb::none()};
    const Views views = read(reader, arrays, kNames);
    const auto known = std::make_shared<KnownGather>(KnownGather{places, form, {}});
    known->made =
        make_gather(known->form, views, nb::cast<Places&>(places), product_options(options.back(), use_fast_accum));
    calls_.add(views, options, number_of(rows, use_fast_accum), known);
  }

  /// None where there was no such call.
  nb::object run(const Given& arrays, const Options& options, std::optional<int64_t> rows, bool use_fast_accum,
                 bool kept) const {
    if (calls_.empty()) return nb::none();
    TensorReader reader{nb::none()};
    const Views views = read(reader, arrays, kNames);
    const Calls::Shared known = calls_.find(views, options, number_of(rows, use_fast_accum));
    if (known == nullptr) return nb::none();
    MadeGather made = known->made;
    point(made, views);
    return python::run(known->form, std::move(made), *nb::inst_ptr<Places>(known->places), reader, arrays[0], *views[0],
                       kept);
  }

  void clear() { calls_.clear(); }

 private:
  static int64_t number_of(std::optional<int64_t> rows, bool use_fast_accum) {
    return rows.value_or(-1) * 2 + use_fast_accum;
  }

  Calls calls_;
};

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
  nb::class_<KnownGathers>(m, "KnownGathers",
                           "Gathered products that were checked before, by what follows from their arguments.")
      .def(nb::init<>())
      .def("clear", &KnownGathers::clear)
      .def(
          "add",
          [](KnownGathers& known, const nb::object& places, const GatherForm& form, nb::handle a, nb::handle b,
             nb::handle scale_a, nb::handle scale_b, nb::handle bias, std::optional<int64_t> rows,
             nb::handle activation, nb::handle out_dtype, nb::handle transport, nb::handle precision,
             bool use_fast_accum) {
            known.add(places, form, {a, b, scale_a, scale_b, bias}, {activation, out_dtype, transport, precision}, rows,
                      use_fast_accum);
          },
          "places"_a, "form"_a, "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(), "bias"_a.none(), "rows"_a.none(),
          "activation"_a, "out_dtype"_a.none(), "transport"_a, "precision"_a.none(), "use_fast_accum"_a,
          "Calls like this one are of this form, through these places.")
      .def(
          "run",
          [](const KnownGathers& known, nb::handle a, nb::handle b, nb::handle scale_a, nb::handle scale_b,
             nb::handle bias, std::optional<int64_t> rows, nb::handle activation, nb::handle out_dtype,
             nb::handle transport, nb::handle precision, bool use_fast_accum, bool kept) {
            return known.run({a, b, scale_a, scale_b, bias}, {activation, out_dtype, transport, precision}, rows,
                             use_fast_accum, kept);
          },
          "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(), "bias"_a.none(), "rows"_a.none(), "activation"_a,
          "out_dtype"_a.none(), "transport"_a, "precision"_a.none(), "use_fast_accum"_a, "kept"_a,
          "gather_over_ranks of such a call; None where none was like it.");
  m.def("gather_over_ranks", &gather_over_ranks, "places"_a, "form"_a, "a"_a, "b"_a, "scale_a"_a.none(),
        "scale_b"_a.none(), "bias"_a.none(), "precision"_a.none(), "use_fast_accum"_a, "kept"_a,
        "The product of all ranks' a, whose rows are packed; and, kept, a new [ranks * share, K] of them, or None.");
}

}  // namespace cleave::python
