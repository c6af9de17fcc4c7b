// Work without Python's global lock.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace cleave::python {

/// Other Python threads may run while it lives: nothing of Python's may be touched.
///
/// nb::gil_scoped_release aborts the process at exit. Before Python 3.14, a thread that wants the
/// lock back while the interpreter shuts down is ended by unwinding its stack, which C++ frames
/// that must not throw answer with std::terminate. Such a thread is a daemon's, for which nobody
/// waits: here it sleeps until the process is gone, as it does from 3.14 on.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      for (;;) pause();
    }
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace cleave::python
