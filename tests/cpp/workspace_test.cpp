#include "runtime/workspace_pool.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <thread>

#include "cleave/device.h"
#include "cleave/error.h"
#include "runtime/context.h"
#include "runtime/driver.h"
#include "runtime/kernel_cache.h"
#include "runtime/tensor_map.h"

namespace cleave {
namespace {

class HostMemory : public DeviceMemory {
 public:
  void* allocate(int, size_t bytes, bool zeroed) override {
    void* memory = std::malloc(bytes);
    std::memset(memory, zeroed ? 0 : 0xAB, bytes);
    live_.insert(memory);
    ++allocations_;
    bytes_ += bytes;
    return memory;
  }
  void free(int, void* memory) override {
    EXPECT_EQ(live_.erase(memory), 1u);
    std::free(memory);
  }

  std::set<void*> live_;
  int allocations_ = 0;
  size_t bytes_ = 0;
};

class WorkspacePoolTest : public testing::Test {
 protected:
  ~WorkspacePoolTest() override {
    pool_.release();
    EXPECT_TRUE(memory_.live_.empty());
  }

  HostMemory memory_;
  WorkspacePool pool_{memory_};
};

TEST_F(WorkspacePoolTest, OneStreamKeepsItsWorkspace) {
  const OrderedWork owner{.device = 0, .stream = 7};
  const Workspace first = pool_.get(owner, {.counters = 64, .partials = 4096});
  const Workspace again = pool_.get(owner, {.counters = 32, .partials = 1024});
  EXPECT_EQ(first.counters, again.counters);
  EXPECT_EQ(first.partials, again.partials);
  EXPECT_EQ(memory_.allocations_, 2);
}

TEST_F(WorkspacePoolTest, WhatMayRunAtTheSameTimeSharesNothing) {
  std::set<void*> seen;
  for (const int device : {0, 1}) {
    for (const uint64_t stream : {1, 2}) {
      for (const uint64_t capture : {0, 5, 6}) {
        const Workspace workspace = pool_.get({device, stream, capture}, {16, 16});
        EXPECT_TRUE(seen.insert(workspace.counters).second);
        EXPECT_TRUE(seen.insert(workspace.partials).second);
      }
    }
  }
}

TEST_F(WorkspacePoolTest, GrowsAndKeepsWhatWorkInFlightUses) {
  const OrderedWork owner;
  const Workspace small = pool_.get(owner, {.counters = 16, .partials = 16});
  const Workspace large = pool_.get(owner, {.counters = 16, .partials = 10 << 20});
  EXPECT_EQ(small.counters, large.counters);
  EXPECT_NE(small.partials, large.partials);
  EXPECT_TRUE(memory_.live_.contains(small.partials));
  std::memset(large.partials, 1, 10 << 20);  // big enough, or the sanitizer objects
}

TEST_F(WorkspacePoolTest, AnOwnerKeepsLessThanFourTimesItsLargestNeed) {
  for (uint64_t stream = 0; stream < 20; ++stream) {
    const size_t before = memory_.bytes_;
    size_t need = 0;
    for (const size_t growth : {1, 70'000, 70'001, 150'000, 300'001, 300'002, 5'000'000}) {
      need = growth;
      pool_.get({.stream = stream}, {.partials = need});
      EXPECT_LT(memory_.bytes_ - before, std::max(4 * need, kSmallestBuffer + 1));
    }
    for (int i = 0; i < 100; ++i) pool_.get({.stream = stream}, {.partials = need / 2});
    EXPECT_LT(memory_.bytes_ - before, 4 * need);
  }
}

TEST_F(WorkspacePoolTest, CountersStayZeroHoweverPartialsAreUsed) {
  const OrderedWork owner;
  const Workspace first = pool_.get(owner, {.counters = 16, .partials = 1024});
  std::memset(first.partials, 0xFF, 1024);
  const Workspace second = pool_.get(owner, {.counters = 1 << 20, .partials = 1024});
  for (int i = 0; i < 1 << 20; ++i) ASSERT_EQ(static_cast<char*>(second.counters)[i], 0);
}

TEST_F(WorkspacePoolTest, NothingCostsNothing) {
  const Workspace workspace = pool_.get({}, {});
  EXPECT_EQ(workspace.counters, nullptr);
  EXPECT_EQ(workspace.partials, nullptr);
  EXPECT_EQ(memory_.allocations_, 0);
}

TEST_F(WorkspacePoolTest, ThreadsMayShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 1; i < 200; ++i) pool_.get({0, uint64_t(t), i % 5}, {i, i * 4096});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Device, ThePlanningTargetNeedsNoGpu) {
  const DeviceInfo& h100 = device_info(kPlanOnlyH100);
  EXPECT_EQ(h100.compute_capability, 90);
  EXPECT_EQ(h100.num_sms, 132);
  EXPECT_EQ(h100.shared_memory_per_block, 227 * 1024);
  EXPECT_EQ(device_arch(kPlanOnlyH100), "sm_90a");
}

TEST(Device, WithoutAGpuTheErrorSaysWhatToDo) {
  if (driver_available()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(device_count(), 0);
  release_workspaces();
  try {
    device_info(0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::no_device);
    EXPECT_NE(std::string(error.what()).find("CPU backend"), std::string::npos) << error.what();
  }
  EXPECT_THROW(ContextGuard(0), Error);
}

TEST(TensorMap, RefusalsNameTheDimension) {
  const auto message = [](uintptr_t base, TensorMapShape shape) -> std::string {
    try {
      make_tensor_map(reinterpret_cast<void*>(base), shape);
    } catch (const Error& error) {
      return error.code() == ErrorCode::unsupported ? error.what() : "not refused";
    }
    return "";
  };
  const TensorMapShape good = {.name = "a",
                               .dtype = DType::bf16,
                               .rank = 3,
                               .size = {4096, 128, 2},
                               .stride_bytes = {0, 8192, 1 << 20},
                               .box = {64, 128, 1}};
  EXPECT_TRUE(message(4098, good).starts_with("a starts 2 bytes past"));
  TensorMapShape bad = good;
  bad.stride_bytes[1] = 6;
  EXPECT_TRUE(message(4096, bad).starts_with("a.stride[1] is 6 bytes"));
  bad = good;
  bad.size[2] = 0;
  EXPECT_TRUE(message(4096, bad).starts_with("a.size[2] is 0"));
  bad = good;
  bad.box[0] = 128;
  EXPECT_TRUE(message(4096, bad).starts_with("a.box[0] is 256 bytes"));
  bad.swizzled = false;
  bad.box[0] = 76;
  EXPECT_TRUE(message(4096, bad).starts_with("a.box[0] is 152 bytes; TMA needs a multiple of 16"));
  bad = good;
  bad.box[1] = 257;
  EXPECT_TRUE(message(4096, bad).starts_with("a.box[1] is 257"));
}

template <class Function>
Function* libcuda_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), name));
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!driver_available()) GTEST_SKIP() << "there is no driver, or no GPU";
  }

  struct Params {
    void* words;
    uint32_t count;
  };

  // Fails, at the latest when its stream is waited for, if a word is not zero.
  const KernelRequest expect_zero_ = {.source = R"(
struct Params { unsigned* words; unsigned count; };
extern "C" __global__ void expect_zero(const __grid_constant__ Params p) {
  for (unsigned i = threadIdx.x; i < p.count; i += blockDim.x) if (p.words[i] != 0) __trap();
}
)",
                                      .entry = "expect_zero",
                                      .device = 0,
                                      .limits = {.dynamic_shared_bytes = 64 << 10}};
  const LaunchShape shape_ = {.block = {128}, .dynamic_shared_bytes = 64 << 10};
};

CUstream new_stream() {
  CUstream stream = nullptr;
  check(driver().stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

TEST_F(GpuTest, ContextsNestAndAreRestored) {
  CUcontext before = nullptr, inside = nullptr, after = nullptr;
  check(driver().ctx_get_current(&before), "cuCtxGetCurrent");
  {
    const ContextGuard guard(0);
    const ContextGuard again(0);
    check(driver().ctx_get_current(&inside), "cuCtxGetCurrent");
    EXPECT_EQ(inside, primary_context(0));
  }
  check(driver().ctx_get_current(&after), "cuCtxGetCurrent");
  EXPECT_EQ(before, after);
}

TEST_F(GpuTest, ThreadsThatNeverTouchedCudaLaunchKernels) {
  KernelRequest other = expect_zero_;
  other.source += "// never compiled\n";
  EXPECT_EQ(find_kernel(other), nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Kernel& kernel = load_kernel(expect_zero_);
      EXPECT_EQ(find_kernel(expect_zero_), &kernel);
      EXPECT_GT(kernel.max_active_clusters(shape_), 0);
      const ContextGuard context(0);
      const CUstream stream = new_stream();
      const Workspace workspace = pooled_workspace(0, stream, {.counters = 4096, .partials = 4096});
      const Params params = {workspace.counters, 1024};
      kernel.launch(shape_, stream, &params);
      check(driver().stream_synchronize(stream), "cuStreamSynchronize");
    });
  }
  for (std::thread& thread : threads) thread.join();
  release_workspaces();
}

TEST_F(GpuTest, ACaptureHasAWorkspaceOfItsOwn) {
  const ContextGuard context(0);
  const CUstream stream = new_stream();
  const WorkspaceSize size = {.counters = 64, .partials = 4096};
  const Workspace outside = pooled_workspace(0, stream, size);
  EXPECT_FALSE(is_capturing(stream));

  // The mode that forbids the most: allocating and loading must get by.
  const auto begin = libcuda_function<CUresult(CUstream, CUstreamCaptureMode)>("cuStreamBeginCapture_v2");
  const auto end = libcuda_function<CUresult(CUstream, CUgraph*)>("cuStreamEndCapture");
  check(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  EXPECT_TRUE(is_capturing(stream));
  const Workspace inside = pooled_workspace(0, stream, size);
  EXPECT_EQ(inside.partials, pooled_workspace(0, stream, size).partials);
  const Params params = {inside.counters, 16};
  load_kernel(expect_zero_).launch(shape_, stream, &params);
  CUgraph graph = nullptr;
  check(end(stream, &graph), "cuStreamEndCapture");

  EXPECT_NE(inside.counters, outside.counters);
  EXPECT_NE(inside.partials, outside.partials);
  EXPECT_EQ(outside.partials, pooled_workspace(0, stream, size).partials);
  release_workspaces();
}

TEST_F(GpuTest, AStreamOfAnotherDeviceIsRefused) {
  if (device_count() < 2) GTEST_SKIP() << "there is one GPU";
  CUstream elsewhere = nullptr;
  {
    const ContextGuard other(1);
    elsewhere = new_stream();
  }
  const ContextGuard context(0);
  const Params params = {nullptr, 0};
  EXPECT_THROW(load_kernel(expect_zero_).launch(shape_, elsewhere, &params), Error);
  EXPECT_THROW(check_stream(elsewhere, 0), Error);
  EXPECT_NO_THROW(check_stream(elsewhere, 1));
}

}  // namespace
}  // namespace cleave
