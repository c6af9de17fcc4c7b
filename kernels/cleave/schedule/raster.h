// The order in which output tiles are visited, chosen so that tiles in flight together share
// operands in L2.
//
// Tiles are taken in bands of `width` columns of tiles; inside a band, rows advance slowest-last:
// the band's tiles of one row come first, then the next row. A wave of W CTAs then touches about
// W / width rows of A and `width` columns of B instead of one row and W columns. The last band is
// narrower when width does not divide.
#pragma once

#include "cleave/core/fast_divmod.h"
#include "cleave/core/math.h"

namespace cleave {

struct Raster {
  FastDivmod per_batch;   // tiles of one batch entry
  FastDivmod per_band;    // tiles of a full band
  FastDivmod width;       // of a full band
  FastDivmod last_width;  // of the last band
  uint32_t full_bands = 0;
  bool bands_along_m = false;  // bands cut M instead of N

  Raster() = default;

  CLEAVE_HD constexpr Raster(uint32_t tiles_m, uint32_t tiles_n, uint32_t band_width, bool along_m)
      : bands_along_m(along_m) {
    const uint32_t across = max_of(along_m ? tiles_m : tiles_n, 1u);
    const uint32_t down = max_of(along_m ? tiles_n : tiles_m, 1u);
    const uint32_t w = max_of(min_of(band_width, across), 1u);
    full_bands = across / w;
    per_batch = FastDivmod(across * down);
    per_band = FastDivmod(w * down);
    width = FastDivmod(w);
    last_width = FastDivmod(max_of(across - full_bands * w, 1u));
  }

  /// `tile` counts tiles of all batch entries.
  CLEAVE_HD constexpr void locate(uint32_t tile, uint32_t& m, uint32_t& n, uint32_t& batch) const {
    uint32_t in_batch = 0, band = 0, in_band = 0, down = 0, across = 0;
    per_batch.divmod(tile, batch, in_batch);
    per_band.divmod(in_batch, band, in_band);
    width_of(band).divmod(in_band, down, across);
    place(band, across, down, m, n);
  }

  /// `tile` counts those of one group, which has `rows` of them along the dimension that the bands
  /// do not cut.
  CLEAVE_HD constexpr void locate_in_group(uint32_t tile, uint32_t rows, uint32_t& m, uint32_t& n) const {
    const uint32_t of_band = width.divisor * rows;
    const uint32_t band = tile < of_band ? 0 : tile / of_band;  // most groups are one band, and divisions take long
    uint32_t down = 0, across = 0;
    width_of(band).divmod(tile - band * of_band, down, across);
    place(band, across, down, m, n);
  }

 private:
  /// Both are read, then one is taken: an address that `band` decides could be read only once that is known.
  CLEAVE_HD constexpr FastDivmod width_of(uint32_t band) const {
    FastDivmod of = width;
    const bool last = band >= full_bands;
    of.divisor = last ? last_width.divisor : width.divisor;
    of.multiplier = last ? last_width.multiplier : width.multiplier;
    of.shift = last ? last_width.shift : width.shift;
    return of;
  }

  CLEAVE_HD constexpr void place(uint32_t band, uint32_t across, uint32_t down, uint32_t& m, uint32_t& n) const {
    across += band * width.divisor;
    m = bands_along_m ? across : down;
    n = bands_along_m ? down : across;
  }
};

}  // namespace cleave
