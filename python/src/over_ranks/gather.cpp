// A whole call of cleave.distributed: rows that are gathered through memory that all ranks see, and their product.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <optional>

#include "module/bindings.h"
#include "over_ranks/gather_at_once.h"
#include "over_ranks/gather_in_parts.h"
#include "over_ranks/known_calls.h"
#include "product/product.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// What the product reads.
constexpr const char* kNames[] = {"a", "b", "scale_a", "scale_b", "bias"};
constexpr size_t kTensors = std::size(kNames);
using Given = std::array<nb::handle, kTensors>;
using Views = ViewsOf<kTensors>;

GatherTensors tensors_of(const Views& v) {
  return {.a = v[0].value(), .b = v[1].value(), .scale_a = v[2], .scale_b = v[3], .bias = v[4]};
}

GatherAddresses addresses_of(const Views& v) {
  const auto data = [&](size_t i) { return v[i] ? v[i]->data : nullptr; };
  return {data(0), data(1), data(2), data(3), data(4)};
}

/// What a call gives: D, and all ranks' rows or None.
struct Results {
  nb::object d, all;
  Operand out;
  void* rows = nullptr;

  Results(const GatherForm& form, const Views& views, const Group& group, TensorReader& reader, nb::handle like,
          bool kept)
      : d(made({form.rows, columns_of_d(form, *views[1])}, form.d, group, reader, like)),
        all(nb::none()),
        out(reader.read(d, "out")) {
    if (!kept) return;
    all = made({form.share * group.size(), views[0]->columns()}, views[0]->dtype, group, reader, like);
    rows = reader.read(all, "out").data;
  }

  nb::object both() const { return nb::make_tuple(d, all); }

 private:
  static nb::object made(const std::array<int64_t, 2>& shape, DType type, const Group& group, TensorReader& reader,
                         nb::handle like) {
    return reader.make(&ArrayType::empty, like, shape, type, group.device(), "`out`");
  }
};

void run_in_parts(const GatherForm& form, const Views& views, const Results& results, Places& places,
                  const PlanOptions& options, void* stream) {
  const nb::gil_scoped_release unlocked;
  run(make_in_parts(form, tensors_of(views), results.out, places, options), form, places, results.rows, stream);
}

nb::object gather_over_ranks(Places& places, const GatherForm& form, nb::handle a, nb::handle b, nb::handle scale_a,
                             nb::handle scale_b, nb::handle bias, nb::handle precision, bool use_fast_accum,
                             bool kept) {
  TensorReader reader{nb::none()};
  const Views views = read(reader, Given{a, b, scale_a, scale_b, bias}, kNames);
  const PlanOptions options = product_options(precision, use_fast_accum);
  const Results results(form, views, places.group(), reader, a, kept);
  if (form.part > 0) {
    run_in_parts(form, views, results, places, options, reader.stream());
  } else {
    const nb::gil_scoped_release unlocked;
    cleave::run(make_at_once(form, tensors_of(views), places, options), form, places, results.out.data, results.rows,
                reader.stream());
  }
  return results.both();
}

/// A call that was checked. One in parts is made anew each time: it takes the GPU longer than the host.
struct KnownGather {
  nb::object places;
  GatherForm form;
  GatherAtOnce made;
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
    if (form.part == 0) {
      const auto& of_group = nb::cast<const Places&>(places);
      known->made =
          make_at_once(known->form, tensors_of(views), of_group, product_options(options.back(), use_fast_accum));
    }
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
    const GatherForm& form = known->form;
    Places& places = *nb::inst_ptr<Places>(known->places);
    const Results results(form, views, places.group(), reader, arrays[0], kept);
    if (form.part > 0) {
      const PlanOptions how = product_options(options.back(), use_fast_accum);
      run_in_parts(form, views, results, places, how, reader.stream());
    } else {
      GatherAtOnce made = known->made;
      point(made, addresses_of(views));
      const nb::gil_scoped_release unlocked;
      cleave::run(std::move(made), form, places, results.out.data, results.rows, reader.stream());
    }
    return results.both();
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
             std::string call, int64_t part, bool awaits_all, bool by_rank) {
            new (form) GatherForm{rows,
                                  share,
                                  parse_dtype(out_dtype, "out_dtype"),
                                  from_string<Activation>(activation),
                                  std::move(call),
                                  part,
                                  awaits_all,
                                  by_rank};
          },
          "rows"_a, "share"_a, "out_dtype"_a, "activation"_a, "call"_a, "part"_a = 0, "awaits_all"_a = false,
          "by_rank"_a = false,
          "part: how many of each rank's rows move while others are multiplied, half at least, or 0. Then awaits_all: "
          "the others' are awaited together; by_rank: they are multiplied rank by rank.")
      .def("bytes", &place_bytes, "ranks"_a, "row_bytes"_a, "What gathered rows take of each rank's memory.");
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
