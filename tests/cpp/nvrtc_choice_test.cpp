// Which NVRTC is taken, and how its kernels are told from another's; with a driver and compilers
// that are not real. Each case is a process of its own, since the library opens a compiler once.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cleave/error.h"
#include "jit/build_id.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"
#include "temporary_folder.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

const fs::path fakes = CLEAVE_TEST_FAKES;

class NvrtcChoiceDeathTest : public testing::Test {
 protected:
  NvrtcChoiceDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

/// The name of what is taken on a driver of this version, where there are libraries of `majors`.
std::string choice(const char* driver_version, const std::vector<int>& majors) {
  const TemporaryFolder folder;
  for (const int major : majors)
    fs::copy_file(fakes / "libfake_nvrtc.so", folder.path() / ("libnvrtc.so." + std::to_string(major)));
  unsetenv("CLEAVE_NVRTC");
  setenv("FAKE_CUDA_VERSION", driver_version, 1);
  dlopen((fakes / "libcuda.so.1").c_str(), RTLD_NOW);  // from now on found by its name
  add_library_search_path(folder.path());
  return fs::path(nvrtc_path()).filename();
}

void print_choice(const char* driver_version, const std::vector<int>& majors) {
  fputs(choice(driver_version, majors).c_str(), stderr);
  _exit(0);
}

TEST_F(NvrtcChoiceDeathTest, TheDriverLoadsWhatItCompiles) {
  const std::vector<int> both = {12, 13};
  const auto exited = testing::ExitedWithCode(0);
  EXPECT_EXIT(print_choice("12080", both), exited, "libnvrtc.so.12$");
  EXPECT_EXIT(print_choice("13000", both), exited, "libnvrtc.so.13$");
  EXPECT_EXIT(print_choice("14010", both), exited, "libnvrtc.so.13$");
}

TEST_F(NvrtcChoiceDeathTest, ATooNewOneIsBetterThanNone) {
  EXPECT_EXIT(print_choice("12080", {13}), testing::ExitedWithCode(0), "libnvrtc.so.13$");
}

void print_answer_of(const char* version) {
  setenv("FAKE_NVRTC_VERSION", version, 1);
  setenv("CLEAVE_NVRTC", (fakes / "libfake_nvrtc.so").c_str(), 1);
  try {
    fputs(nvrtc_path().c_str(), stderr);
  } catch (const Error& error) {
    fputs(error.what(), stderr);
  }
  _exit(0);
}

TEST_F(NvrtcChoiceDeathTest, OneThatIsTooOldIsRefusedByName) {
  const auto exited = testing::ExitedWithCode(0);
  EXPECT_EXIT(print_answer_of("12030"), exited, "to be 12.4 or newer.*libfake_nvrtc.so, which is 12.3");
  EXPECT_EXIT(print_answer_of("12040"), exited, "libfake_nvrtc.so$");
}

/// Whether a new process that compiles with `library` finds the kernel in the cache.
bool finds(const char* library, const fs::path& cache) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("CLEAVE_NVRTC", (fakes / library).c_str(), 1);
    setenv("CLEAVE_CACHE_DIR", cache.c_str(), 1);
    _exit(compile("", "sm_90a").from_cache);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status) == 1;
}

void compile_with_three_builds() {
  const TemporaryFolder cache;
  std::string found;
  for (const char* library : {"libfake_nvrtc.so", "libfake_nvrtc_other.so", "libfake_nvrtc_anonymous.so"}) {
    for (int i = 0; i < 2; ++i) found += finds(library, cache.path()) ? "found " : "compiled ";
  }
  fputs(found.c_str(), stderr);
}

TEST_F(NvrtcChoiceDeathTest, BuildsOfOneVersionShareNoKernels) {
  EXPECT_EXIT(
      {
        compile_with_three_builds();
        _exit(0);
      },
      testing::ExitedWithCode(0), "(compiled found ){3}");
}

TEST(BuildOf, IsTheLinkersIdOrElseTheFile) {
  const auto build = [](const char* name) {
    void* const library = dlopen((fakes / name).c_str(), RTLD_NOW | RTLD_LOCAL);
    return build_of(library ? dlsym(library, "nvrtcVersion") : nullptr);
  };
  EXPECT_EQ(build("libfake_nvrtc.so"), "00000001");
  EXPECT_EQ(build("libfake_nvrtc_other.so"), "00000002");
  EXPECT_EQ(build("libfake_nvrtc_anonymous.so").find(fakes.string()), 0u);
  EXPECT_EQ(build_of(nullptr), "");
}

}  // namespace
}  // namespace cleave
