// A whole call of cleave.distributed: a product into memory that all ranks see, and the sum of theirs. In Python each
// of its steps takes the host longer than the launches do.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <unordered_map>

#include "module/bindings.h"
#include "operands/fold_operands.h"
#include "peers/places.h"
#include "product/product.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// What calls with the same sizes, dtypes and options have in common.
struct SumForm {
  int64_t rows, columns;  // of each rank's product
  int64_t first, own;     // which rows of it this rank adds up, and how many
  int64_t most;           // of any rank
  bool pushed;            // all ranks add up the same
  bool unsplit;           // products are not split along K, unless they are batch invariant
  bool exact;             // of integers, which scales, each a line, multiply when they are added up
  DType partial, d;
  Activation activation;
  std::string call;  // how ranks name it to each other
};

/// A matrix that is packed row by row.
Operand packed_matrix(void* data, DType dtype, int device, int64_t rows, int64_t columns) {
  Operand x{.data = data, .dtype = dtype, .device = device, .ndim = 2};
  x.shape[0] = rows, x.shape[1] = columns;
  x.stride[0] = columns, x.stride[1] = 1;
  return x;
}

/// What the product and the sum read.
struct SumTensors {
  Operand a, b;
  std::optional<Operand> scale_a, scale_b, bias, c, scale_d;
};

/// A call's tensors, as they are given: a, b, scale_a, scale_b, bias, c, scale_d.
using Given = std::array<nb::handle, 7>;
using Views = std::array<std::optional<TensorView>, 7>;

Views read(TensorReader& reader, const Given& arrays) {
  constexpr const char* kNames[] = {"a", "b", "scale_a", "scale_b", "bias", "c", "scale_d"};
  Views views;
  for (size_t i = 0; i < arrays.size(); ++i)
    if (given(arrays[i])) views[i] = reader.read(arrays[i], kNames[i]);
  return views;
}

SumTensors tensors_of(const Views& v) {
  return {
      .a = v[0].value(), .b = v[1].value(), .scale_a = v[2], .scale_b = v[3], .bias = v[4], .c = v[5], .scale_d = v[6]};
}

/// Into the first of the places.
GemmCall product_of(const SumForm& form, const SumTensors& tensors, const Places& places, PlanOptions options) {
  if (form.unsplit && default_determinism() < Determinism::batch_invariant) options.split_k_mode = SplitKMode::none;
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
FoldCall sum_of(const SumForm& form, const SumTensors& tensors, const Places& places, const Operand& d) {
  FoldTensors t{.bias = tensors.bias, .c = tensors.c, .scale_d = tensors.scale_d, .d = d};
  if (form.exact) t.scale_a = of_rows(tensors.scale_a, form), t.scale_b = tensors.scale_b;
  const size_t offset = size_t(form.first * form.columns) * size_of(form.partial);
  for (int rank = 0; rank < places.group().size(); ++rank)
    t.partials.push_back(packed_matrix(places.at(rank, 0) + offset, form.partial, d.device, form.own, form.columns));
  FoldCall sum = make_call(t, form.activation, form.most);
  sum.arguments.group = &places.group();
  sum.arguments.call = form.call;
  sum.problem.pushed = form.pushed && can_push(sum.problem);
  return sum;
}

template <class T>
void add_bytes(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// What checks of tensors look at, so that what was checked once need not be again: a form, a type, a device and the
/// sizes of each, or nothing of one that is not given.
void add_kind(std::string& text, const TensorView* view) {
  if (view == nullptr) return add_bytes(text, -1);
  add_bytes(text, view->ndim), add_bytes(text, view->device);
  add_bytes(text, view->element.code), add_bytes(text, view->element.bits);
  for (int i = 0; i < std::min(view->ndim, Operand::kMaxRank); ++i) add_bytes(text, view->shape[i]);
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

/// A new [own, columns].
nb::object sum(Places& places, const SumForm& form, TensorReader& reader, const SumTensors& tensors, nb::handle like,
               nb::handle precision, bool use_fast_accum) {
  PlanOptions options{.fast_accumulation = use_fast_accum};
  if (given(precision)) options.precision = parse_name<Precision>(precision, "precision");
  GemmCall product = product_of(form, tensors, places, options);
  const int64_t shape[] = {form.own, form.columns};
  const nb::object d = reader.make(&ArrayType::empty, like, shape, form.d, tensors.a.device, "`out`");
  FoldCall sum = sum_of(form, tensors, places, reader.read(d, "out"));
  const auto product_plan = RecentPlans<GemmProblem>::shared().get(product.problem);
  const auto sum_plan = RecentPlans<FoldProblem>::shared().get(sum.problem);
  {
    const nb::gil_scoped_release unlocked;
    const size_t offset = size_t(places.next(reader.stream())) * places.bytes();  // nothing can be refused any more
    product.arguments.d = static_cast<char*>(product.arguments.d) + offset;
    for (int rank = 0; rank < places.group().size(); ++rank) {
      const void*& partial = sum.arguments.partials[rank];
      partial = static_cast<const char*>(partial) + offset;
    }
    product_plan->run(product.arguments, nullptr, 0, reader.stream());
    sum_plan->run(sum.arguments, reader.stream());
  }
  return d;
}

nb::object sum_over_ranks(Places& places, const SumForm& form, nb::handle a, nb::handle b, nb::handle scale_a,
                          nb::handle scale_b, nb::handle bias, nb::handle c, nb::handle scale_d, nb::handle precision,
                          bool use_fast_accum) {
  TensorReader reader{nb::none()};
  const Views views = read(reader, {a, b, scale_a, scale_b, bias, c, scale_d});
  return sum(places, form, reader, tensors_of(views), a, precision, use_fast_accum);
}

/// Calls that were checked, and what they do: those of one operation of one group, which are like them, are made at
/// once.
class KnownSums {
 public:
  /// Options are told apart by which objects they are, which are kept.
  using Options = std::array<nb::handle, 5>;

  void add(const nb::object& places, const SumForm& form, const Given& arrays, const Options& options) {
    TensorReader reader{nb::none()};
    Known known{places, form, {}};
    for (size_t i = 0; i < options.size(); ++i) known.options[i] = nb::borrow(options[i]);
    known_.insert_or_assign(key_of(read(reader, arrays), options), std::move(known));
  }

  /// None where there was no such call.
  nb::object run(const Given& arrays, const Options& options, nb::handle precision, bool use_fast_accum) const {
    if (known_.empty()) return nb::none();
    TensorReader reader{nb::none()};
    const Views views = read(reader, arrays);
    const auto found = known_.find(key_of(views, options));
    if (found == known_.end()) return nb::none();
    const Known& known = found->second;
    return sum(nb::cast<Places&>(known.places), known.form, reader, tensors_of(views), arrays[0], precision,
               use_fast_accum);
  }

  void clear() { known_.clear(); }

 private:
  struct Known {
    nb::object places;
    SumForm form;
    std::array<nb::object, 5> options;
  };

  static std::string key_of(const Views& views, const Options& options) {
    std::string key;
    for (const auto& view : views) add_kind(key, view ? &*view : nullptr);
    for (const nb::handle option : options) add_bytes(key, option.ptr());
    return key;
  }

  std::unordered_map<std::string, Known> known_;
};

}  // namespace

void bind_sum_over_ranks(nb::module_& m) {
  nb::class_<Places>(m, "Places", "Staging of a group's ranks, in places that calls take in turn.")
      .def(nb::init<std::shared_ptr<const Group>>(), "group"_a)
      .def_prop_ro("bytes", &Places::bytes, "Of each.")
      .def(
          "next", [](Places& places, uintptr_t stream) { return places.next(reinterpret_cast<void*>(stream)); },
          "stream"_a,
          "The number of the next call's, which all ranks make alike; of a graph's first call, behind a barrier.");
  nb::class_<SumForm>(m, "SumForm", "What sums over ranks with the same sizes, dtypes and options have in common.")
      .def(
          "__init__",
          [](SumForm* form, int64_t rows, int64_t columns, int64_t first, int64_t own, int64_t most, bool pushed,
             bool unsplit, bool exact, nb::handle partial_dtype, nb::handle out_dtype, std::string_view activation,
             std::string call) {
            new (form) SumForm{rows,
                               columns,
                               first,
                               own,
                               most,
                               pushed,
                               unsplit,
                               exact,
                               parse_dtype(partial_dtype, "partial_dtype"),
                               parse_dtype(out_dtype, "out_dtype"),
                               from_string<Activation>(activation),
                               std::move(call)};
          },
          "rows"_a, "columns"_a, "first"_a, "own"_a, "most"_a, "pushed"_a, "unsplit"_a, "exact"_a, "partial_dtype"_a,
          "out_dtype"_a, "activation"_a, "call"_a);
  nb::class_<KnownSums>(m, "KnownSums",
                        "Sums over ranks that were checked before, by what follows from their arguments.")
      .def(nb::init<>())
      .def("clear", &KnownSums::clear)
      .def(
          "add",
          [](KnownSums& known, const nb::object& places, const SumForm& form, nb::handle a, nb::handle b,
             nb::handle scale_a, nb::handle scale_b, nb::handle bias, nb::handle c, nb::handle scale_d,
             nb::handle activation, nb::handle out_dtype, nb::handle partial_dtype, nb::handle order,
             nb::handle transport) {
            known.add(places, form, {a, b, scale_a, scale_b, bias, c, scale_d},
                      {activation, out_dtype, partial_dtype, order, transport});
          },
          "places"_a, "form"_a, "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(), "bias"_a.none(), "c"_a.none(),
          "scale_d"_a.none(), "activation"_a, "out_dtype"_a.none(), "partial_dtype"_a.none(), "order"_a, "transport"_a,
          "Calls like this one are of this form, through these places.")
      .def(
          "run",
          [](const KnownSums& known, nb::handle a, nb::handle b, nb::handle scale_a, nb::handle scale_b,
             nb::handle bias, nb::handle c, nb::handle scale_d, nb::handle activation, nb::handle out_dtype,
             nb::handle partial_dtype, nb::handle order, nb::handle transport, nb::handle precision,
             bool use_fast_accum) {
            return known.run({a, b, scale_a, scale_b, bias, c, scale_d},
                             {activation, out_dtype, partial_dtype, order, transport}, precision, use_fast_accum);
          },
          "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(), "bias"_a.none(), "c"_a.none(), "scale_d"_a.none(),
          "activation"_a, "out_dtype"_a.none(), "partial_dtype"_a.none(), "order"_a, "transport"_a,
          "precision"_a.none(), "use_fast_accum"_a, "sum_over_ranks of such a call; None where none was like it.");
  m.def("kinds_of", &kinds_of,
        "What checks of tensors look at: dtypes, devices and sizes, as bytes; None is one, too.");
  m.def("sum_over_ranks", &sum_over_ranks, "places"_a, "form"_a, "a"_a, "b"_a, "scale_a"_a.none(), "scale_b"_a.none(),
        "bias"_a.none(), "c"_a.none(), "scale_d"_a.none(), "precision"_a.none(), "use_fast_accum"_a,
        "This rank's product, and the sum of all ranks' that it makes: a new [own, columns].");
}

}  // namespace cleave::python
