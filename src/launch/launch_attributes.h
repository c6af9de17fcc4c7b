// What a launch asks of the driver beside its sizes.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cleave/config/arch_traits.h"

namespace cleave {

/// Whether launches may begin before the stream's previous kernel has ended (the kernels wait for it
/// themselves, by griddepcontrol): from sm_90 on, and with drivers whose graphs can hold such an edge,
/// from CUDA 12.3 on. `compute_capability`: 90 for sm_90.
constexpr bool launches_overlap(int compute_capability, int driver_version) {
  return arch_traits(compute_capability).has_overlap && driver_version >= 12030;
}

struct LaunchAttributes {
  CUlaunchAttribute list[3] = {};
  unsigned count = 0;

  CUlaunchAttributeValue& add(CUlaunchAttributeID id) {
    list[count].id = id;
    return list[count++].value;
  }
};

/// `cluster`: CTAs; 1 is no cluster launch. `overlaps`: see above. `cooperative`: all CTAs are resident
/// together, or the launch fails: for those that wait for each other.
inline LaunchAttributes launch_attributes(uint32_t cluster, bool overlaps, bool cooperative) {
  LaunchAttributes attributes;
  if (cluster > 1) attributes.add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {cluster, 1, 1};
  if (overlaps) {
    attributes.add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).programmaticStreamSerializationAllowed = 1;
  }
  if (cooperative) attributes.add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  return attributes;
}

}  // namespace cleave
