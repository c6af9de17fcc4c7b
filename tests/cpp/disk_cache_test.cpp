#include "jit/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "jit/file_lock.h"
#include "jit/private_directory.h"
#include "temporary_folder.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class DiskCacheTest : public testing::Test {
 protected:
  fs::path entry() const { return entry(key_); }
  fs::path entry(const CacheKey& key) const { return directory_ / (key.hex() + ".kernel"); }

  CompiledKernel get(const DiskCache& cache) {
    return cache.get(key_, "sm_90a", [this] {
      ++compiles_;
      return kernel_;
    });
  }

  const TemporaryFolder folder_;
  const fs::path& directory_ = folder_.path();
  CacheKey key_{{"source", "options"}};
  CompiledKernel kernel_{.cubin = std::string("\x7f"
                                              "ELF\0cubin",
                                              10),
                         .log = "ptxas info",
                         .resources = {.registers = 168, .spill_store_bytes = 4}};
  int compiles_ = 0;
};

TEST(CacheKey, DependsOnEveryPartAndItsPlace) {
  const CacheKey key({"ab", "c"});
  EXPECT_EQ(key.hex().size(), 32u);
  EXPECT_EQ(key.hex(), CacheKey({"ab", "c"}).hex());
  EXPECT_NE(key.hex(), CacheKey({"a", "bc"}).hex());
  EXPECT_NE(key.hex(), CacheKey({"c", "ab"}).hex());
  EXPECT_NE(key.hex(), CacheKey({"ab", "c", ""}).hex());
  EXPECT_NE(key.hex(), CacheKey({"ab", "d"}).hex());
  const CacheKey library({"0.1"});
  EXPECT_EQ(CacheKey(library, {"ab"}).library(), library.hex());
  EXPECT_NE(CacheKey(library, {"ab"}).hex(), CacheKey(CacheKey({"0.2"}), {"ab"}).hex());
  EXPECT_EQ(key.library(), "");
}

TEST_F(DiskCacheTest, CompilesOnceAndReturnsWhatWasStored) {
  const DiskCache cache(directory_);
  const CompiledKernel compiled = get(cache);
  EXPECT_FALSE(compiled.from_cache);
  const CompiledKernel cached = get(cache);
  EXPECT_TRUE(cached.from_cache);
  EXPECT_EQ(cached.cubin, kernel_.cubin);
  EXPECT_EQ(cached.log, kernel_.log);
  EXPECT_EQ(cached.resources, kernel_.resources);
  EXPECT_EQ(compiles_, 1);
}

TEST_F(DiskCacheTest, RecompilesATruncatedEntry) {
  const DiskCache cache(directory_);
  get(cache);
  const auto size = fs::file_size(entry());
  for (const uintmax_t kept : {size - 1, size / 2, uintmax_t(10), uintmax_t(0)}) {
    fs::resize_file(entry(), kept);
    compiles_ = 0;
    EXPECT_EQ(get(cache).cubin, kernel_.cubin) << kept;
    EXPECT_EQ(compiles_, 1) << kept;
    EXPECT_EQ(fs::file_size(entry()), size) << "the entry is repaired";
  }
}

TEST_F(DiskCacheTest, RecompilesAForeignOrDamagedEntry) {
  const DiskCache cache(directory_);
  std::ofstream(entry()) << "somebody else's file, long enough to hold a header and then some more of it";
  EXPECT_EQ(get(cache).cubin, kernel_.cubin);
  EXPECT_EQ(compiles_, 1);
  {
    std::fstream file(entry(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('?');
  }
  EXPECT_FALSE(cache.load(key_));
  EXPECT_EQ(get(cache).cubin, kernel_.cubin);
  EXPECT_EQ(compiles_, 2);
}

TEST_F(DiskCacheTest, AnEntryUnderAnothersNameIsNotLoaded) {
  const DiskCache cache(directory_);
  get(cache);
  const CacheKey other({"other"});
  fs::copy_file(entry(), entry(other));
  EXPECT_FALSE(cache.load(other));
  EXPECT_TRUE(cache.load(key_));
}

// Process ids repeat in containers and on hosts that share a home.
TEST_F(DiskCacheTest, TheFilesOfAProcessOfTheSameIdStay) {
  for (int i = 0; i < 1000; ++i) std::ofstream(directory_ / fmt::format("{}-{}.tmp", getpid(), i)) << "half a kernel";
  const DiskCache cache(directory_);
  get(cache);
  EXPECT_TRUE(get(cache).from_cache);
  const auto files = std::distance(fs::directory_iterator(directory_), fs::directory_iterator());
  EXPECT_EQ(files, 1001);
}

TEST_F(DiskCacheTest, SurvivesADirectoryThatCannotBeWritten) {
  // A path below a file fails for every user, root included, as a read-only directory does for
  // others.
  std::ofstream(directory_ / "file") << "in the way";
  for (const fs::path& path : {directory_ / "file" / "cache", fs::path("/proc/cleave"), fs::path()}) {
    const DiskCache cache(path);
    compiles_ = 0;
    EXPECT_EQ(get(cache).cubin, kernel_.cubin) << path;
    EXPECT_EQ(get(cache).cubin, kernel_.cubin) << path;
    EXPECT_EQ(compiles_, 2) << path;
    EXPECT_TRUE(cache.list().empty());
    EXPECT_EQ(cache.clear(), 0u);
    EXPECT_NE(cache.problem().find("set CLEAVE_CACHE_DIR"), std::string::npos) << cache.problem();
    EXPECT_NE(cache.problem().find(path.string()), std::string::npos) << cache.problem();
  }
}

TEST_F(DiskCacheTest, AUsableDirectoryHasNoProblemAndNothingStaysBehind) {
  const DiskCache cache(directory_ / "a" / "b");
  EXPECT_EQ(cache.problem(), "");
  EXPECT_TRUE(fs::is_empty(cache.directory()));
  EXPECT_EQ(fs::status(directory_ / "a").permissions(), fs::perms::owner_all);
}

void limit_file_size(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, SIG_IGN);
}

TEST_F(DiskCacheTest, AFullDiskIsAProblem) {
  const DiskCache cache(directory_);
  EXPECT_EXIT(
      {
        limit_file_size(4096);
        fputs(cache.problem().c_str(), stderr);
        _exit(fs::is_empty(directory_) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "cannot be written .File too large.; free space there");
}

TEST_F(DiskCacheTest, ADirectoryThatOthersMayWriteIsNotUsed) {
  const DiskCache cache(directory_);
  get(cache);
  for (const auto others : {fs::perms::group_write, fs::perms::others_write}) {
    fs::permissions(directory_, fs::perms::owner_all | others);
    compiles_ = 0;
    EXPECT_FALSE(get(cache).from_cache);
    EXPECT_FALSE(get(cache).from_cache);
    EXPECT_EQ(compiles_, 2);
    EXPECT_NE(cache.problem().find("run chmod go-w"), std::string::npos) << cache.problem();
  }
  fs::permissions(directory_, fs::perms::owner_all);
  EXPECT_TRUE(get(cache).from_cache);
  EXPECT_EQ(cache.problem(), "");
}

TEST_F(DiskCacheTest, AnEntryThatOthersMayWriteIsReplaced) {
  const DiskCache cache(directory_);
  get(cache);
  fs::permissions(entry(), fs::perms::group_write, fs::perm_options::add);
  EXPECT_FALSE(get(cache).from_cache);
  EXPECT_TRUE(get(cache).from_cache);
  EXPECT_EQ(fs::status(entry()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

// Only root can give files away, and be another user.
TEST_F(DiskCacheTest, WhatBelongsToAnotherUserIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  constexpr uid_t nobody = 65534;
  const DiskCache cache(directory_);
  get(cache);
  ASSERT_EQ(chown(entry().c_str(), nobody, nobody), 0);
  EXPECT_FALSE(get(cache).from_cache) << "the entry is nobody's";
  EXPECT_TRUE(get(cache).from_cache) << "it was replaced";

  ASSERT_EQ(chown(directory_.c_str(), nobody, nobody), 0);
  EXPECT_FALSE(get(cache).from_cache) << "the directory is nobody's";
  EXPECT_NE(cache.problem().find("belongs to user 65534"), std::string::npos) << cache.problem();

  // To the user nobody the directory is his own, and root's files are as good: root could do worse.
  fs::permissions(entry(), fs::perms::group_read | fs::perms::others_read, fs::perm_options::add);
  EXPECT_EXIT(
      {
        if (setresuid(nobody, nobody, nobody) != 0) _exit(2);
        _exit(cache.load(key_) && cache.problem().empty() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(DiskCacheTest, NoSymbolicLinkIsFollowed) {
  const DiskCache cache(directory_ / "cache");
  get(cache);
  const fs::path inside = cache.directory() / entry().filename();
  const fs::path elsewhere = directory_ / "elsewhere";
  fs::rename(inside, elsewhere);
  fs::create_symlink(elsewhere, inside);
  EXPECT_FALSE(cache.load(key_));

  const fs::path target = directory_ / "target";
  fs::create_symlink(target, cache.directory() / (key_.hex() + ".lock"));
  EXPECT_EQ(get(cache).cubin, kernel_.cubin);
  EXPECT_FALSE(fs::exists(target)) << "the lock made the file that a link named";
  EXPECT_TRUE(cache.load(key_)) << "the link was replaced";
  EXPECT_TRUE(fs::exists(elsewhere));
}

TEST_F(DiskCacheTest, WhatIsNoKernelCostsNothing) {
  const DiskCache cache(directory_);
  const auto refused_quickly = [&] {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(cache.load(key_));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
    fs::remove_all(entry());
  };
  for (const uintmax_t size : {uintmax_t(6) << 30, uintmax_t(1) << 40}) {
    std::ofstream(entry()) << "";
    fs::resize_file(entry(), size);  // sparse
    refused_quickly();
  }
  ASSERT_EQ(mkfifo(entry().c_str(), 0600), 0);
  refused_quickly();
  fs::create_symlink("/dev/zero", entry());
  refused_quickly();
  fs::create_directory(entry());
  refused_quickly();
}

TEST_F(DiskCacheTest, SurvivesAnEntryThatCannotBeReplaced) {
  fs::create_directories(entry() / "occupied");
  const DiskCache cache(directory_);
  EXPECT_EQ(get(cache).cubin, kernel_.cubin);
  EXPECT_EQ(compiles_, 1);
}

TEST_F(DiskCacheTest, ProcessesCompileOnce) {
  constexpr int processes = 8;
  const fs::path compiles = directory_ / "compiles";
  for (int i = 0; i < processes; ++i) {
    if (fork() != 0) continue;
    const DiskCache cache(directory_ / "cache");
    const CompiledKernel kernel = cache.get(key_, "sm_90a", [&] {
      std::ofstream(compiles, std::ios::app) << '.' << std::flush;
      std::this_thread::sleep_for(200ms);
      return kernel_;
    });
    _exit(kernel.cubin == kernel_.cubin ? 0 : 1);
  }
  for (int i = 0; i < processes; ++i) {
    int status = -1;
    wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(fs::file_size(compiles), 1u);
  size_t files = 0;
  for ([[maybe_unused]] const auto& file : fs::directory_iterator(directory_ / "cache")) ++files;
  EXPECT_EQ(files, 1u) << "no lock or temporary file stays behind";
}

TEST_F(DiskCacheTest, AStuckHolderOnlyCostsTheTimeout) {
  const PrivateDirectory directory(directory_);
  const FileLock stuck(directory, key_.hex() + ".lock", 0ms);
  ASSERT_TRUE(stuck.held());
  const DiskCache cache(directory_, {.patience = 50ms});
  EXPECT_EQ(get(cache).cubin, kernel_.cubin);
  EXPECT_EQ(compiles_, 1);
  EXPECT_TRUE(get(cache).from_cache);
}

TEST_F(DiskCacheTest, StuckHoldersCostTheTimeoutOnce) {
  const PrivateDirectory directory(directory_);
  const DiskCache cache(directory_, {.patience = 200ms});
  const auto start = std::chrono::steady_clock::now();
  for (const char* source : {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}) {
    const CacheKey key({source});
    const FileLock stuck(directory, key.hex() + ".lock", 0ms);
    ASSERT_TRUE(stuck.held());
    cache.get(key, "sm_90a", [this] { return kernel_; });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
}

TEST_F(DiskCacheTest, AFailedCompileReleasesTheLock) {
  const DiskCache cache(directory_);
  const auto fail = []() -> CompiledKernel { throw std::runtime_error("refused"); };
  EXPECT_THROW(cache.get(key_, "sm_90a", fail), std::runtime_error);
  EXPECT_FALSE(get(cache).from_cache);
  EXPECT_EQ(compiles_, 1);
}

TEST_F(DiskCacheTest, ListsAndClearsOnlyItsOwnFiles) {
  const DiskCache cache(directory_);
  get(cache);
  cache.store(CacheKey({"other"}), "sm_80", kernel_);
  std::ofstream(directory_ / "notes.txt") << "not ours";
  std::ofstream(directory_ / "123-0.tmp") << "left by a crash";
  const auto entries = cache.list();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_NE(entries[0].arch, entries[1].arch);
  EXPECT_GE(entries[0].age.count(), 0);
  EXPECT_EQ(entries[0].bytes, fs::file_size(entry()));
  EXPECT_EQ(cache.clear(), 2u);
  EXPECT_TRUE(cache.list().empty());
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
  EXPECT_FALSE(fs::exists(directory_ / "123-0.tmp"));
}

TEST_F(DiskCacheTest, ALockExcludesThreadsToo) {
  const PrivateDirectory directory(directory_);
  {
    const FileLock first(directory, "lock", 0ms);
    EXPECT_TRUE(first.held());
    EXPECT_FALSE(FileLock(directory, "lock", 20ms).held());
  }
  EXPECT_TRUE(FileLock(directory, "lock", 0ms).held());
  EXPECT_FALSE(fs::exists(directory_ / "lock"));
}

TEST_F(DiskCacheTest, AClockThatWasSetBackMakesNoNegativeAge) {
  const DiskCache cache(directory_);
  get(cache);
  fs::last_write_time(entry(), fs::file_time_type::clock::now() + 24h * 365);
  EXPECT_EQ(cache.list().at(0).age.count(), 0);
}

class FullCacheTest : public DiskCacheTest {
 protected:
  FullCacheTest() { kernel_.cubin.resize(10000); }

  CacheKey key(int i, const char* library = "this") const { return {CacheKey({library}), {std::to_string(i)}}; }
  void store(const CacheKey& key, std::chrono::minutes ago) {
    cache_.store(key, "sm_90a", kernel_);
    age(entry(key), ago);
  }
  static void age(const fs::path& path, std::chrono::minutes ago) {
    const time_t then = time(nullptr) - std::chrono::seconds(ago).count();
    const timespec times[2] = {{then, 0}, {then, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  uint64_t bytes() const {
    uint64_t total = 0;
    for (const CacheEntryInfo& entry : cache_.list()) total += entry.bytes;
    return total;
  }

  static constexpr uint64_t limit = 100'000;  // nine entries
  DiskCache cache_{directory_, {.bytes = limit}};
};

TEST_F(FullCacheTest, StaysBelowTheLimit) {
  for (int i = 0; i < 50; ++i) {
    store(key(i), std::chrono::minutes(50 - i));
    EXPECT_LE(bytes(), limit);
  }
  EXPECT_GT(bytes(), limit / 2);
  EXPECT_TRUE(cache_.load(key(49))) << "the newest stays";
  EXPECT_FALSE(cache_.load(key(0))) << "the oldest goes";
}

TEST_F(FullCacheTest, WhatWasUsedLastGoesLast) {
  for (int i = 0; i < 9; ++i) store(key(i), std::chrono::minutes(1000 - i));
  EXPECT_TRUE(cache_.load(key(0)));
  store(key(9), 0min);
  EXPECT_TRUE(cache_.load(key(0)));
  EXPECT_FALSE(cache_.load(key(1)));
}

TEST_F(FullCacheTest, EntriesOfOtherVersionsGoFirst) {
  store(key(0), 1000min);
  for (int i = 1; i < 5; ++i) store(key(i, "another"), 10min);
  std::ofstream(directory_ / "0123.kernel") << std::string(40'000, 'x');  // of a format that was
  store(key(5), 5min);
  store(key(6), 0min);
  EXPECT_TRUE(cache_.load(key(0)));
  EXPECT_TRUE(cache_.load(key(6)));
  EXPECT_LE(bytes(), limit);
  const auto others = std::ranges::count_if(
      cache_.list(), [](const CacheEntryInfo& entry) { return entry.library != CacheKey({"this"}).hex(); });
  EXPECT_LT(others, 5);
}

TEST_F(FullCacheTest, WhatCrashesLeftGoesAfterADay) {
  for (const char* name : {"1-2.tmp", "ab.lock", "notes.txt"}) {
    std::ofstream(directory_ / name) << "half a kernel";
    age(directory_ / name, 2 * 24h);
  }
  std::ofstream(directory_ / "3-4.tmp") << "being written";
  store(key(0), 0min);
  EXPECT_FALSE(fs::exists(directory_ / "1-2.tmp"));
  EXPECT_FALSE(fs::exists(directory_ / "ab.lock"));
  EXPECT_TRUE(fs::exists(directory_ / "3-4.tmp"));
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
}

}  // namespace
}  // namespace cleave
