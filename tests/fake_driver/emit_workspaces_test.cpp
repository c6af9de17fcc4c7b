// Which launches of an emitted extension share a workspace.
#include <cuda.h>

#include <set>
#include <thread>

#include "emit_cases.h"
#include "emitted_project.h"

namespace cleave {
namespace {

constexpr size_t kCounters = 4096, kFewPartials = 4096;

/// The counters and partial sums that a launch on `stream` gets.
struct Got {
  void *counters, *partials;
};

struct Probe {
  void* (*new_workspaces)();
  Got (*get)(void* workspaces, void* stream, size_t counters, size_t partials);
};

constexpr char kProbe[] = R"(#include "torch_workspaces.h"

using emitted::workspaces::Workspaces;

struct Got {
  void *counters, *partials;
};

extern "C" __attribute__((visibility("default"))) void* new_workspaces() {
  return new Workspaces;
}
extern "C" __attribute__((visibility("default"))) Got get(void* workspaces, void* stream,
                                                          size_t counters, size_t partials) {
  const auto got = static_cast<Workspaces*>(workspaces)->get(static_cast<CUstream>(stream),
                                                             counters, partials);
  return {got.counters, got.partials};
}

#include "src/driver.cpp"
)";

Probe make_probe() {
  const GemmProblem problem = split(product(128, 128, 8192, DType::bf16, DType::f32), SplitKMode::parallel, 8);
  const fs::path folder = new_folder("workspaces");
  write_folder(
      emit(*plan(problem), {.name = "workspaces", .target = EmitTarget::pytorch, .sources = EmitSources::cubin}),
      folder);
  std::ofstream(folder / "probe.cpp") << kProbe;
  void* const library = build_probe(folder);
  fs::remove_all(folder);
  if (library == nullptr) return {};
  return {reinterpret_cast<decltype(Probe::new_workspaces)>(dlsym(library, "new_workspaces")),
          reinterpret_cast<decltype(Probe::get)>(dlsym(library, "get"))};
}

class EmitWorkspaces : public testing::Test {
 protected:
  void SetUp() override {
    static const Probe probe = make_probe();
    ASSERT_NE(probe.get, nullptr);
    get_ = probe.get;
    workspaces_ = probe.new_workspaces();  // leaked, as extensions do
  }
  void TearDown() override { fake_driver_set_stream_id(1); }

  Got get(void* stream, size_t partials = kFewPartials) const { return get_(workspaces_, stream, kCounters, partials); }

 private:
  decltype(Probe::get) get_ = nullptr;
  void* workspaces_ = nullptr;
};

/// A stream may be made anew while work of the one that had its handle still runs.
TEST_F(EmitWorkspaces, AreTheStreamsAndNotItsHandles) {
  void* const handle = address<void>(0);
  fake_driver_set_stream_id(7);
  const Got first = get(handle);
  EXPECT_EQ(get(handle).counters, first.counters);
  EXPECT_EQ(get(handle).partials, first.partials);
  fake_driver_set_stream_id(8);
  const Got second = get(handle);
  EXPECT_NE(second.counters, first.counters);
  EXPECT_NE(second.partials, first.partials);
}

/// Every thread's default stream has the same handle, and is a stream of its own.
TEST_F(EmitWorkspaces, AreEachThreadsOnTheDefaultStreamOfThreads) {
  const Got mine = get(CU_STREAM_PER_THREAD);
  EXPECT_EQ(get(CU_STREAM_PER_THREAD).counters, mine.counters);
  Got other = mine;
  std::thread([&] { other = get(CU_STREAM_PER_THREAD); }).join();
  EXPECT_NE(other.counters, mine.counters);
  EXPECT_NE(other.partials, mine.partials);
}

/// Many partial sums, and those of the streams after the first ones, are PyTorch's to bring.
TEST_F(EmitWorkspaces, KeepFewPartialSums) {
  EXPECT_EQ(get(nullptr, size_t(2) << 20).partials, nullptr);
  std::set<void*> counters, partials;
  for (uint64_t id = 100; id < 300; ++id) {
    fake_driver_set_stream_id(id);
    const Got got = get(nullptr);
    counters.insert(got.counters);
    if (got.partials != nullptr) partials.insert(got.partials);
  }
  EXPECT_EQ(counters.size(), 200u);
  EXPECT_EQ(partials.size(), 64u);
}

}  // namespace
}  // namespace cleave
