// Errors on their way to torch, which catches those of libstdc++. A build with another C++ library, as the wheels are,
// throws what torch would not know, so there they become libstdc++'s at the boundary.
#pragma once

#include <torch/csrc/stable/library.h>

#include <exception>
#include <string>

namespace cleave::torch_ops {

using BoxedFunction = void (*)(StableIValue* stack, uint64_t inputs, uint64_t outputs);

#ifdef _LIBCPP_VERSION

/// libstdc++'s std::__throw_runtime_error, which libtorch.so brings.
[[noreturn]] void throw_runtime_error_of_libstdcxx(const char* what) asm("_ZSt21__throw_runtime_errorPKc");

template <BoxedFunction kFunction>
void with_errors_of_torch(StableIValue* stack, uint64_t inputs, uint64_t outputs) {
  std::string what;
  try {
    return kFunction(stack, inputs, outputs);
  } catch (const std::exception& error) {
    what = error.what();
  }
  throw_runtime_error_of_libstdcxx(what.c_str());
}

#else

template <BoxedFunction kFunction>
constexpr BoxedFunction with_errors_of_torch = kFunction;

#endif

}  // namespace cleave::torch_ops
