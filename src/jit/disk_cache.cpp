#include "jit/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "jit/file_lock.h"
#include "jit/kernel_image.h"
#include "jit/private_directory.h"
#include "process/fork.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr std::string_view entry_suffix = ".kernel";
constexpr std::string_view lock_suffix = ".lock";

constexpr uint64_t largest_entry = 64 << 20;  // kernels take some 50 KB
constexpr seconds leftover_age = std::chrono::hours(24);
constexpr seconds use_precision = std::chrono::hours(1);

std::string name_of(const CacheKey& key, std::string_view suffix) {
  return key.hex() + std::string(suffix);
}

using Time = std::chrono::sys_time<std::chrono::nanoseconds>;

Time time_of(const timespec& t) {
  return Time(seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
}

/// At least 0: clocks are set back, and files come from other machines.
seconds since(Time then) {
  const auto passed = std::chrono::system_clock::now() - then;
  return std::max(seconds(0), std::chrono::duration_cast<seconds>(passed));
}

struct CacheFile {
  std::string name;
  struct stat status;

  bool is_entry() const { return name.ends_with(entry_suffix) && S_ISREG(status.st_mode); }
  bool is_leftover() const { return name.ends_with(lock_suffix) || name.ends_with(temporary_suffix); }
  uint64_t bytes() const { return uint64_t(status.st_size); }
  Time written() const { return time_of(status.st_mtim); }
  Time last_use() const { return std::max(written(), time_of(status.st_atim)); }
};

std::vector<CacheFile> files_of(const PrivateDirectory& directory) {
  std::vector<CacheFile> files;
  directory.for_each_name([&](const std::string& name) {
    const auto status = directory.status(name);
    if (!status) return;
    CacheFile file{name, *status};
    if (file.is_entry() || file.is_leftover()) files.push_back(std::move(file));
  });
  return files;
}

std::optional<ImageHeader> read_header(const PrivateDirectory& directory, const std::string& name) {
  ImageHeader header;
  const Descriptor file = directory.open_file(name);
  if (!file || pread(file.get(), &header, sizeof(header), 0) != sizeof(header)) return {};
  return header.has_magic() ? std::optional(header) : std::nullopt;
}

// Set by hand, since many file systems do not note that a file was read.
void note_use(const PrivateDirectory& directory, const std::string& name) {
  const auto status = directory.status(name);
  if (!status || since(CacheFile{name, *status}.last_use()) < use_precision) return;
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  utimensat(directory.descriptor(), name.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

/// Absolute, or empty.
fs::path home_directory() {
  const char* home = std::getenv("HOME");
  if (!home || !*home) {
    const passwd* user = getpwuid(getuid());
    home = user && user->pw_dir ? user->pw_dir : "";
  }
  return *home == '/' ? home : "";
}

fs::path user_directory() {
  const fs::path home = home_directory();
  if (const char* chosen = std::getenv("CLEAVE_CACHE_DIR"); chosen && *chosen) {
    const fs::path path = chosen;
    std::error_code gone;  // the current directory: an empty path then
    if (*path.begin() != "~") return fs::absolute(path, gone);
    return home.empty() ? home : home / fs::path(chosen + 1).relative_path();
  }
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && fs::path(xdg).is_absolute()) return fs::path(xdg) / "cleave";
  return home.empty() ? home : home / ".cache" / "cleave";
}

}  // namespace

DiskCache::DiskCache(fs::path directory) : DiskCache(std::move(directory), Limits()) {}

DiskCache::DiskCache(fs::path directory, Limits limits)
    : directory_(std::move(directory)),
      limits_(limits),
      patience_ms_(limits.patience.count()),
      stored_bytes_(limits.bytes) {}  // other processes': the first store counts

const DiskCache& DiskCache::user() {
  static constinit Lazy<const DiskCache> cache;
  return cache.get([] { return DiskCache(user_directory()); });
}

CompiledKernel DiskCache::get(const CacheKey& key, std::string_view arch, const Compile& compile) const {
  if (auto kernel = load(key)) return *std::move(kernel);
  const PrivateDirectory directory(directory_, PrivateDirectory::IfMissing::create);
  if (!directory) return compile();

  const std::chrono::milliseconds patience(std::max<int64_t>(0, patience_ms_));
  const FileLock lock(directory, name_of(key, lock_suffix), patience);
  if (lock.timed_out()) patience_ms_ -= patience.count();
  if (auto kernel = load(key)) return *std::move(kernel);  // the previous holder's
  CompiledKernel kernel = compile();
  store(key, arch, kernel);
  return kernel;
}

std::optional<CompiledKernel> DiskCache::load(const CacheKey& key) const {
  const PrivateDirectory directory(directory_);
  if (!directory) return std::nullopt;
  const std::string name = name_of(key, entry_suffix);
  const auto text = directory.read_file(name, largest_entry);
  if (!text) return std::nullopt;
  auto kernel = read_image(*text, key);
  if (kernel) note_use(directory, name);
  return kernel;
}

void DiskCache::store(const CacheKey& key, std::string_view arch, const CompiledKernel& kernel) const {
  const PrivateDirectory directory(directory_, PrivateDirectory::IfMissing::create);
  if (!directory) return;
  const std::string text = kernel_image(key, arch, kernel);
  if (directory.replace_file(name_of(key, entry_suffix), text) != 0) return;
  // Listing many files takes milliseconds, so not at each store: the limit may be passed by 1/64.
  if ((stored_bytes_ += text.size()) < limits_.bytes / 64) return;
  stored_bytes_ = 0;
  evict(directory, key.library());
}

void DiskCache::evict(const PrivateDirectory& directory, const std::string& library) const {
  struct Entry {
    CacheFile file;
    bool current;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  for (CacheFile& file : files_of(directory)) {
    if (file.is_entry()) {
      total += file.bytes();
      entries.push_back({std::move(file), false});
    } else if (since(file.last_use()) > leftover_age) {
      directory.remove_file(file.name);
    }
  }
  if (total <= limits_.bytes) return;
  for (Entry& entry : entries) {
    const auto header = read_header(directory, entry.file.name);
    entry.current = header && text_of(header->library) == library;
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.current, entry.file.last_use()); });
  // Some more than must go, or each further store would remove one.
  const uint64_t kept = limits_.bytes - limits_.bytes / 8;
  for (const Entry& entry : entries) {
    if (total <= kept) return;
    if (directory.remove_file(entry.file.name)) total -= entry.file.bytes();
  }
}

std::string DiskCache::problem() const {
  const PrivateDirectory directory(directory_, PrivateDirectory::IfMissing::create);
  if (!directory) return directory.problem();
  // As large as a kernel: a full disk still takes an empty file.
  const int error = directory.try_to_write(64 << 10);
  if (error == 0) return "";
  return fmt::format(
      "\"{}\" cannot be written ({}); free space there, or set CLEAVE_CACHE_DIR to a directory that you can write",
      directory_.string(), std::strerror(error));
}

std::vector<CacheEntryInfo> DiskCache::list() const {
  const PrivateDirectory directory(directory_);
  std::vector<CacheEntryInfo> entries;
  for (const CacheFile& file : files_of(directory)) {
    if (!file.is_entry()) continue;
    const ImageHeader header = read_header(directory, file.name).value_or(ImageHeader());
    entries.push_back({.key = file.name.substr(0, file.name.size() - entry_suffix.size()),
                       .library = std::string(text_of(header.library)),
                       .arch = std::string(text_of(header.arch)),
                       .bytes = file.bytes(),
                       .age = since(file.written())});
  }
  std::ranges::sort(entries, {}, &CacheEntryInfo::age);
  return entries;
}

size_t DiskCache::clear() const {
  const PrivateDirectory directory(directory_);
  size_t entries = 0;
  for (const CacheFile& file : files_of(directory))
    if (directory.remove_file(file.name) && file.is_entry()) ++entries;
  return entries;
}

}  // namespace cleave
