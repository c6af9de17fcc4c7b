// Gathered lines of convolutions down the images (direct/columns.h), on their way to shared memory, several at a time
// and without registers. A thread copies what its own strip meets, each line to the slot of one that was multiplied
// before: nobody waits for another, and a column's last lines overlap the next one's first.
#pragma once

#include "cleave/config/direct_columns.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/column_share.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/ptx/shared.h"

namespace cleave {

/// As direct/column_lines.h. A line is a group of copies: as many are sent ahead as there are slots but one.
template <GemmConfig C>
class ColumnRing {
  static constexpr Conv kKind = C.conv.kind;
  static constexpr DType kType = C.operands.a;
  static constexpr uint32_t kVector = C.direct.vector, kBytes = kVector * size_of(kType);
  static constexpr uint32_t kSlots = C.tile.stages, kAhead = kSlots - 1, kSlotBytes = column_slot_bytes(C);
  static constexpr DirectAxis kDown = C.direct.height, kAcross = C.direct.width;
  static constexpr GatheredSpan kSpan = gathered_span(kKind, kAcross, C.tile.m), kReach = shift_span(kKind, kDown);
  static constexpr uint32_t kPixels = kSpan.size(), kLines = shift_step(kKind, kDown);

 public:
  CLEAVE_DEVICE ColumnRing(const Params<C>& p, uint32_t shared)
      : p_(p), ring_(shared + threadIdx.x * kBytes), to_(ring_), from_slot_(ring_), share_(p.shape, 0) {}

  /// The lines that come first set out.
  CLEAVE_DEVICE void begin(uint32_t slice, uint32_t place, uint32_t channel) {
    share_ = ColumnShare(p_.shape, slice);
    place_ = place, channel_ = channel;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kAhead; ++i) send();
  }

  CLEAVE_DEVICE void begin_column(uint32_t, uint32_t, uint32_t) {}

  /// Lines outside of the image are copied as zeros.
  CLEAVE_DEVICE int32_t last_of_image(int32_t, int32_t all) const { return all; }
  CLEAVE_DEVICE void clear() {}

  CLEAVE_DEVICE void begin_line(uint32_t) {
    send();
    ptx::copy_async_wait<int(kAhead)>();
    line_ = from_slot_;
    from_slot_ = after(from_slot_);
  }
  CLEAVE_DEVICE void take(uint32_t i, float (&pixel)[kVector]) const {
    RawVector<kBytes> raw;
    ptx::load_shared<kBytes>(line_ + i * kDirectThreads * kBytes, raw.words);
    CLEAVE_UNROLL
    for (uint32_t v = 0; v < kVector; ++v) pixel[v] = element_of<kType>(raw, v);
  }

 private:
  CLEAVE_DEVICE uint32_t after(uint32_t slot) const {
    slot += kSlotBytes;
    return slot == ring_ + kSlots * kSlotBytes ? ring_ : slot;
  }

  /// The next line, if there is one.
  CLEAVE_DEVICE void send() {
    if (left_ == 0 && share_.has_more()) next_column();
    if (left_ > 0) {
      const uint32_t there = is_inside(y_, p_.shape.gathered[0]) ? columns_ : 0;
      const auto apart = uint32_t(p_.a.stride * size_of(kType));
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kPixels; ++i)
        ptx::copy_async_if<kBytes>(to_ + i * kDirectThreads * kBytes, from_ + uint64_t(i) * apart, there & 1u << i);
      from_ += int64_t(p_.shape.gathered[1]) * apart;
      ++y_;
      --left_;
      to_ = after(to_);
    }
    ptx::copy_async_commit();
  }

  /// As DirectColumns walks from column to column. Only of the last one are there places without a strip.
  CLEAVE_DEVICE void next_column() {
    uint32_t column = 0, cell = 0, cells = 0;
    share_.take(p_.shape, column, cell, cells);
    uint32_t image = 0, along = 0;
    p_.shape.columns.divmod(column * column_places(C) + place_, image, along);
    if (image >= p_.shape.images) return;
    left_ = (cells + column_steps(C) - 1) * kLines;
    y_ = first_gathered(kKind, kDown, cell * shift_cell(kKind, kDown), p_.shape.pad[0]) + kReach.first;
    const int32_t x0 = first_gathered(kKind, kAcross, along * C.tile.m, p_.shape.pad[1]) + kSpan.first;
    columns_ = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kPixels; ++i) columns_ |= uint32_t(is_inside(x0 + int32_t(i), p_.shape.gathered[1])) << i;
    from_ = static_cast<const char*>(p_.a.data) + channel_ * size_of(kType) +
            pixel_number(int64_t(image), y_, x0, p_.shape.gathered) * (p_.a.stride * int64_t(size_of(kType)));
  }

  const Params<C>& p_;
  const uint32_t ring_;         // the thread's first pixel of the first slot
  uint32_t to_, from_slot_;     // slots of the line that is sent next, and of the one that is multiplied next
  uint32_t line_ = 0;           // of the one that is multiplied now
  ColumnShare share_;           // cells whose lines are to be sent after
  uint32_t left_ = 0;           // so many of this column's,
  int32_t y_ = 0;               // this one first
  const char* from_ = nullptr;  // which begins there
  uint32_t columns_ = 0;        // which pixels of a line lie inside of it
  uint32_t place_ = 0, channel_ = 0;
};

}  // namespace cleave
