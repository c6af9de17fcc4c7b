// A directory of compiled kernels, shared by processes that know nothing of each other.
//
// An entry is written to a temporary file, flushed and renamed, so a reader sees all of it or none;
// a checksum finds what a crash or a foreign file left behind. A lock file per key makes N
// processes that want one kernel compile it once. Nothing that goes wrong here is an error: a
// missing, full or read-only directory costs time only.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/compiled_kernel.h"

namespace cleave {

/// The address of an entry: a digest of everything that the kernel depends on.
class CacheKey {
 public:
  /// The order of `parts` matters, and so does where one ends and the next begins.
  explicit CacheKey(const std::vector<std::string_view>& parts);

  const std::string& hex() const { return hex_; }

 private:
  std::string hex_;
};

struct CacheEntryInfo {
  std::string key;
  std::string arch;
  uint64_t bytes = 0;
  std::chrono::seconds age{0};
};

class DiskCache {
 public:
  /// An empty path is a cache that holds nothing. The directory is made by the first store.
  explicit DiskCache(std::filesystem::path directory,
                     std::chrono::milliseconds lock_timeout = std::chrono::seconds(60));

  /// $CLEAVE_CACHE_DIR, else $XDG_CACHE_HOME/cleave, else ~/.cache/cleave; resolved once per
  /// process.
  static const DiskCache& user();

  using Compile = std::function<CompiledKernel()>;

  /// The cached kernel, or else compile()'s, stored. Waits while another process compiles the same
  /// key, but no longer than the lock timeout. Throws only what compile() throws.
  CompiledKernel get(const CacheKey& key, std::string_view arch, const Compile& compile) const;

  std::optional<CompiledKernel> load(const CacheKey& key) const;
  void store(const CacheKey& key, std::string_view arch, const CompiledKernel& kernel) const;

  const std::filesystem::path& directory() const { return directory_; }
  std::vector<CacheEntryInfo> list() const;  ///< newest first
  uint64_t total_bytes() const;

  /// Removes the entries, and whatever crashed processes left; other files stay. Returns the
  /// entries removed.
  size_t clear() const;

 private:
  std::filesystem::path entry_path(const CacheKey& key) const;

  std::filesystem::path directory_;
  std::chrono::milliseconds lock_timeout_;
};

}  // namespace cleave
