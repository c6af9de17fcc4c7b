// A kernel of the operation, and how it was planned. config.h has one for each architecture.
#pragma once

#include <cuda.h>

#include "cleave/config/gemm_config.h"
#include "launch/gemm_grid.h"

namespace emitted::operation {

struct Kernel {
  const char* arch;  ///< "sm_80"
  int major;         ///< of the compute capability that runs it
  bool any_minor;    ///< else that of `major`.0 alone
  const cleave::GemmConfig& config;
  /// It computes D^T = B^T A^T: what it calls A is our B, its rows are our columns.
  bool transposed;
  /// The kernel of a second launch, for the rows of a packed weight that whole waves of the kernel before it leave.
  bool of_rest;
  /// Slices of K that a tile has. stream_k: CTAs that share a tile, 1 for all that the GPU has.
  uint32_t slices;
  /// Tiles times slices.
  uint64_t units;
  /// The compiled kernels: this one, and the one that joins its partial results where D is reduced. nullptr where nvcc
  /// has linked them.
  const void* image;
  const void* reduce_image;
};

/// The kernel that GPUs of this compute capability run, or that of their second launch; nullptr where there is none.
const Kernel* find_kernel(int major, int minor, bool of_rest);

struct LoadedKernel {
  CUfunction function = nullptr;
  CUmodule module = nullptr;  ///< of an image
};

/// Loads it into the current context.
LoadedKernel load(const Kernel& kernel);
/// The one that joins its partial results, where D is reduced.
LoadedKernel load_reduce(const Kernel& kernel);

/// Slices of K for so many tiles: as planned, but a k block each, and, the more tiles there are, the
/// fewer, since tiles alone then fill the GPU.
uint32_t find_slices(const Kernel& kernel, const cleave::GemmTiles& tiles, uint32_t num_sms);

}  // namespace emitted::operation
