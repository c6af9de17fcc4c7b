// A whole call of cleave.distributed: a product into memory that all ranks see, and the sum of theirs. In Python each
// of its steps takes the host longer than the launches do.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <optional>

#include "cleave/across.h"
#include "cleave/core/math.h"
#include "cleave/epilogue.h"
#include "module/bindings.h"
#include "operands/fold_operands.h"
#include "peers/fold_problem.h"
#include "peers/places.h"
#include "product/known_calls.h"
#include "product/product.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// What calls with the same sizes, dtypes and options have in common.
struct SumForm {
  int64_t rows, columns;  // of each rank's product
  int64_t made;           // columns of D
  int64_t first, own;     // which rows of it this rank adds up, and how many
  int64_t most;           // of any rank
  bool pushed;            // all ranks add up the same
  bool unsplit;           // products are not split along K by themselves, unless they are batch invariant
  bool in_strips;         // pushed as a product that adds up itself sends it, which any rank may have
  bool exact;             // of integers, which scales, each a line, multiply when they are added up
  SplitKMode split;       // of this rank's product
  int32_t slices;         // 0: the planner chooses
  DType partial, d;
  Activation activation;
  std::string call;                      // how ranks name it to each other
  std::optional<Major> lines_of_scales;  // D's are found, for each 128 columns, and lie so
  bool use_ue8m0 = false;                // these are powers of two
};

/// What the product and the sum read.
struct SumTensors {
  Operand a, b;
  std::optional<Operand> scale_a, scale_b, bias, c, scale_d;
};

constexpr const char* kNames[] = {"a", "b", "scale_a", "scale_b", "bias", "c", "scale_d"};
constexpr size_t kTensors = std::size(kNames);
using Given = std::array<nb::handle, kTensors>;
using Views = ViewsOf<kTensors>;

SumTensors tensors_of(const Views& v) {
  return {
      .a = v[0].value(), .b = v[1].value(), .scale_a = v[2], .scale_b = v[3], .bias = v[4], .c = v[5], .scale_d = v[6]};
}

/// Into the first of the places.
GemmCall product_of(const SumForm& form, const SumTensors& tensors, const Places& places, const PlanOptions& options) {
  void* const own = places.at(places.group().rank(), 0);
  GemmTensors t{.a = tensors.a, .b = tensors.b, .c = {}, .bias = {}, .epilogue = {}};
  t.out = packed_matrix(own, form.partial, places.group().device(), form.rows, form.columns);
  if (!form.exact) t.scale_a = tensors.scale_a, t.scale_b = tensors.scale_b;
  GemmCall product = make_call(t, {.plan = options});
  cleave::set_scalars(1.0f, std::nullopt, product);
  return product;
}

/// Those of the rows that this rank adds up; one for all rows is that for these, too.
std::optional<Operand> of_rows(std::optional<Operand> scales, const SumForm& form) {
  if (!scales || scales->shape[0] == 1) return scales;
  scales->data = static_cast<float*>(scales->data) + form.first * scales->stride[0];
  scales->shape[0] = form.own;
  return scales;
}

/// What is added up, in the first of the places.
FoldCall sum_of(const SumForm& form, const SumTensors& tensors, const Places& places, const Operand& d,
                const std::optional<Operand>& scales) {
  FoldTensors t{.bias = tensors.bias, .c = tensors.c, .scale_d = tensors.scale_d, .scale_out = scales, .d = d};
  if (form.exact) t.scale_a = of_rows(tensors.scale_a, form), t.scale_b = tensors.scale_b;
  const size_t offset = size_t(form.first * form.columns) * size_of(form.partial);
  for (int rank = 0; rank < places.group().size(); ++rank)
    t.partials.push_back(packed_matrix(places.at(rank, 0) + offset, form.partial, d.device, form.own, form.columns));
  FoldCall sum = make_call(t, form.activation, form.most, form.use_ue8m0);
  sum.arguments.group = &places.group();
  sum.arguments.call = form.call;
  sum.problem.pushed = form.pushed && can_push(sum.problem);
  sum.problem.in_strips = form.in_strips && sum.problem.pushed && can_strip(sum.problem);
  return sum;
}

/// What a call does: launches with all that they are given, in the first of the places.
struct MadeSum {
  std::shared_ptr<const GemmPlan> product;
  GemmArguments product_arguments;
  std::shared_ptr<const FoldPlan> fold;  // nullptr: the product makes the sum itself
  FoldArguments fold_arguments;
};

/// nullptr where no product makes the sum itself.
std::shared_ptr<const GemmPlan> plan_of_whole(const SumForm& form, const SumTensors& tensors, const Places& places,
                                              const Operand& d, const PlanOptions& options, GemmArguments& arguments) {
  GemmTensors t{.a = tensors.a, .b = tensors.b, .c = tensors.c, .bias = tensors.bias, .epilogue = {}};
  t.out = d;
  GemmCall whole = make_call(t, {.activation = form.activation, .plan = options});
  cleave::set_scalars(1.0f, std::nullopt, whole);
  arguments = whole.arguments;
  arguments.group = &places.group();
  arguments.call = form.call;
  const nb::gil_scoped_release unlocked;
  return plan_across({whole.problem, places.group().size(), form.partial});
}

/// `form` outlives it.
MadeSum make_sum(const SumForm& form, const SumTensors& tensors, const Places& places, const Operand& d,
                 PlanOptions options, const std::optional<Operand>& scales = std::nullopt) {
  options.split_k_mode = form.split, options.split_k_slices = form.slices;
  if (form.unsplit && form.split == SplitKMode::automatic && default_determinism() < Determinism::batch_invariant)
    options.split_k_mode = SplitKMode::none;
  MadeSum made;
  if (form.in_strips) {
    made.product = plan_of_whole(form, tensors, places, d, options, made.product_arguments);
    if (made.product != nullptr) return made;
  }
  const GemmCall product = product_of(form, tensors, places, options);
  const FoldCall fold = sum_of(form, tensors, places, d, scales);
  made.product = RecentPlans<GemmProblem>::shared().get(product.problem);
  made.product_arguments = product.arguments;
  made.fold = RecentPlans<FoldProblem>::shared().get(fold.problem);
  made.fold_arguments = fold.arguments;
  return made;
}

/// Points a sum of floats, which was made for other tensors, at these.
void point(MadeSum& made, const Views& views, void* d) {
  const auto data = [&](size_t i) { return views[i] ? views[i]->data : nullptr; };
  GemmArguments& product = made.product_arguments;
  product.a = data(0), product.b = data(1);
  product.scale_a = static_cast<const float*>(data(2)), product.scale_b = static_cast<const float*>(data(3));
  if (made.fold == nullptr) {
    product.bias = data(4), product.c = data(5), product.d = d;
    return;
  }
  FoldArguments& fold = made.fold_arguments;
  fold.bias = data(4), fold.c = data(5), fold.scale_d = static_cast<const float*>(data(6)), fold.d = d;
}

/// In the next place.
void run(MadeSum made, Places& places, void* stream) {
  const size_t offset = size_t(places.next(stream)) * places.bytes();  // nothing can be refused any more
  if (made.fold == nullptr) return made.product->run(made.product_arguments, nullptr, 0, stream);
  made.product_arguments.d = static_cast<char*>(made.product_arguments.d) + offset;
  for (int rank = 0; rank < places.group().size(); ++rank) {
    const void*& partial = made.fold_arguments.partials[rank];
    partial = static_cast<const char*>(partial) + offset;
  }
  made.product->run(made.product_arguments, nullptr, 0, stream);
  made.fold->run(made.fold_arguments, stream);
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

/// A new [own, columns of D].
nb::object new_sum(const SumForm& form, TensorReader& reader, nb::handle like, int device) {
  const int64_t shape[] = {form.own, form.made};
  return reader.make(&ArrayType::empty, like, shape, form.d, device, "`out`");
}

/// A new [own, lines of 128 columns], or its transpose.
nb::object new_scales(const SumForm& form, TensorReader& reader, nb::handle like, int device) {
  const int64_t lines = ceil_div<int64_t>(form.made, kScaleBlock);
  const bool by_row = *form.lines_of_scales == Major::k;
  const int64_t shape[] = {by_row ? form.own : lines, by_row ? lines : form.own};
  nb::object scales = reader.make(&ArrayType::empty, like, shape, DType::f32, device, "`scale_out`");
  return by_row ? scales : nb::object(scales.attr("t")());
}

nb::object sum_over_ranks(Places& places, const SumForm& form, nb::handle a, nb::handle b, nb::handle scale_a,
                          nb::handle scale_b, nb::handle bias, nb::handle c, nb::handle scale_d, nb::handle precision,
                          bool use_fast_accum) {
  TensorReader reader{nb::none()};
  const SumTensors tensors = tensors_of(read(reader, Given{a, b, scale_a, scale_b, bias, c, scale_d}, kNames));
  const nb::object d = new_sum(form, reader, a, tensors.a.device);
  nb::object scales;
  std::optional<Operand> scale_out;
  if (form.lines_of_scales) {
    scales = new_scales(form, reader, a, tensors.a.device);
    scale_out = reader.read(scales, "scale_out");
  }
  MadeSum made =
      make_sum(form, tensors, places, reader.read(d, "out"), options_of(precision, use_fast_accum), scale_out);
  {
    const nb::gil_scoped_release unlocked;
    run(std::move(made), places, reader.stream());
  }
  return form.lines_of_scales ? nb::object(nb::make_tuple(d, scales)) : d;
}

/// A call that was checked.
struct KnownSum {
  nb::object places;
  SumForm form;
  MadeSum made;
};

class KnownSums {
 public:
  using Calls = KnownCalls<std::optional<KnownSum>, kTensors, 8>;  // the last option is the precision
  using Options = Calls::Others;

  void add(const nb::object& places, const SumForm& form, const Given& arrays, const Options& options,
           bool use_fast_accum) {
    TensorReader reader{nb::none()};
    const Views views = read(reader, arrays, kNames);
    calls_.add(views, options, use_fast_accum, [&](std::optional<KnownSum>& known) {
      known = KnownSum{places, form, {}};
      const Operand d = packed_matrix(reinterpret_cast<void*>(kAligned), form.d, views[0]->device, form.own, form.made);
      known->made = make_sum(known->form, tensors_of(views), nb::cast<Places&>(places), d,
                             options_of(options.back(), use_fast_accum));
    });
  }

  /// None where there was no such call.
  nb::object run(const Given& arrays, const Options& options, bool use_fast_accum) const {
    if (calls_.empty()) return nb::none();
    TensorReader reader{nb::none()};
    const Views views = read(reader, arrays, kNames);
    const std::optional<KnownSum>* const found = calls_.find(views, options, use_fast_accum);
    if (found == nullptr) return nb::none();
    const KnownSum& known = **found;
    const nb::object d = new_sum(known.form, reader, arrays[0], views[0]->device);
    void* const data = reader.read(d, "out").data;
    if (reinterpret_cast<uintptr_t>(data) % kAligned != 0) return nb::none();
    MadeSum made = known.made;
    point(made, views, data);
    Places& places = *nb::inst_ptr<Places>(known.places);
    const nb::gil_scoped_release unlocked;
    python::run(std::move(made), places, reader.stream());
    return d;
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
             std::optional<std::string_view> lines_of_scales, bool use_ue8m0) {
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
                               use_ue8m0};
            if (lines_of_scales) form->lines_of_scales = from_string<Major>(*lines_of_scales);
          },
          "rows"_a, "columns"_a, "first"_a, "own"_a, "most"_a, "pushed"_a, "in_strips"_a, "unsplit"_a, "exact"_a,
          "split_k_mode"_a, "split_k_slices"_a.none(), "partial_dtype"_a, "out_dtype"_a, "activation"_a, "call"_a,
          "lines_of_scales"_a = nb::none(), "use_ue8m0"_a = false,
          "lines_of_scales: which way D's scales lie, \"k\" or \"mn\", of those that the sum finds.");
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
  m.def("sum_over_ranks", &sum_over_ranks, "places"_a, "form"_a, "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(),
        "bias"_a.none(), "c"_a.none(), "scale_d"_a.none(), "precision"_a.none(), "use_fast_accum"_a,
        "This rank's product, and the sum of all ranks' that it makes: a new [own, columns], and perhaps its scales.");
}

}  // namespace cleave::python
