// A Spec worked out for one problem on one device: the kernel's configuration, its schedule, its
// launch.
#pragma once

#include <cstddef>
#include <optional>

#include "cleave/config/gemm_config.h"
#include "cleave/device.h"
#include "cleave/gemm.h"
#include "cleave/schedule/schedule.h"
#include "plan/choice/likely_steps.h"
#include "plan/choice/spec.h"

namespace cleave {

struct Choice {
  Spec spec;
  GemmProblem problem;    ///< as the kernel sees it: transposed, or no convolution, if the spec says so
  int64_t rows_of_d = 0;  ///< of which a class of pixels has a part
  GemmConfig config;
  uint32_t part = 0, parts = 1;  ///< of a convolution's classes, or groups: this launch's, of so many launches
  ScheduleShape schedule;
  double tiles = 0;                          ///< of D; where only the GPU knows, how many to expect,
  Likely likely_tiles;                       ///< and how many there may be
  uint32_t most_tiles = 0;                   ///< and at most
  uint32_t blocks = 0;                       ///< of the grid
  uint32_t row_units = 0, column_units = 0;  ///< of which reductions of D have partial results (config/reductions.h)
  size_t counter_bytes = 0;                  ///< a multiple of 16
  size_t partial_bytes = 0;
  size_t map_bytes = 0;        ///< behind the partial tiles
  size_t reduction_bytes = 0;  ///< behind the maps: partial results of what D is reduced to
  size_t apart_bytes = 0;      ///< behind those: D as the product leaves it, where another kernel quantises it
  double predicted_us = 0;     ///< of candidates(); others do without

  size_t workspace_bytes() const { return counter_bytes + partial_bytes + map_bytes + reduction_bytes + apart_bytes; }
};

/// Nothing if the spec's kernel cannot serve the problem: alignment, layout, dtype, shared memory,
/// architecture. Slices beyond one K block each are reduced to that.
/// `part`: of a convolution's classes.
std::optional<Choice> make_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec,
                                  uint32_t part = 0);

}  // namespace cleave
