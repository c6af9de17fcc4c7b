#include "array/tensor.h"

#include <nanobind/stl/pair.h>

#include <algorithm>
#include <string>
#include <utility>

#include "array/interface.h"
#include "array/stream.h"
#include "call/values.h"
#include "cleave/core/saturate.h"
#include "module/errors.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

int device_of(dlpack::Device device, const char* name) {
  switch (device.type) {
    case dlpack::kHost:
    case dlpack::kCudaPinned:
      return kCpu;
    case dlpack::kCuda:
    case dlpack::kCudaManaged:
      return device.id;
    default:
      refuse_value("{} is on a device of DLPack type {}; move it to the CPU or to a CUDA device", name, device.type);
  }
}

void assign(const dlpack::Tensor& tensor, const char* name, TensorView& view) {
  view.data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  set_element(view, tensor.dtype);
  view.device = device_of(tensor.device, name);
  view.ndim = tensor.ndim;
  if (tensor.ndim > TensorView::kMaxRank) return;
  if (tensor.ndim > 0 && !tensor.shape)
    refuse_value("{} has {} dimensions, but no shape; pass another", name, tensor.ndim);
  int64_t packed = 1;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    view.shape[i] = tensor.shape[i];
    view.stride[i] = tensor.strides ? tensor.strides[i] : packed;
    packed = saturating_product(packed, tensor.shape[i]);
  }
}

/// The first line of what an exception says; torch appends a C++ stack.
std::string first_line(const nb::python_error& error) {
  std::string text = nb::str(error.value()).c_str();
  return text.substr(0, text.find('\n'));
}

/// Interrupts and exits pass; an Exception only says that this way of reading does not work.
void rethrow_unless_exception(nb::python_error& error) {
  if (!error.matches(PyExc_Exception)) throw nb::python_error(std::move(error));
}

/// A framework's current stream; the legacy default stream where it has none.
void* current_stream(const ArrayType& type, int device) {
  void* stream = nullptr;
  if (type.exchange) {
    if (type.exchange->current_stream(dlpack::kCuda, device, &stream) != 0) throw nb::python_error();
  } else if (!type.current_stream.is_none()) {
    stream = parse_stream(type.current_stream(device)).value_or(nullptr);
  }
  return stream;
}

/// There is no autograd formula, and a result that silently has no gradient would be a trap.
void refuse_gradients(nb::handle array, nb::handle requires_grad, const char* name) {
  const auto get = reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(requires_grad.ptr()), Py_tp_descr_get));
  const nb::object required = nb::steal(get(requires_grad.ptr(), array.ptr(), array.type().ptr()));
  if (!required.is_valid()) throw nb::python_error();
  if (required.ptr() != Py_True) return;
  if (!nb::cast<bool>(nb::module_::import_("torch").attr("is_grad_enabled")())) return;
  refuse_value(
      "{0} requires grad, but the result would have no gradient; call torch.ops.cleave or cleave.torch, or use "
      "torch.no_grad() or pass {0}.detach()",
      name);
}

/// Nor has it a tangent, which torch's forward mode would miss without a word. Outside of that mode no array is asked.
void refuse_tangents(nb::handle array, nb::handle forward_ad, const char* name) {
  static PyObject* const attribute = PyUnicode_InternFromString("_current_level");
  const nb::object level = nb::steal(PyObject_GetAttr(forward_ad.ptr(), attribute));
  if (!level.is_valid()) throw nb::python_error();
  if (nb::cast<int64_t>(level) < 0 || forward_ad.attr("unpack_dual")(array).attr("tangent").is_none()) return;
  refuse_value(
      "{0} has a tangent, but the result would have none; multiply with torch.ops.cleave or cleave.torch, or pass "
      "torch.autograd.forward_ad.unpack_dual({0}).primal",
      name);
}

/// Whether it may be one part of complex numbers, between whose elements the other part lies: no stride is odd. Views
/// by as_strided, or torch's private _neg_view, of something else may lie anyhow: they are not looked for.
bool may_be_part_of_complex(const TensorView& view) {
  if (view.element.code != dlpack::kFloat) return false;
  for (int i = 0; i < std::min(view.ndim, TensorView::kMaxRank); ++i)
    if (view.shape[i] > 1 && view.stride[i] % 2 != 0) return false;
  return true;
}

/// Whose sign is a bit beside the data (`z.conj().imag`), which no address shows. Only parts of complex numbers have
/// it: asking every tensor would be a tenth of a call.
void refuse_negated(nb::handle array, const TensorView& view, const char* name) {
  if (!may_be_part_of_complex(view)) return;
  static PyObject* const method = PyUnicode_InternFromString("is_neg");
  PyObject* const self = array.ptr();
  const nb::object negated = nb::steal(PyObject_VectorcallMethod(method, &self, 1, nullptr));
  if (!negated.is_valid()) throw nb::python_error();
  if (negated.ptr() != Py_True) return;
  refuse_value("{0} is a lazily negated view, whose data have the other sign; pass {0}.resolve_neg()", name);
}

}  // namespace

nb::tuple tuple_of(Shape shape) {
  nb::tuple tuple = nb::steal<nb::tuple>(PyTuple_New(Py_ssize_t(shape.size())));
  if (!tuple.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < shape.size(); ++i)
    PyTuple_SetItem(tuple.ptr(), Py_ssize_t(i), nb::int_(shape[i]).release().ptr());
  return tuple;
}

const ArrayType& TensorReader::type_of(nb::handle array) {
  if (!type_ || !type_->type.is(array.type())) type_ = array_type_of(array);
  return *type_;
}

TensorReader::TensorReader(nb::handle stream) : stream_(parse_stream(stream)), stream_given_(stream_.has_value()) {}

void* TensorReader::settle_stream(const ArrayType& type, int device) {
  if (!stream_) stream_ = current_stream(type, device);
  return *stream_;
}

bool TensorReader::leaves_current_stream(const ArrayType& type, int device) const {
  return stream_given_ && device != kCpu && current_stream(type, device) != *stream_;
}

bool TensorReader::read_exchange(nb::handle array, const char* name, TensorView& view) {
  const ArrayType& type = type_of(array);
  if (!type.exchange) return false;
  dlpack::Tensor tensor;
  if (type.exchange->view(array.ptr(), &tensor) != 0) {
    nb::python_error error;
    rethrow_unless_exception(error);
    refuse_type("{} cannot be read as a dense array: {}", name, first_line(error));
  }
  assign(tensor, name, view);
  if (!type.requires_grad.is_none()) {
    refuse_gradients(array, type.requires_grad, name);
    refuse_tangents(array, type.forward_ad, name);
    refuse_negated(array, view, name);
  }
  if (view.device != kCpu) settle_stream(type, view.device);
  return true;
}

bool TensorReader::read_dlpack(nb::handle array, const char* name, TensorView& view) {
  nb::object method = nb::getattr(array, "__dlpack__", nb::none());
  if (method.is_none() || PyType_Check(array.ptr())) return false;

  nb::dict keywords;
  std::pair<int, int> place;
  if (!nb::try_cast(array.attr("__dlpack_device__")(), place)) {
    refuse_type("{}.__dlpack_device__() is not a pair of integers", name);
  }
  const int device = device_of({place.first, place.second}, name);
  if (device != kCpu) {
    // The producer orders its work before the stream named here. In this protocol 1 is the legacy
    // default stream.
    const auto stream = uintptr_t(settle_stream(type_of(array), device));
    keywords["stream"] = stream ? stream : 1;
  }
  nb::object capsule;
  keywords["max_version"] = nb::make_tuple(1, 0);
  try {
    capsule = method(**keywords);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // producers older than DLPack 1.0 refuse the keyword
    PyDict_DelItemString(keywords.ptr(), "max_version");
    capsule = method(**keywords);
  }

  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    const auto* versioned =
        static_cast<dlpack::VersionedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (versioned->version.major != 1) return false;
    assign(versioned->tensor, name, view);
    view.readonly = versioned->flags & dlpack::kReadOnly;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    assign(static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"))->tensor, name, view);
  } else {
    return false;
  }
  owners_.push_back(std::move(capsule));  // unmarked: its destructor gives the memory back
  return true;
}

bool TensorReader::read_interface(nb::handle array, const char* name, bool cuda, TensorView& view) {
  nb::object fields = nb::getattr(array, cuda ? "__cuda_array_interface__" : "__array_interface__", nb::none());
  if (!PyDict_Check(fields.ptr())) return false;
  assign_interface(fields, array, name, view);
  if (!cuda) return true;

  view.device = pointer_device(view.data);
  const std::optional<void*> produced_on = parse_stream(interface_field(fields, "stream"));
  if (!stream_ && produced_on) stream_ = produced_on;
  if (produced_on && *produced_on != *stream_) synchronize(view.device, *produced_on);
  settle_stream(type_of(array), view.device);
  return true;
}

TensorView TensorReader::read(nb::handle array, const char* name) {
  const TensorView view = read_as_it_can(array, name);
  if (stream_given_ && view.device != kCpu) {
    const ArrayType& type = type_of(array);
    if (!type.record_stream.is_none() && leaves_current_stream(type, view.device))
      type.record_stream(array, uintptr_t(*stream_), view.device);
  }
  return view;
}

TensorView TensorReader::read_as_it_can(nb::handle array, const char* name) {
  TensorView view;
  if (read_exchange(array, name, view)) return view;
  std::string reason;
  try {
    if (read_dlpack(array, name, view)) return view;
  } catch (nb::python_error& error) {
    rethrow_unless_exception(error);
    reason = fmt::format(" (__dlpack__ says: {})", first_line(error));
  }
  if (read_interface(array, name, true, view) || read_interface(array, name, false, view)) return view;
  refuse_type("{} must be an array of torch, NumPy, CuPy, JAX or another library with DLPack, got {}{}", name,
              class_name(array), reason);
}

TensorView TensorReader::read_output(nb::handle array, const char* name) {
  const TensorView view = read(array, name);
  const ArrayType& type = type_of(array);
  if (view.readonly || type.immutable) {
    refuse_value("{0} is read-only; pass an array that can be written, or no {0}", name);
  }
  if (!type.increment_version.is_none()) {
    outputs_.at(output_count_++) = array;
    increment_version_ = type.increment_version;
  }
  return view;
}

nb::object TensorReader::make(nb::object ArrayType::* empty, nb::handle like, Shape shape, DType dtype, int device,
                              const char* needed) {
  const ArrayType& type = type_of(like);
  const nb::object& make = type.*empty;
  if (make.is_none()) {
    refuse_value("the result for a {} needs {}: only torch, NumPy, CuPy and JAX arrays can be made here",
                 class_name(like), needed);
  }
  if (type.on_stream.is_none() || !leaves_current_stream(type, device))
    return make(like, tuple_of(shape), dtype_name(dtype));
  return type.on_stream(uintptr_t(*stream_), device, make, like, tuple_of(shape), dtype_name(dtype));
}

void TensorReader::mark_written() const {
  if (output_count_ == 0) return;
  const nb::object arrays = nb::steal(PyTuple_New(Py_ssize_t(output_count_)));
  if (!arrays.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < output_count_; ++i) PyTuple_SetItem(arrays.ptr(), Py_ssize_t(i), outputs_[i].inc_ref().ptr());
  increment_version_(arrays);
}

}  // namespace cleave::python
