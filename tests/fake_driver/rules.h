// What the driver asks of launches and of tensor maps, as its manual has it: whoever breaks a rule gets
// CUDA_ERROR_INVALID_VALUE, as on a GPU.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace fake_driver {

inline bool is_launchable(const CUlaunchConfig& launch) {
  uint32_t cluster = 1;
  for (unsigned i = 0; i < launch.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = launch.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = attribute.value.clusterDim.x;
  }
  const auto within = [](unsigned size, unsigned most) { return size >= 1 && size <= most; };
  return within(launch.gridDimX, INT32_MAX) && within(launch.gridDimY, 65535) && within(launch.gridDimZ, 65535) &&
         within(launch.blockDimX * launch.blockDimY * launch.blockDimZ, 1024) && within(cluster, 16) &&
         launch.gridDimX % cluster == 0 && launch.sharedMemBytes <= 227 << 10;
}

inline size_t size_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    default:
      return 4;
  }
}

/// A box's line of so many elements.
inline bool is_line(CUtensorMapDataType type, uint32_t elements, CUtensorMapSwizzle swizzle) {
  const size_t bytes = elements * size_of(type);
  const size_t most = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 128
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                                                             : SIZE_MAX;
  return elements >= 1 && elements <= 256 && bytes % 16 == 0 && bytes <= most;
}

inline bool is_tensor(uint32_t rank, const void* address, const cuuint64_t* size, const cuuint64_t* stride,
                      const cuuint32_t* step) {
  bool good = rank >= 1 && rank <= 5 && reinterpret_cast<uintptr_t>(address) % 16 == 0;
  for (uint32_t i = 0; good && i < rank; ++i) {
    good = size[i] >= 1 && size[i] <= uint64_t(1) << 32 && step[i] >= 1 && step[i] <= 8;
    if (i > 0) good = good && stride[i - 1] % 16 == 0 && stride[i - 1] < uint64_t(1) << 40;
  }
  return good;
}

/// The corners of an im2col box, along all axes but channels and images.
inline bool are_corners(uint32_t rank, const int* lower, const int* upper) {
  if (rank < 3) return false;
  const int reach = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
  bool good = true;
  for (uint32_t i = 0; i + 2 < rank; ++i)
    good = good && lower[i] >= -reach && lower[i] < reach && upper[i] >= -reach && upper[i] < reach;
  return good;
}

}  // namespace fake_driver
