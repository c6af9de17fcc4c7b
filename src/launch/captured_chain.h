// Which captured launches may begin before the one ahead of them has ended.
//
// An edge of a graph that allows it brings 0.9 us where the kernel ahead lets go early, as the library's do, and
// costs 0.2 us where it does not (an H200). So a captured launch has such an edge only right behind another of the
// library's, or if it has something to do meanwhile; in a stream that is not captured, where it brings 0.6 us behind
// any kernel, always.
#pragma once

#include <cuda.h>

namespace cleave {

/// What a stream's next launch follows, if it is captured.
struct CapturePoint {
  unsigned long long capture = 0;  ///< its number; 0: not captured
  CUgraphNode last = nullptr;      ///< what the launch depends on, if that is one node

  friend bool operator==(const CapturePoint&, const CapturePoint&) = default;
};

/// The launch that this thread captured last.
inline thread_local CapturePoint last_captured;

/// Whether a launch there may overlap what is ahead.
inline bool may_overlap(const CapturePoint& point) {
  return point.capture == 0 || (point.last != nullptr && point == last_captured);
}

/// Launches by `launch(overlaps)`. `can_overlap`: the kernel waits for what is ahead by itself; `loads_early`: but not
/// with all of its loads; `find_point()`: where its stream's capture is.
template <class FindPoint, class Launch>
auto launch_in_chain(bool can_overlap, bool loads_early, const FindPoint& find_point, const Launch& launch) {
  if (!can_overlap) return launch(false);
  const CapturePoint point = find_point();
  const auto result = launch(loads_early || may_overlap(point));
  if (point.capture != 0) last_captured = find_point();
  return result;
}

}  // namespace cleave
