// A whole call of cleave.distributed: a product into memory that all ranks see, and the sum of theirs. In Python each
// of its steps takes the host longer than the launches do.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <memory>
#include <optional>

#include "cleave/core/math.h"
#include "cleave/epilogue.h"
#include "module/bindings.h"
#include "over_ranks/known_calls.h"
#include "over_ranks/sum_at_once.h"
#include "over_ranks/sum_in_parts.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

constexpr const char* kNames[] = {"a", "b", "scale_a", "scale_b", "bias", "c", "scale_d"};
constexpr size_t kTensors = std::size(kNames);
using Given = std::array<nb::handle, kTensors>;
using Views = ViewsOf<kTensors>;

SumTensors tensors_of(const Views& v) {
  return {.a = v[0].value(), .b = v[1], .scale_a = v[2], .scale_b = v[3], .bias = v[4], .c = v[5], .scale_d = v[6]};
}

nb::bytes kinds_of(nb::args tensors) {
  TensorReader reader{nb::none()};
  std::string text;
  for (const nb::handle tensor : tensors) {
    if (tensor.is_none()) {
      add_kind(text, nullptr);
    } else {
      const TensorView view = reader.read(tensor, "a tensor");
      add_kind(text, &view);
    }
  }
  return nb::bytes(text.data(), text.size());
}

SumAddresses addresses_of(const Views& v, void* d) {
  const auto data = [&](size_t i) { return v[i] ? v[i]->data : nullptr; };
  return {data(0), data(1), data(2), data(3), data(4), data(5), data(6), d};
}

/// A new D: all rows, of which each rank has `most` until they are cut off, or this one's.
nb::object new_sum(const SumForm& form, const Group& group, TensorReader& reader, nb::handle like) {
  const int64_t shape[] = {form.gathered ? form.most * group.size() : form.own, form.made};
  return reader.make(&ArrayType::empty, like, shape, form.d, group.device(), "`out`");
}

nb::object cut(const SumForm& form, const Group& group, nb::object d) {
  if (!form.gathered || form.most * group.size() == form.rows) return d;
  return d.attr("narrow")(0, 0, form.rows);
}

/// A new [own, lines of 128 columns], or its transpose.
nb::object new_scales(const SumForm& form, TensorReader& reader, nb::handle like, int device) {
  const int64_t lines = ceil_div<int64_t>(form.made, kScaleBlock);
  const bool by_row = *form.lines_of_scales == Major::k;
  const int64_t shape[] = {by_row ? form.own : lines, by_row ? lines : form.own};
  nb::object scales = reader.make(&ArrayType::empty, like, shape, DType::f32, device, "`scale_out`");
  return by_row ? scales : nb::object(scales.attr("t")());
}

void run_in_parts(const SumForm& form, const SumTensors& tensors, const SumResults& results, Places& places,
                  const PlanOptions& options, TensorReader& reader, nb::handle like) {
  const Group& group = places.group();
  nb::object leaving;  // torch gives its memory to later work of the call's stream
  void* room = nullptr;
  if (tensors.b) {
    const int64_t bytes[] = {int64_t(leaving_bytes(form, group))};
    leaving = reader.make(&ArrayType::empty, like, bytes, DType::i8, group.device(), "memory");
    room = reader.read(leaving, "memory").data;
  }
  const nb::gil_scoped_release unlocked;
  run(make_in_parts(form, tensors, results, room, places, options), form, places, reader.stream());
}

nb::object sum_over_ranks(Places& places, const SumForm& form, nb::handle a, nb::handle b, nb::handle scale_a,
                          nb::handle scale_b, nb::handle bias, nb::handle c, nb::handle scale_d, nb::handle precision,
                          bool use_fast_accum) {
  TensorReader reader{nb::none()};
  const Group& group = places.group();
  const SumTensors tensors = tensors_of(read(reader, Given{a, b, scale_a, scale_b, bias, c, scale_d}, kNames));
  const PlanOptions options = split_as(form, product_options(precision, use_fast_accum));
  const nb::object d = new_sum(form, group, reader, a);
  SumResults results{.d = reader.read(d, "out"), .scale_out = {}};
  nb::object scales;
  if (form.lines_of_scales) {
    scales = new_scales(form, reader, a, group.device());
    results.scale_out = reader.read(scales, "scale_out");
  }
  if (form.part > 0) {
    run_in_parts(form, tensors, results, places, options, reader, a);
  } else {
    const nb::gil_scoped_release unlocked;
    run(make_at_once(form, tensors, results, places, options), form, places, reader.stream());
  }
  return form.lines_of_scales ? nb::object(nb::make_tuple(d, scales)) : cut(form, group, d);
}

/// A call that was checked. One in parts is made anew each time: it takes the GPU longer than the host.
struct KnownSum {
  nb::object places;
  SumForm form;
  SumAtOnce made;
};

class KnownSums {
 public:
  using Calls = KnownCalls<KnownSum, kTensors, 8>;  // the last option is the precision
  using Options = Calls::Others;

  void add(const nb::object& places, const SumForm& form, const Given& arrays, const Options& options,
           bool use_fast_accum) {
    TensorReader reader{nb::none()};
    const Views views = read(reader, arrays, kNames);
    const auto known = std::make_shared<KnownSum>(KnownSum{places, form, {}});
    if (form.part == 0) {
      const auto& of_group = nb::cast<const Places&>(places);
      void* const aligned = reinterpret_cast<void*>(kAligned);
      const int64_t rows = form.gathered ? form.most * of_group.group().size() : form.own;
      const SumResults results{.d = packed_matrix(aligned, form.d, views[0]->device, rows, form.made), .scale_out = {}};
      const PlanOptions how = split_as(form, product_options(options.back(), use_fast_accum));
      const nb::gil_scoped_release unlocked;
      known->made = make_at_once(known->form, tensors_of(views), results, of_group, how);
    }
    calls_.add(views, options, use_fast_accum, known);
  }

  /// None where there was no such call.
  nb::object run(const Given& arrays, const Options& options, bool use_fast_accum) const {
    if (calls_.empty()) return nb::none();
    TensorReader reader{nb::none()};
    const Views views = read(reader, arrays, kNames);
    const Calls::Shared known = calls_.find(views, options, use_fast_accum);
    if (known == nullptr) return nb::none();
    const SumForm& form = known->form;
    Places& places = *nb::inst_ptr<Places>(known->places);
    const Group& group = places.group();
    const nb::object d = new_sum(form, group, reader, arrays[0]);
    const Operand out = reader.read(d, "out");
    if (reinterpret_cast<uintptr_t>(out.data) % kAligned != 0) return nb::none();
    if (form.part > 0) {
      const PlanOptions how = split_as(form, product_options(options.back(), use_fast_accum));
      run_in_parts(form, tensors_of(views), {out, {}}, places, how, reader, arrays[0]);
    } else {
      SumAtOnce made = known->made;
      point(made, form, addresses_of(views, out.data));
      const nb::gil_scoped_release unlocked;
      cleave::run(std::move(made), form, places, reader.stream());
    }
    return cut(form, group, d);
  }

  void clear() { calls_.clear(); }

 private:
  Calls calls_;
};

}  // namespace

void bind_sum_over_ranks(nb::module_& m) {
  nb::class_<SumForm>(m, "SumForm", "What sums over ranks with the same sizes, dtypes and options have in common.")
      .def(
          "__init__",
          [](SumForm* form, int64_t rows, int64_t columns, int64_t first, int64_t own, int64_t most, bool pushed,
             bool in_strips, bool unsplit, bool exact, nb::handle split_k_mode, std::optional<int32_t> split_k_slices,
             nb::handle partial_dtype, nb::handle out_dtype, std::string_view activation, std::string call,
             std::optional<std::string_view> lines_of_scales, bool use_ue8m0, bool gathered, int64_t part,
             const std::string& onto) {
            const bool gated = epilogue_of(from_string<Activation>(activation)).gates != Gates::none;
            new (form) SumForm{rows,
                               columns,
                               gated ? columns / 2 : columns,
                               first,
                               own,
                               most,
                               pushed,
                               unsplit,
                               in_strips,
                               exact,
                               parse_name<SplitKMode>(split_k_mode, "split_k_mode"),
                               split_k_slices.value_or(0),
                               parse_dtype(partial_dtype, "partial_dtype"),
                               parse_dtype(out_dtype, "out_dtype"),
                               from_string<Activation>(activation),
                               std::move(call),
                               {},
                               use_ue8m0,
                               gathered,
                               part,
                               onto.empty() ? nullptr : &epilogue_function(onto)};
            if (lines_of_scales) form->lines_of_scales = from_string<Major>(*lines_of_scales);
          },
          "rows"_a, "columns"_a, "first"_a, "own"_a, "most"_a, "pushed"_a, "in_strips"_a, "unsplit"_a, "exact"_a,
          "split_k_mode"_a, "split_k_slices"_a.none(), "partial_dtype"_a, "out_dtype"_a, "activation"_a, "call"_a,
          "lines_of_scales"_a = nb::none(), "use_ue8m0"_a = false, "gathered"_a = false, "part"_a = 0, "onto"_a = "",
          "lines_of_scales: which way D's scales lie, \"k\" or \"mn\", of those that the sum finds. gathered: all "
          "ranks get all rows. part: how many of each rank's move while more are multiplied, half at least, or 0; then "
          "`onto` is the text of the epilogue function by which this rank's product adds up, if one does.")
      .def("bytes", &place_bytes, "ranks"_a, "What a call takes of each rank's memory.");
  nb::class_<KnownSums>(m, "KnownSums",
                        "Sums over ranks that were checked before, by what follows from their arguments.")
      .def(nb::init<>())
      .def("clear", &KnownSums::clear)
      .def(
          "add",
          [](KnownSums& known, const nb::object& places, const SumForm& form, nb::handle a, nb::handle b,
             nb::handle scale_a, nb::handle scale_b, nb::handle bias, nb::handle c, nb::handle scale_d,
             nb::handle activation, nb::handle out_dtype, nb::handle partial_dtype, nb::handle order,
             nb::handle transport, nb::handle split_k_mode, nb::handle split_k_slices, nb::handle precision,
             bool use_fast_accum) {
            known.add(places, form, {a, b, scale_a, scale_b, bias, c, scale_d},
                      {activation, out_dtype, partial_dtype, order, transport, split_k_mode, split_k_slices, precision},
                      use_fast_accum);
          },
          "places"_a, "form"_a, "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(), "bias"_a.none(), "c"_a.none(),
          "scale_d"_a.none(), "activation"_a, "out_dtype"_a.none(), "partial_dtype"_a.none(), "order"_a, "transport"_a,
          "split_k_mode"_a, "split_k_slices"_a.none(), "precision"_a.none(), "use_fast_accum"_a,
          "Calls like this one are of this form, through these places.")
      .def(
          "run",
          [](const KnownSums& known, nb::handle a, nb::handle b, nb::handle scale_a, nb::handle scale_b,
             nb::handle bias, nb::handle c, nb::handle scale_d, nb::handle activation, nb::handle out_dtype,
             nb::handle partial_dtype, nb::handle order, nb::handle transport, nb::handle split_k_mode,
             nb::handle split_k_slices, nb::handle precision, bool use_fast_accum) {
            return known.run(
                {a, b, scale_a, scale_b, bias, c, scale_d},
                {activation, out_dtype, partial_dtype, order, transport, split_k_mode, split_k_slices, precision},
                use_fast_accum);
          },
          "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(), "bias"_a.none(), "c"_a.none(), "scale_d"_a.none(),
          "activation"_a, "out_dtype"_a.none(), "partial_dtype"_a.none(), "order"_a, "transport"_a, "split_k_mode"_a,
          "split_k_slices"_a.none(), "precision"_a.none(), "use_fast_accum"_a,
          "sum_over_ranks of such a call; None where none was like it.");
  m.def("kinds_of", &kinds_of,
        "What checks of tensors look at: dtypes, devices and sizes, as bytes; None is one, too.");
  m.def("sum_over_ranks", &sum_over_ranks, "places"_a, "form"_a, "a"_a, "b"_a.none(), "scale_a"_a.none(),
        "scale_b"_a.none(), "bias"_a.none(), "c"_a.none(), "scale_d"_a.none(), "precision"_a.none(), "use_fast_accum"_a,
        "This rank's product, or what it has already, if b is None, and the sum of all ranks' that it makes: a new "
        "[own, columns], or [rows, columns], and perhaps its scales.");
}

}  // namespace cleave::python
