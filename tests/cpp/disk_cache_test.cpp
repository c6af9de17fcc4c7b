#include "jit/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "jit/file_lock.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class DiskCacheTest : public testing::Test {
 protected:
  DiskCacheTest() {
    std::string pattern = (fs::temp_directory_path() / "cleave-test-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~DiskCacheTest() override {
    std::error_code ignored;
    fs::remove_all(directory_, ignored);
  }

  fs::path entry() const { return directory_ / (key_.hex() + ".kernel"); }

  CompiledKernel get(const DiskCache& cache) {
    return cache.get(key_, "sm_90a", [this] {
      ++compiles_;
      return kernel_;
    });
  }

  fs::path directory_;
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
  std::ofstream(entry())
      << "somebody else's file, long enough to hold a header and then some more of it";
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

TEST_F(DiskCacheTest, SurvivesADirectoryThatCannotBeWritten) {
  // A path below a file fails for every user, root included, as a read-only directory does for
  // others.
  std::ofstream(directory_ / "file") << "in the way";
  for (const fs::path& path :
       {directory_ / "file" / "cache", fs::path("/proc/cleave"), fs::path()}) {
    const DiskCache cache(path);
    compiles_ = 0;
    EXPECT_EQ(get(cache).cubin, kernel_.cubin) << path;
    EXPECT_EQ(get(cache).cubin, kernel_.cubin) << path;
    EXPECT_EQ(compiles_, 2) << path;
    EXPECT_TRUE(cache.list().empty());
    EXPECT_EQ(cache.clear(), 0u);
  }
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
  const FileLock stuck(directory_ / (key_.hex() + ".lock"), 0ms);
  ASSERT_TRUE(stuck.held());
  const DiskCache cache(directory_, 50ms);
  EXPECT_EQ(get(cache).cubin, kernel_.cubin);
  EXPECT_EQ(compiles_, 1);
  EXPECT_TRUE(get(cache).from_cache);
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
  EXPECT_EQ(cache.total_bytes(), entries[0].bytes + entries[1].bytes);
  EXPECT_EQ(cache.clear(), 2u);
  EXPECT_TRUE(cache.list().empty());
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
  EXPECT_FALSE(fs::exists(directory_ / "123-0.tmp"));
}

TEST_F(DiskCacheTest, ALockExcludesThreadsToo) {
  const fs::path path = directory_ / "lock";
  {
    const FileLock first(path, 0ms);
    EXPECT_TRUE(first.held());
    EXPECT_FALSE(FileLock(path, 20ms).held());
  }
  EXPECT_TRUE(FileLock(path, 0ms).held());
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace cleave
