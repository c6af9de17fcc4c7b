#include "inputs/epilogue.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "base/enumerators.h"
#include "call/parameters.h"
#include "call/values.h"
#include "cleave/core/saturate.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "operands/epilogue_operands.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

struct FunctionObject {
  const EpilogueFunction* function;
};

std::vector<std::pair<std::string, std::string>> inputs_of(const FunctionObject& self) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const auto& input : self.function->inputs()) list.emplace_back(input.name, enumerator_name(input.shape));
  return list;
}

std::vector<std::string> outputs_of(const FunctionObject& self) {
  std::vector<std::string> list;
  for (const auto& output : self.function->outputs()) list.push_back(output.name);
  return list;
}

bool is_number(nb::handle value) {
  return PyNumber_Check(value.ptr()) && !nb::hasattr(value, "__dlpack__") &&
         !nb::hasattr(value, "__cuda_array_interface__");
}

/// Invalid where there is none.
nb::object attribute(nb::handle of, PyObject* name) {
  nb::object found = nb::steal(PyObject_GetAttr(of.ptr(), name));
  if (!found.is_valid()) PyErr_Clear();
  return found;
}

/// A function with its inputs, if it is not called with them: one that has none need not be.
nb::object bound(nb::handle epilogue) {
  static PyObject* const kInputs = PyUnicode_InternFromString("inputs");
  const bool is_bound = attribute(epilogue, kInputs).is_valid();
  return is_bound ? nb::borrow(epilogue) : nb::borrow(epilogue)();
}

}  // namespace

std::string backward_of(nb::handle epilogue) {
  static PyObject* const kBackward = PyUnicode_InternFromString("backward");
  if (!python::given(epilogue)) return {};
  const nb::object text = attribute(bound(epilogue), kBackward);
  return nb::isinstance<nb::str>(text) ? nb::cast<std::string>(text) : std::string();
}

nb::handle first_output(nb::handle out) {
  return out.is_valid() && PyTuple_Check(out.ptr()) && nb::len(out) > 0 ? PyTuple_GetItem(out.ptr(), 0) : out;
}

EpilogueArguments::EpilogueArguments(nb::handle epilogue, nb::handle out) {
  outs_[0] = out;
  if (!python::given(epilogue)) return;
  static PyObject* const kFunction = PyUnicode_InternFromString("function");
  static PyObject* const kInputs = PyUnicode_InternFromString("inputs");
  const nb::object function = attribute(epilogue, kFunction);
  if (!function.is_valid() || !nb::isinstance<FunctionObject>(function)) {
    refuse_type("epilogue must be a function made by @cleave.epilogue, called with its inputs, got {}",
                class_name(epilogue));
  }
  inputs_ = attribute(epilogue, kInputs);
  // A function is called with its inputs; one that has none need not be.
  if (!inputs_.is_valid()) inputs_ = attribute(nb::borrow(epilogue)(), kInputs);
  function_ = nb::inst_ptr<FunctionObject>(function)->function;
  if (!PyTuple_Check(inputs_.ptr()) || nb::len(inputs_) != function_->inputs().size()) {
    refuse_value("epilogue has inputs {}; the function takes a tuple of {}", nb::repr(inputs_).c_str(),
                 function_->inputs().size());
  }
  if (!out.is_valid() || !PyTuple_Check(out.ptr())) return;
  const size_t outputs = 1 + outputs_beside_d();
  if (nb::len(out) != outputs) {
    refuse_value("out is a tuple of {}, but the epilogue function has {} outputs; pass an array for each, or None",
                 nb::len(out), outputs);
  }
  for (size_t i = 0; i < outputs; ++i) outs_[i] = nb::handle(PyTuple_GetItem(out.ptr(), Py_ssize_t(i)));
}

size_t EpilogueArguments::outputs_beside_d() const {
  return function_ == nullptr ? 0 : function_->outputs().size() - 1;
}

EpilogueTensors EpilogueArguments::empty_tensors() const {
  EpilogueTensors tensors;
  if (function_ == nullptr) return tensors;
  tensors.function = function_;
  tensors.inputs.resize(function_->inputs().size());
  tensors.outputs.resize(outputs_beside_d());
  return tensors;
}

std::optional<DType> EpilogueArguments::type_of_input(size_t number) const {
  const auto& [name, shape] = function_->inputs()[number];
  if (shape == InputShape::scalar && is_number(input(number))) return std::nullopt;
  return parse_dtype(input(number), name.c_str());
}

InputShape EpilogueArguments::shape_of_input(size_t number) const {
  return function_->inputs()[number].shape;
}

EpilogueTensors EpilogueArguments::read(TensorReader& reader) const {
  EpilogueTensors tensors = empty_tensors();
  if (function_ == nullptr) return tensors;
  const EpilogueFunction& function = *function_;
  for (size_t i = 0; i < function.inputs().size(); ++i) {
    const auto& [name, shape] = function.inputs()[i];
    const nb::handle value = PyTuple_GetItem(inputs_.ptr(), Py_ssize_t(i));
    if (shape == InputShape::scalar && is_number(value)) {
      tensors.inputs[i].number = parse_scalar(value, name.c_str());
    } else {
      tensors.inputs[i].tensor = reader.read(value, name.c_str());
    }
  }
  for (size_t i = 0; i < outputs_beside_d(); ++i) {
    if (python::given(out(i))) tensors.outputs[i] = reader.read_output(out(i), function.outputs()[i + 1].name.c_str());
  }
  return tensors;
}

EpilogueProblem EpilogueArguments::function_or(Activation activation) const {
  return epilogue_for(activation, function_);
}

void EpilogueArguments::place_types(GemmProblem& p) const {
  if (function_ == nullptr) return;
  const Placement d = d_of(p);
  const auto matrix = [&](InputShape shape, DType type) {
    return EpilogueLayout{.shape = shape,
                          .dtype = type,
                          .alignment = 16,
                          .stride = d.columns,
                          .stride_batch = d.batch > 1 ? saturating_product(d.rows, d.columns) : 0};
  };
  const auto line = [&](InputShape shape, DType type, uint32_t alignment, bool by_entry) {
    const int64_t length = shape == InputShape::row ? d.columns : shape == InputShape::column ? d.rows : 1;
    return EpilogueLayout{.shape = shape,
                          .dtype = type,
                          .alignment = uint8_t(alignment),
                          .stride = length > 1 ? 1 : 0,
                          .stride_batch = by_entry ? length : 0};
  };
  for (size_t i = 0; i < function_->inputs().size(); ++i) {
    const InputShape shape = shape_of_input(i);
    const std::optional<DType> given = type_of_input(i);
    const DType type = given.value_or(DType::f32);
    p.epilogue.inputs[i] =
        shape == InputShape::matrix ? matrix(shape, type) : line(shape, type, given ? size_of(type) : 1, false);
  }
  for (size_t i = 0; i < outputs_beside_d(); ++i) {
    const auto& output = function_->outputs()[i + 1];
    const DType type = output.dtype.value_or(p.d.dtype);
    p.epilogue.outputs[i] = output.shape == InputShape::matrix ? matrix(InputShape::matrix, type)
                                                               : line(output.shape, type, size_of(type), d.batch > 1);
  }
}

std::optional<DType> EpilogueArguments::type_of_d() const {
  return function_ == nullptr ? std::nullopt : function_->outputs()[0].dtype;
}

nb::object EpilogueArguments::results(const nb::object& d, const nb::object* made) const {
  const size_t count = outputs_beside_d();
  if (count == 0) return d;
  const nb::object results = nb::steal(PyTuple_New(Py_ssize_t(1 + count)));
  if (!results.is_valid()) throw nb::python_error();
  PyTuple_SetItem(results.ptr(), 0, nb::object(d).release().ptr());
  for (size_t i = 0; i < count; ++i) {
    const nb::object output = made[i].is_valid() ? made[i] : nb::borrow(out(i));
    PyTuple_SetItem(results.ptr(), Py_ssize_t(1 + i), nb::object(output).release().ptr());
  }
  return results;
}

void bind_epilogue(nb::module_& m) {
  nb::class_<FunctionObject>(m, "EpilogueFunction", "What an epilogue function does, as a graph of float32 operations.")
      .def(
          "__init__",
          [](FunctionObject* self, const std::string& text) { new (self) FunctionObject{&epilogue_function(text)}; },
          "text"_a, "As cleave/epilogue.h describes it.")
      .def_prop_ro(
          "text", [](const FunctionObject& self) { return self.function->text(); },
          "The function, one operation a line. Functions that do the same have equal texts.")
      .def_prop_ro(
          "gated", [](const FunctionObject& self) { return self.function->gates() != Gates::none; },
          "Whether it takes two sums for each element of D: acc.gate and acc.up, or acc.even and acc.odd.")
      .def_prop_ro("inputs", &inputs_of, "Names and shapes.")
      .def_prop_ro("outputs", &outputs_of, "Names, D's first.")
      .def(
          "__eq__",
          [](const FunctionObject& self, const FunctionObject& other) { return self.function == other.function; },
          nb::is_operator())
      .def("__hash__", [](const FunctionObject& self) { return std::hash<const void*>()(self.function); });
  nb::dict activations;
  for (const Activation activation : values_of<Activation>) {
    if (activation == Activation::none) continue;
    activations[std::string(to_string(activation)).c_str()] = epilogue_of(activation).function->text();
  }
  m.attr("activations") = activations;  // their functions' texts
  m.def(
      "check_activation", [](const std::string& name) { from_string<Activation>(name); }, "name"_a,
      "Raises ValueError, with the name that was meant, unless there is such an activation.");
}

}  // namespace cleave::python
