// A rank's memory, as it is mapped into this process.
#pragma once

#include <cstddef>
#include <memory>

#include "process/descriptor.h"

namespace cleave {

/// Unmapped at the end. It stays mapped where others have it, whatever becomes of the process that made it.
class Block {
 public:
  virtual ~Block() = default;
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  virtual void* data() const = 0;
  /// At least those that were asked for.
  virtual size_t bytes() const = 0;
  /// What another process maps it by.
  virtual Descriptor exported() const = 0;
};

/// A new one, of zeros; on the CUDA device, or the host's (kCpu).
std::unique_ptr<Block> make_block(int device, size_t bytes);

/// One of another process or thread, which said how many bytes it has.
std::unique_ptr<Block> map_block(int device, const Descriptor& from, size_t bytes);

}  // namespace cleave
