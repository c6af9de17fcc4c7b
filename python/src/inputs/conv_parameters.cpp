#include "inputs/conv_parameters.h"

#include <array>
#include <optional>

#include "array/tensor.h"
#include "call/values.h"
#include "inputs/options.h"
#include "module/errors.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

/// A tuple's length, or a list's or the like; nothing for anything else.
std::optional<size_t> length_of(nb::handle value) {
  if (PyUnicode_Check(value.ptr()) || !PySequence_Check(value.ptr())) return std::nullopt;
  const Py_ssize_t length = PySequence_Size(value.ptr());
  if (length < 0) throw nb::python_error();
  return size_t(length);
}

nb::object item_of(nb::handle sequence, size_t i) {
  nb::object item = nb::steal(PySequence_GetItem(sequence.ptr(), Py_ssize_t(i)));
  if (!item.is_valid()) throw nb::python_error();
  return item;
}

/// One for each axis: of a single one, or of what is no sequence, the same for all.
std::array<nb::object, 3> spread(nb::handle value, const char* name, int axes) {
  const std::optional<size_t> length = length_of(value);
  if (length.value_or(1) != 1 && *length != size_t(axes)) {
    refuse_value("{} has {} values; pass one, or one for each of the {} axes", name, *length, axes);
  }
  std::array<nb::object, 3> items;
  for (int i = 0; i < axes; ++i) items[i] = length ? item_of(value, *length == 1 ? 0 : i) : nb::borrow(value);
  return items;
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
  const auto items = spread(value, "padding", axes);
  for (int i = 0; i < axes; ++i) {
    const std::optional<size_t> length = length_of(items[i]);
    if (length.value_or(2) != 2) {
      refuse_value("padding of an axis has {} values; pass one, or a pair (before, after)", *length);
    }
    options.pad_begin[i] = parse_integer(length ? item_of(items[i], 0) : items[i], "padding", kExpected);
    options.pad_end[i] = parse_integer(length ? item_of(items[i], 1) : items[i], "padding", kExpected);
  }
}

}  // namespace

AxisNumbers parse_numbers(nb::handle value, const char* name, int axes) {
  const auto items = spread(value, name, axes);
  AxisNumbers numbers{};
  for (int i = 0; i < axes; ++i) {
    numbers[i] = parse_integer(items[i], name, "an integer, or one for each axis");
  }
  return numbers;
}

Extents parse_size(nb::handle value, const char* name, int axes) {
  const std::optional<size_t> length = length_of(value);
  if (!length) refuse_type("{} must be a shape, got {}", name, class_name(value));
  if (*length != size_t(axes) + 2) refuse_value("{} has {} numbers; it must have {}", name, *length, axes + 2);
  Extents size{};
  for (size_t i = 0; i < *length; ++i) size[i] = parse_integer(item_of(value, i), name, "a shape of integers");
  return size;
}

Conv arg::Kind::parse(nb::handle value) {
  const Conv kind = parse_name<Conv>(value, name());
  if (kind == Conv::none) {
    refuse_value("kind is \"none\"; it must be one of fprop, dgrad, wgrad");
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
