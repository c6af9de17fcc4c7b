// Many numbers made one, for maps.
#pragma once

#include <cstdint>

namespace cleave {

struct Mix {
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  void operator()(uint64_t value) {
    hash = (hash ^ value) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
};

}  // namespace cleave
