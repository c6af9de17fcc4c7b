// A compiled kernel as bytes, which the disk cache keeps in a file each and a pack one behind the other.
//
// They hold their own key, and a checksum, which finds what a crash, a bad copy or another program left behind.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "jit/cache_key.h"
#include "jit/compiled_kernel.h"

namespace cleave {

/// What an image begins with; behind it come the cubin and the log. Native byte order: all of CUDA's hosts have one.
struct ImageHeader {
  char magic[8] = {'C', 'L', 'E', 'A', 'V', 'E', 'K', '2'};
  char key[32] = {};
  char library[32] = {};  // as CacheKey has it
  uint64_t cubin_size = 0;
  uint64_t log_size = 0;
  uint64_t checksum = 0;  // of the header with a checksum of 0, then the payload
  KernelResources resources;
  char arch[20] = {};

  bool has_magic() const;
};
static_assert(sizeof(ImageHeader) == 136, "padding would be written, and hashed, uninitialised");

std::string kernel_image(const CacheKey& key, std::string_view arch, const CompiledKernel& kernel);

/// Nothing where the bytes are not the whole image of that key.
std::optional<CompiledKernel> read_image(std::string_view image, const CacheKey& key);

/// Fills a field of fixed size with a text that is at most as long, and reads it.
template <size_t size>
void set_field(char (&field)[size], std::string_view text) {
  text.copy(field, size);
}

template <size_t size>
std::string_view text_of(const char (&field)[size]) {
  const std::string_view whole(field, size);
  return whole.substr(0, whole.find('\0'));
}

}  // namespace cleave
