// A directory of compiled kernels, shared by processes that know nothing of each other.
//
// An entry is written to a temporary file, flushed and renamed, so a reader sees all of it or none;
// it holds its own key, and a checksum finds what a crash or a foreign file left behind. Only a
// directory, and files in it, that nobody else can write are used. A lock file per key makes N
// processes that want one kernel compile it once. Nothing that goes wrong here is an error: a
// missing, full, unsafe or read-only directory costs time only, and problem() says it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/core/api.h"
#include "jit/cache_key.h"
#include "jit/compiled_kernel.h"

namespace cleave {

class PrivateDirectory;

struct CacheEntryInfo {
  std::string key;
  std::string library;  ///< as CacheKey has it; empty, as is arch, of an entry that cannot be read
  std::string arch;
  uint64_t bytes = 0;
  std::chrono::seconds age{0};
};

class CLEAVE_TOOLS DiskCache {
 public:
  struct Limits {
    uint64_t bytes = uint64_t(1) << 30;  ///< of all entries; some 20,000 kernels
    /// For all waits for other processes that did not end: a kernel takes at most some seconds, so
    /// whoever needs longer has probably been stopped.
    std::chrono::milliseconds patience = std::chrono::seconds(10);
  };

  /// An empty path is a cache that holds nothing; others are absolute. The directory is made by the
  /// first store.
  explicit DiskCache(std::filesystem::path directory);
  DiskCache(std::filesystem::path directory, Limits limits);

  /// $CLEAVE_CACHE_DIR, else $XDG_CACHE_HOME/cleave, else ~/.cache/cleave; resolved once per
  /// process, when "~" and the current directory are what they are.
  static const DiskCache& user();

  using Compile = std::function<CompiledKernel()>;

  /// The cached kernel, or else compile()'s, stored. Waits while another process compiles the same
  /// key, within the limits. Throws only what compile() throws.
  CompiledKernel get(const CacheKey& key, std::string_view arch, const Compile& compile) const;

  std::optional<CompiledKernel> load(const CacheKey& key) const;

  /// Removes entries where all take more than the limit: first those of other libraries, then those
  /// that have not been loaded for longest (to the hour).
  void store(const CacheKey& key, std::string_view arch, const CompiledKernel& kernel) const;

  const std::filesystem::path& directory() const { return directory_; }
  const Limits& limits() const { return limits_; }

  /// Why kernels are not kept, and the remedy; empty if they are. Makes the directory, writes a
  /// file there and removes it.
  std::string problem() const;

  std::vector<CacheEntryInfo> list() const;  ///< newest first

  /// Removes the entries, and whatever crashed processes left; other files stay. Returns the
  /// entries removed.
  size_t clear() const;

 private:
  void evict(const PrivateDirectory& directory, const std::string& library) const;

  std::filesystem::path directory_;
  Limits limits_;
  mutable std::atomic<int64_t> patience_ms_;    // what is left of it
  mutable std::atomic<uint64_t> stored_bytes_;  // since entries were counted
};

}  // namespace cleave
