#include "conv_parameters.h"

#include <vector>

#include "errors.h"
#include "product.h"
#include "tensor.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

/// A tuple's, a list's or the like; nothing of anything else.
std::optional<std::vector<nb::object>> items_of(nb::handle value) {
  if (PyUnicode_Check(value.ptr()) || !PySequence_Check(value.ptr())) return std::nullopt;
  const Py_ssize_t size = PySequence_Size(value.ptr());
  if (size < 0) throw nb::python_error();
  std::vector<nb::object> items;
  for (Py_ssize_t i = 0; i < size; ++i) {
    items.push_back(nb::steal(PySequence_GetItem(value.ptr(), i)));
    if (!items.back().is_valid()) throw nb::python_error();
  }
  return items;
}

/// One for each axis: of a single one, or of what is no sequence, `axes` times the same.
std::vector<nb::object> spread(nb::handle value, const char* name, int axes) {
  auto items = items_of(value).value_or(std::vector{nb::borrow(value)});
  if (items.size() == 1) items.resize(axes, items[0]);
  if (items.size() == size_t(axes)) return items;
  refuse_value("{} has {} values; pass one, or one for each of the {} axes", name, items.size(), axes);
}

void parse_padding(nb::handle value, int axes, ConvOptions& options) {
  if (PyUnicode_Check(value.ptr())) {
    const auto is = [&](const char* text) { return PyUnicode_CompareWithASCIIString(value.ptr(), text) == 0; };
    options.same = is("same");
    if (!options.same && !is("valid")) {
      refuse_value("padding is {}; it must be \"same\", \"valid\" or numbers", nb::repr(value).c_str());
    }
    return;
  }
  constexpr const char* kExpected = "an integer, or for each axis one or a pair (before, after)";
  const std::vector<nb::object> items = spread(value, "padding", axes);
  for (int i = 0; i < axes; ++i) {
    const auto pair = items_of(items[i]).value_or(std::vector{items[i], items[i]});
    if (pair.size() != 2) {
      refuse_value("padding of an axis has {} values; pass one, or a pair (before, after)", pair.size());
    }
    options.pad_begin[i] = parse_integer(pair[0], "padding", kExpected);
    options.pad_end[i] = parse_integer(pair[1], "padding", kExpected);
  }
}

}  // namespace

AxisNumbers parse_numbers(nb::handle value, const char* name, int axes) {
  const std::vector<nb::object> items = spread(value, name, axes);
  AxisNumbers numbers{};
  for (int i = 0; i < axes; ++i) {
    numbers[i] = parse_integer(items[i], name, "an integer, or one for each axis");
  }
  return numbers;
}

Extents parse_size(nb::handle value, const char* name, int axes) {
  const auto items = items_of(value);
  if (!items) refuse_type("{} must be a shape, got {}", name, class_name(value));
  if (items->size() != size_t(axes) + 2) {
    refuse_value("{} has {} numbers; it must have {}", name, items->size(), axes + 2);
  }
  Extents size{};
  for (size_t i = 0; i < items->size(); ++i) {
    size[i] = parse_integer((*items)[i], name, "a shape of integers");
  }
  return size;
}

Conv arg::Kind::parse(nb::handle value) {
  const Conv kind = parse_name<Conv>(value, name());
  if (kind == Conv::none) {
    refuse_value("kind is \"none\"; it must be \"fprop\", \"dgrad\" or \"wgrad\"");
  }
  return kind;
}

ConvOptions parse_conv_options(Conv kind, int axes, const ConvArguments& arguments, const ProductArguments& product) {
  ConvOptions options{.kind = kind, .axes = axes};
  options.stride = parse_numbers(arguments.get<arg::Stride>(), "stride", axes);
  parse_padding(arguments.get<arg::Padding>(), axes, options);
  options.dilation = parse_numbers(arguments.get<arg::Dilation>(), "dilation", axes);
  arguments.read<arg::Groups>(options.groups);
  arguments.read<arg::Division>(options.division);
  arguments.read<arg::Activation>(options.activation);
  arguments.read<arg::OutDtype>(options.d_type);
  options.plan = parse_plan_options(product);
  return options;
}

}  // namespace cleave::python
