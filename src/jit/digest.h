// FNV-1a, 128 bits: a digest for cache keys and checksums, which have no enemies, only accidents.
// (Fowler, Noll and Vo, RFC 9923. A library would be one more package that an offline machine may
// lack.)
#pragma once

#include <cstdint>
#include <string_view>

namespace cleave {

class Digest {
 public:
  void update(std::string_view bytes) {
    for (const char byte : bytes) state_ = (state_ ^ uint8_t(byte)) * kPrime;
  }

  uint64_t low() const { return uint64_t(state_); }
  uint64_t high() const { return uint64_t(state_ >> 64); }

 private:
  __extension__ using State = unsigned __int128;
  static constexpr State kPrime = (State(1) << 88) + 0x13b;
  State state_ = State(0x6c62272e07bb0142) << 64 | 0x62b821756295c58d;
};

}  // namespace cleave
