// A file of kernels that were compiled ahead, for processes that have no compiler, or no time for one.
//
// `cleave pack build` writes them, CLEAVE_PACKS names them (kernel_packs.h). A kernel is found by what it is made of:
// its source, the architecture and the build of Cleave, whichever NVRTC compiled it. Behind a header and an index
// come images (kernel_image.h); an image is read, and its checksum verified, when its kernel is wanted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cleave/core/api.h"
#include "jit/cache_key.h"
#include "jit/compiled_kernel.h"
#include "jit/nvrtc.h"
#include "jit/private_directory.h"

namespace cleave {

struct PackedKernel {
  CacheKey key;  ///< pack_key()
  std::string arch;
  CompiledKernel kernel;
};

/// The content of a pack with these kernels, all made by one NVRTC. Those of one key count once.
std::string pack_of(std::vector<PackedKernel> kernels, const CacheKey& library, NvrtcVersion compiler);

class CLEAVE_TOOLS KernelPack {
 public:
  /// Reads the index of `file`, which must belong to this user or root, with its directory, and be writable by nobody
  /// else. It is of use to a process whose kernels are those of `library`.
  KernelPack(const std::filesystem::path& file, const CacheKey& library);
  KernelPack(KernelPack&&) noexcept;
  ~KernelPack();

  /// The kernel, if it is here and whole. Thread-safe.
  std::optional<CompiledKernel> load(const CacheKey& key) const;

  const std::filesystem::path& path() const { return path_; }
  size_t kernels() const { return index_.size(); }
  uint64_t bytes() const { return bytes_; }
  NvrtcVersion compiler() const { return compiler_; }

  /// Why nothing of it is used, and the remedy; empty if it is.
  const std::string& problem() const { return problem_; }

  struct Entry {
    char key[32];
    uint64_t offset, size;  // of its image, in the file
  };

 private:
  /// Fills everything but problem_, which it returns.
  std::string open(const CacheKey& library);

  std::filesystem::path path_;
  Descriptor file_;
  uint64_t bytes_ = 0;
  NvrtcVersion compiler_;
  std::vector<Entry> index_;  // by key
  std::string problem_;
};

}  // namespace cleave
