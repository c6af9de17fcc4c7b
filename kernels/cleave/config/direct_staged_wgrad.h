// Weight gradients of narrow groups by multiply-adds, line by line from shared memory (direct/staged_wgrad.h): what of
// the images lies there.
#pragma once

#include "cleave/config/direct_work.h"

namespace cleave {

/// Gathered lines that the taps of a line of outputs meet, or that lie before the next line's, if those are more.
CLEAVE_HD constexpr uint32_t staged_reach(const GemmConfig& c) {
  return max_of((c.direct.height.taps - 1) * c.direct.height.dilation + 1, c.direct.height.stride);
}

/// Pixels of a gathered line: from a strip to its neighbour's, and that both meet. Strips beside each other share what
/// lies between them; images' lines follow each other, each with its ends, if all of its `strips` are met.
CLEAVE_HD constexpr uint32_t staged_step(const GemmConfig& c) {
  return c.tile.m * c.direct.width.stride;
}
CLEAVE_HD constexpr uint32_t staged_shared(const GemmConfig& c) {
  return gathered_span(Conv::wgrad, c.direct.width, c.tile.m).size() - staged_step(c);
}
CLEAVE_HD constexpr uint32_t staged_image_line(const GemmConfig& c, uint32_t strips) {
  return strips * staged_step(c) + staged_shared(c);
}

/// So many a CTA's places meet, at most (`direct.pixels`).
CLEAVE_HD constexpr uint32_t staged_line_pixels(const GemmConfig& c, uint32_t strips) {
  const uint32_t places = direct_places(c), images = 1 + ceil_div(places - 1, strips);
  return places * staged_step(c) + images * staged_shared(c);
}

/// Lines of pixels that there are places for, and of outputs' gradients.
CLEAVE_HD constexpr uint32_t staged_pixel_lines(const GemmConfig& c) {
  return staged_reach(c) + (c.tile.stages - 1) * c.direct.height.stride;
}

/// Bytes of a line of all places: pixels, then gradients. A filter's lines read odd and even halves of 128 bytes.
CLEAVE_HD constexpr uint32_t staged_pixel_bytes(const GemmConfig& c) {
  return (c.direct.pixels | 1) * c.tile.n * size_of(c.operands.a);
}
CLEAVE_HD constexpr uint32_t staged_gradient_bytes(const GemmConfig& c) {
  return direct_places(c) * c.tile.m * c.tile.n * size_of(c.operands.a);
}
CLEAVE_HD constexpr uint32_t staged_wgrad_bytes(const GemmConfig& c) {
  const uint32_t lines = staged_pixel_lines(c) * staged_pixel_bytes(c) + c.tile.stages * staged_gradient_bytes(c);
  return max_of(lines, direct_places(c) * direct_made(c) * uint32_t(sizeof(float)));
}

}  // namespace cleave
