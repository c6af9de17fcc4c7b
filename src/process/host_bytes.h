// What a plan's members take on the heap.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cleave {

inline constexpr size_t kBlockBytes = 16;  // that the allocator adds to an allocation

inline size_t heap_bytes(const std::string& text) {
  const bool is_inside = text.capacity() <= std::string().capacity();
  return is_inside ? 0 : text.capacity() + 1 + kBlockBytes;
}

template <class T>
size_t heap_bytes(const std::vector<T>& list) {
  return list.capacity() == 0 ? 0 : list.capacity() * sizeof(T) + kBlockBytes;
}

/// An object that make_shared made, without what it has on the heap itself.
template <class T>
size_t shared_bytes(const T&) {
  return sizeof(T) + kBlockBytes + 2 * sizeof(void*);
}

}  // namespace cleave
