#include "precision.h"

#include <atomic>

namespace cleave::torch_ops {
namespace {

using AllowsTf32 = bool (*)(bool convolution);
std::atomic<AllowsTf32> allows_tf32 = nullptr;

}  // namespace

Precision current_precision(bool convolution) {
  const AllowsTf32 ask = allows_tf32.load(std::memory_order_relaxed);
  return (ask != nullptr ? ask(convolution) : convolution) ? Precision::tf32 : Precision::ieee;
}

}  // namespace cleave::torch_ops

/// For cleave.torch, which calls it by this name: whom to ask. May be called by any thread.
extern "C" __attribute__((visibility("default"))) void cleave_torch_follow_precision(bool (*ask)(bool convolution)) {
  cleave::torch_ops::allows_tf32.store(ask, std::memory_order_relaxed);
}
