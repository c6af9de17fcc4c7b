#include "module/errors.h"

#include "module/bindings.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

PyObject *cuda_error = nullptr, *peer_error = nullptr;  // they live as long as the process

PyObject* exception_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_type:
      return PyExc_TypeError;
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
      return PyExc_ValueError;
    case ErrorCode::no_device:
    case ErrorCode::driver:
    case ErrorCode::compiler:
    case ErrorCode::capture:
      break;
    case ErrorCode::peer:
      return peer_error;
  }
  return cuda_error;
}

PyObject* new_error(nb::module_& m, const char* name, const char* doc) {
  PyObject* const made = PyErr_NewExceptionWithDoc(name, doc, PyExc_RuntimeError, nullptr);
  if (!made) throw nb::python_error();
  m.attr(nb::handle(made).attr("__name__")) = nb::handle(made);
  return made;
}

}  // namespace

std::string class_name(nb::handle object) {
  const nb::handle type = object.type();
  const std::string module = nb::str(type.attr("__module__")).c_str();
  const std::string name = nb::str(type.attr("__qualname__")).c_str();
  return module == "builtins" || module == "__main__" ? name : module + "." + name;
}

void bind_errors(nb::module_& m) {
  cuda_error = new_error(m, "cleave.CudaError",
                         "No usable GPU, a failed driver call or compilation, or a forbidden one during capture.");
  peer_error = new_error(m, "cleave.distributed.PeerError",
                         "Ranks of a group disagree about a call; or one has died, or has not come in time.");

  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      PyErr_SetString(exception_for(e.code()), e.what());
    }
  });
}

}  // namespace cleave::python
