#include "jit/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "jit/digest.h"
#include "jit/file_lock.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

constexpr const char* entry_suffix = ".kernel";
constexpr const char* lock_suffix = ".lock";
constexpr const char* temporary_suffix = ".tmp";

// An entry file is this header, the cubin and the log. Native byte order: the cache never leaves
// its machine.
struct EntryHeader {
  char magic[8] = {'C', 'L', 'E', 'A', 'V', 'E', 'K', '1'};
  uint64_t cubin_size = 0;
  uint64_t log_size = 0;
  uint64_t checksum = 0;  // of the header with a checksum of 0, then the payload
  KernelResources resources;
  char arch[20] = {};

  bool has_magic() const { return std::memcmp(magic, EntryHeader().magic, sizeof(magic)) == 0; }
};
static_assert(sizeof(EntryHeader) == 72, "padding would be written, and hashed, uninitialised");

uint64_t checksum_of(EntryHeader header, std::string_view payload) {
  header.checksum = 0;
  Digest digest;
  digest.update({reinterpret_cast<const char*>(&header), sizeof(header)});
  digest.update(payload);
  return digest.low();
}

std::optional<std::string> read_file(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return std::nullopt;
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), std::streamsize(size))) return std::nullopt;
  return text;
}

/// On success the file is complete on the disk, not only in the page cache.
bool write_file(const fs::path& path, std::string_view text) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return false;
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    text.remove_prefix(size_t(written));
  }
  const bool complete = text.empty() && fsync(descriptor) == 0;
  return close(descriptor) == 0 && complete;
}

std::string temporary_name() {
  static std::atomic<unsigned> counter = 0;
  return fmt::format("{}-{}{}", getpid(), counter++, temporary_suffix);
}

fs::path home_directory() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  const passwd* user = getpwuid(getuid());
  return user && user->pw_dir ? user->pw_dir : "";
}

fs::path user_directory() {
  if (const char* chosen = std::getenv("CLEAVE_CACHE_DIR"); chosen && *chosen) return chosen;
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && fs::path(xdg).is_absolute()) return fs::path(xdg) / "cleave";
  const fs::path home = home_directory();
  return home.empty() ? fs::path() : home / ".cache" / "cleave";
}

template <class Visit>
void for_each_file(const fs::path& directory, Visit&& visit) {
  std::error_code error;
  fs::directory_iterator files(directory, error), end;
  while (!error && files != end) {
    visit(files->path());
    files.increment(error);
  }
}

std::optional<EntryHeader> read_header(const fs::path& path) {
  EntryHeader header;
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(&header), sizeof(header))) return std::nullopt;
  return header.has_magic() ? std::optional(header) : std::nullopt;
}

}  // namespace

CacheKey::CacheKey(const std::vector<std::string_view>& parts) {
  Digest digest;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    digest.update({reinterpret_cast<const char*>(&size), sizeof(size)});
    digest.update(part);
  }
  hex_ = fmt::format("{:016x}{:016x}", digest.high(), digest.low());
}

DiskCache::DiskCache(fs::path directory, std::chrono::milliseconds lock_timeout)
    : directory_(std::move(directory)), lock_timeout_(lock_timeout) {}

const DiskCache& DiskCache::user() {
  static const DiskCache cache(user_directory());
  return cache;
}

fs::path DiskCache::entry_path(const CacheKey& key) const {
  return directory_ / (key.hex() + entry_suffix);
}

CompiledKernel DiskCache::get(const CacheKey& key, std::string_view arch,
                              const Compile& compile) const {
  if (directory_.empty()) return compile();
  if (auto kernel = load(key)) return *std::move(kernel);

  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  const FileLock lock(directory_ / (key.hex() + lock_suffix), lock_timeout_);
  if (auto kernel = load(key)) return *std::move(kernel);  // the previous holder's
  CompiledKernel kernel = compile();
  store(key, arch, kernel);
  return kernel;
}

std::optional<CompiledKernel> DiskCache::load(const CacheKey& key) const {
  if (directory_.empty()) return std::nullopt;
  const auto text = read_file(entry_path(key));
  EntryHeader header;
  if (!text || text->size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, text->data(), sizeof(header));
  const std::string_view payload = std::string_view(*text).substr(sizeof(header));
  const bool whole = header.has_magic() && header.cubin_size <= payload.size() &&
                     header.log_size == payload.size() - header.cubin_size &&
                     header.checksum == checksum_of(header, payload);
  if (!whole) return std::nullopt;
  return CompiledKernel{.cubin = std::string(payload.substr(0, header.cubin_size)),
                        .log = std::string(payload.substr(header.cubin_size)),
                        .resources = header.resources,
                        .from_cache = true};
}

void DiskCache::store(const CacheKey& key, std::string_view arch,
                      const CompiledKernel& kernel) const {
  if (directory_.empty()) return;
  const std::string payload = kernel.cubin + kernel.log;
  EntryHeader header{.cubin_size = kernel.cubin.size(),
                     .log_size = kernel.log.size(),
                     .resources = kernel.resources};
  arch.copy(header.arch, sizeof(header.arch) - 1);
  header.checksum = checksum_of(header, payload);

  std::error_code ignored;
  fs::create_directories(directory_, ignored);
  const fs::path temporary = directory_ / temporary_name();
  const std::string_view header_bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  std::error_code failure;
  if (write_file(temporary, std::string(header_bytes) + payload)) {
    fs::rename(temporary, entry_path(key), failure);
    if (!failure) return;
  }
  fs::remove(temporary, ignored);
}

std::vector<CacheEntryInfo> DiskCache::list() const {
  std::vector<CacheEntryInfo> entries;
  const auto now = fs::file_time_type::clock::now();
  for_each_file(directory_, [&](const fs::path& path) {
    if (path.extension() != entry_suffix) return;
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    const auto written = fs::last_write_time(path, error);
    const auto header = read_header(path);
    if (error || !header) return;
    entries.push_back(
        {.key = path.stem().string(),
         .arch = std::string(header->arch, strnlen(header->arch, sizeof(header->arch))),
         .bytes = bytes,
         .age = std::chrono::duration_cast<std::chrono::seconds>(now - written)});
  });
  std::ranges::sort(entries, {}, &CacheEntryInfo::age);
  return entries;
}

uint64_t DiskCache::total_bytes() const {
  uint64_t total = 0;
  for (const CacheEntryInfo& entry : list()) total += entry.bytes;
  return total;
}

size_t DiskCache::clear() const {
  size_t entries = 0;
  for_each_file(directory_, [&](const fs::path& path) {
    const fs::path suffix = path.extension();
    if (suffix != entry_suffix && suffix != lock_suffix && suffix != temporary_suffix) return;
    std::error_code error;
    if (fs::remove(path, error) && suffix == entry_suffix) ++entries;
  });
  return entries;
}

}  // namespace cleave
