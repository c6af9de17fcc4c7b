// The one exception type of the library.
#pragma once

#include <stdexcept>
#include <string>

#include "cleave/core/api.h"

namespace cleave {

enum class ErrorCode {
  invalid_argument,  ///< shapes, strides, values: Python's ValueError
  invalid_type,      ///< unsupported or mismatched dtypes: Python's TypeError
  unsupported,       ///< valid, but no kernel serves it on this device: Python's ValueError
  no_device,         ///< a GPU was asked for and there is none: cleave.CudaError
  driver,            ///< a CUDA driver call failed: cleave.CudaError
  compiler,          ///< NVRTC is missing or refused a kernel: cleave.CudaError
  capture,           ///< a compile or allocation was needed while a stream was capturing: cleave.CudaError
  peer,              ///< another rank is lost, or in another call: cleave.PeerError
};

/// `what()` names the argument, the value seen and the remedy.
class CLEAVE_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace cleave
