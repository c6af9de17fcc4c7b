// Where threads that load find the tiles of a convolution: sources for copy_loader.h.
//
// K runs over taps and, within a tap, channels, without a gap: few channels waste nothing (fused classes
// on Hopper begin every tap with a k block, since TMA brings the rest). A thread's
// vectors lie one below another, so it has one place along that order (fprop and dgrad: a new one every
// k block; wgrad: one for each part of the tile, for all of the work tile) and its own few pixels along the
// other.
#pragma once

#include "cleave/config/loads.h"
#include "cleave/conv_load/unaligned_gather.h"
#include "cleave/mainloop/copy_loader.h"
#include "cleave/tile/tile.h"

namespace cleave {

namespace detail {
template <GemmConfig C, uint32_t Bytes>
struct VectorOf {
  static constexpr uint32_t kBytes = copies_unaligned(C) ? 16 : Bytes;
  using Shift = Either<copies_unaligned(C), UnalignedTapShift<C, Bytes>, TapShift<C>>;
};
}  // namespace detail

/// A of fprop and dgrad: lines are pixels, across run taps and channels.
template <GemmConfig C, uint32_t Bytes>
class PixelRows {
  using Vector = detail::VectorOf<C, Bytes>;
  using Copy = TileCopy<C, Major::k, C.tile.m, Vector::kBytes>;
  static constexpr bool kKeeps = Vector::kBytes >= 8 && Copy::kOwn <= 8;  // else there are too many

 public:
  static constexpr bool kGathers = true;
  static constexpr uint32_t kReadBytes = copies_unaligned(C) ? Bytes : 0;

  CLEAVE_DEVICE PixelRows(const Params<C>& p, uint32_t thread) : p_(p), thread_(thread) {}

  CLEAVE_DEVICE void start(const ConvClass& c, uint32_t row0, uint32_t batch) {
    class_ = &c;
    row0_ = row0;
    base_ = static_cast<const char*>(p_.a.data) + int64_t(batch) * p_.a.batch_stride * size_of(C.operands.a);
    if constexpr (kKeeps) {
      CLEAVE_UNROLL
      for (uint32_t own = 0; own < Copy::kOwn; ++own)
        kept_[own] = find_pixel<C>(p_, c, pixel_bytes(), row0 + Copy::line(own, thread_));
    }
  }

  CLEAVE_DEVICE void load(uint32_t stage, uint32_t k0) {
    shift_ = Vector::Shift::to(p_, *class_, pixel_bytes(), k0 + Copy::element(thread_));
    Copy::run(stage, thread_, *this);
  }

  CLEAVE_DEVICE CopyVector operator()(uint32_t own, uint32_t, uint32_t line, uint32_t) const {
    return shift_.template vector<Bytes>(p_, base_, pixel(own, line));
  }
  CLEAVE_DEVICE void load(UnalignedVector<Bytes>& vector, uint32_t own, uint32_t, uint32_t line, uint32_t) const {
    shift_.load(vector, p_, base_, pixel(own, line));
  }

 private:
  CLEAVE_DEVICE int64_t pixel_bytes() const { return p_.a.stride * size_of(C.operands.a); }

  CLEAVE_DEVICE GatheredPixel pixel(uint32_t own, uint32_t line) const {
    if constexpr (kKeeps) {
      return kept_[own];
    } else {
      return find_pixel<C>(p_, *class_, pixel_bytes(), row0_ + line);
    }
  }

  const Params<C>& p_;
  uint32_t thread_;
  const ConvClass* class_ = nullptr;
  const char* base_ = nullptr;
  uint32_t row0_ = 0;
  GatheredPixel kept_[kKeeps ? Copy::kOwn : 1];
  typename Vector::Shift shift_;
};

/// B of wgrad: lines are pixels, across run taps and channels.
template <GemmConfig C, uint32_t Bytes>
class PixelColumns {
  using Vector = detail::VectorOf<C, Bytes>;
  using Copy = TileCopy<C, Major::mn, C.tile.n, Vector::kBytes>;
  static constexpr uint32_t kParts = C.tile.n / atom_elements(C.operands.a);

 public:
  static constexpr bool kGathers = true;
  static constexpr uint32_t kReadBytes = copies_unaligned(C) ? Bytes : 0;

  CLEAVE_DEVICE PixelColumns(const Params<C>& p, uint32_t thread) : p_(p), thread_(thread) {}

  CLEAVE_DEVICE void start(const ConvClass& c, uint32_t column0, uint32_t batch) {
    class_ = &c;
    base_ = static_cast<const char*>(p_.b.data) + int64_t(batch) * p_.b.batch_stride * size_of(C.operands.b);
    CLEAVE_UNROLL
    for (uint32_t part = 0; part < kParts; ++part) {
      const uint32_t column = column0 + part * Copy::kAtom + Copy::element(thread_);
      shifts_[part] = Vector::Shift::to(p_, c, pixel_bytes(), column);
    }
  }

  CLEAVE_DEVICE void load(uint32_t stage, uint32_t k0) {
    k0_ = k0;
    Copy::run(stage, thread_, *this);
  }

  CLEAVE_DEVICE CopyVector operator()(uint32_t, uint32_t part, uint32_t line, uint32_t) const {
    return shifts_[part].template vector<Bytes>(p_, base_, pixel(line));
  }
  CLEAVE_DEVICE void load(UnalignedVector<Bytes>& vector, uint32_t, uint32_t part, uint32_t line, uint32_t) const {
    shifts_[part].load(vector, p_, base_, pixel(line));
  }

 private:
  CLEAVE_DEVICE int64_t pixel_bytes() const { return p_.b.stride * size_of(C.operands.b); }

  CLEAVE_DEVICE GatheredPixel pixel(uint32_t line) const {
    return find_pixel<C>(p_, *class_, pixel_bytes(), k0_ + line);
  }

  const Params<C>& p_;
  uint32_t thread_;
  const ConvClass* class_ = nullptr;
  const char* base_ = nullptr;
  uint32_t k0_ = 0;
  typename Vector::Shift shifts_[kParts];
};

/// B of dgrad: lines run over taps of the class and, within a tap, filters; across run channels, of
/// all classes where they are fused.
template <GemmConfig C>
class FilterLines {
  using Copy = TileCopy<C, C.operands.b_major, C.tile.n, C.operands.load_bytes_b>;
  static constexpr uint32_t kParts = C.tile.n / atom_elements(C.operands.a);

 public:
  static constexpr bool kGathers = true;
  static constexpr uint32_t kReadBytes = 0;

  CLEAVE_DEVICE FilterLines(const Params<C>& p, uint32_t thread) : p_(p), thread_(thread) {}

  CLEAVE_DEVICE void start(const ConvClass& c, uint32_t column0, uint32_t batch) {
    class_ = &c;
    base_ = static_cast<const char*>(p_.b.data) + int64_t(batch) * p_.b.batch_stride * size_of(C.operands.b);
    CLEAVE_UNROLL
    for (uint32_t part = 0; part < kParts; ++part) {
      const uint32_t column = column0 + part * Copy::kAtom + Copy::element(thread_);
      inside_[part] = column < p_.size.n;
      coords_[part].channel = column;
      if constexpr (C.conv.fuses_classes)
        coords_[part] = p_.columns.pixels.template locate<C.conv.axes, C.conv.fast_load>(column);
    }
  }

  CLEAVE_DEVICE void load(uint32_t stage, uint32_t k0) {
    k0_ = k0;
    if constexpr (!flattens_taps(C)) {  // all lines are of one tap
      first_ = class_->find_tap<C.conv.axes, C.conv.fast_load>(p_.per_tap, k0 / C.tile.k);
      first_.channel *= C.tile.k;
      CLEAVE_UNROLL
      for (uint32_t part = 0; part < kParts; ++part) taps_[part] = filter_tap(first_, part);
    }
    Copy::run(stage, thread_, *this);
  }

  CLEAVE_DEVICE CopyVector operator()(uint32_t, uint32_t part, uint32_t line, uint32_t) const {
    TapChannel place = first_;
    int32_t tap = taps_[part];
    if constexpr (flattens_taps(C)) {
      place = class_->find_tap<C.conv.axes, C.conv.fast_load>(p_.per_tap, k0_ + line);
      tap = filter_tap(place, part);
    } else {
      place.channel += line;
    }
    if (tap < 0 || place.channel >= p_.channels) return {base_, 0};
    const uint32_t channel = coords_[part].channel;
    const int64_t at = place.channel * p_.b.stride + int64_t(tap) * p_.tap_stride + channel;
    return {base_ + at * size_of(C.operands.b), C.operands.load_bytes_b};
  }

 private:
  /// The filter's tap that a part's columns have at a tap of the class; -1 if there is none.
  CLEAVE_DEVICE int32_t filter_tap(const TapChannel& place, uint32_t part) const {
    if (!place.exists || !inside_[part]) return -1;
    if constexpr (C.conv.fuses_classes) return p_.columns.filter_tap(coords_[part], place.tap);
    return int32_t(class_->filter_tap(place.tap));
  }

  const Params<C>& p_;
  uint32_t thread_;
  const ConvClass* class_ = nullptr;
  const char* base_ = nullptr;
  uint32_t k0_ = 0;
  bool inside_[kParts];
  ColumnCoord coords_[kParts];
  TapChannel first_;
  int32_t taps_[kParts] = {};
};

/// Where filters are a matrix.
template <GemmConfig C>
struct NoFilterLines {
  CLEAVE_DEVICE NoFilterLines(const Params<C>&, uint32_t) {}
};

/// What threads gather: pixels, and in dgrad filters.
template <GemmConfig C>
using GatheredPixels =
    Either<gathers_b(C), PixelColumns<C, C.operands.load_bytes_b>, PixelRows<C, C.operands.load_bytes_a>>;
template <GemmConfig C>
using GatheredFilters = Either<C.conv.kind == Conv::dgrad && !C.conv.patches, FilterLines<C>, NoFilterLines<C>>;

/// Both operands of a work tile, k block by k block.
template <GemmConfig C>
class GatherCopier {
 public:
  CLEAVE_DEVICE GatherCopier(const Params<C>& p, uint32_t thread)
      : p_(p), thread_(thread), gathered_(p, thread), filters_(p, thread) {}

  CLEAVE_DEVICE void start(const WorkTile& work, const Tile<C>& tile) {
    gathered_.start(*tile.conv_class, gathers_a(C) ? tile.m0 : tile.n0, work.batch);
    if constexpr (gathers_a(C) && !has_plain_filters(C)) filters_.start(*tile.conv_class, tile.n0, work.batch);
  }

  CLEAVE_DEVICE void load(const WorkTile& work, const Tile<C>& tile, uint32_t k0, uint32_t a, uint32_t b) {
    gathered_.load(gathers_a(C) ? a : b, k0);
    if constexpr (has_plain_filters(C)) {
      copy_operand<C, C.operands.b_major, C.tile.n, C.operands.load_bytes_b>(p_.b, b, tile.n0, k0, p_.size.n, p_.size.k,
                                                                             work.batch, thread_);
    } else if constexpr (C.conv.kind == Conv::dgrad) {
      filters_.load(b, k0);
    } else {
      copy_operand<C, C.operands.a_major, C.tile.m, C.operands.load_bytes_a>(p_.a, a, tile.m0, k0, p_.size.m, p_.size.k,
                                                                             work.batch, thread_);
    }
  }

 private:
  const Params<C>& p_;
  uint32_t thread_;
  GatheredPixels<C> gathered_;
  GatheredFilters<C> filters_;
};

}  // namespace cleave
