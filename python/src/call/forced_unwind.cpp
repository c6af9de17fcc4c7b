// Threads that Python ends in the middle of a call.
//
// Before Python 3.14, a daemon's thread that wants the global lock while the interpreter shuts down is ended by
// pthread_exit, which unwinds its stack by force. That may be anywhere in a call: where work without the lock is over,
// where Python's code makes or reads an array, where an object is released. C++ frames cannot stand it: what they own
// would be released without the lock, functions that must not throw would abort, and nanobind would read the unwinding
// as an exception. From 3.14 on such a thread sleeps until the process is gone. Here it does so before, too.
//
// The unwinder asks the personality routine of a frame what the frame has to clean up. The linker puts this routine in
// the place of C++'s for all frames of the module, nanobind's among them (cmake/python.cmake), so a thread stops before
// the first of them is left.
#include <Python.h>
#include <unistd.h>
#include <unwind.h>

#include "call/beyond_stable_abi.h"

namespace {

// Older than Python 3.13's Py_IsFinalizing is a function of the same kind. Found when the module is loaded: while a
// thread is unwound there is no looking for names.
int (*const found)() = cleave::python::exported_by_python<int()>("Py_IsFinalizing");
int (*const python_shuts_down)() = found ? found : cleave::python::exported_by_python<int()>("_Py_IsFinalizing");

}  // namespace

extern "C" {

_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* frame);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* frame) {
  if ((actions & _UA_FORCE_UNWIND) && python_shuts_down && python_shuts_down()) {
    for (;;) pause();
  }
  return __real___gxx_personality_v0(version, actions, kind, exception, frame);
}
}
