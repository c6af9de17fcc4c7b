// Emitted projects launch what the library launches: the same grid with the same parameters. Each
// is emitted, built by the compiler that built this, and called in this process. No GPU is needed,
// since the driver is a fake one.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cleave/emit.h"
#include "emit_cases.h"
#include "fake_driver.h"
#include "plan/gpu_plan.h"
#include "plan/make_plan.h"
#include "probe.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using fake_driver::Launch;
using fake_driver::Probe;

/// Pointers that nobody follows, far apart and aligned.
template <class T>
T* address(int which) {
  return reinterpret_cast<T*>(uintptr_t(which + 1) << 40);
}

GemmArguments some_arguments(const GemmProblem& p) {
  const bool grouped = p.groups.dimension != Grouping::none;
  const bool counts = p.groups.bounds == GroupBounds::counts;
  const bool sizes = counts || p.groups.bounds == GroupBounds::starts;
  return {.a = address<void>(0),
          .b = address<void>(1),
          .c = p.has_c ? address<void>(2) : nullptr,
          .d = address<void>(3),
          .bias = p.bias != Bias::none ? address<void>(4) : nullptr,
          .alpha = p.d.dtype == DType::i32 ? 1.0f : 0.5f,
          .beta = p.has_c ? 2.0f : 0.0f,
          .scale_a = p.scale_a.kind != Scaling::none ? address<float>(5) : nullptr,
          .scale_b = p.scale_b.kind != Scaling::none ? address<float>(6) : nullptr,
          .zero_a = p.has_zero ? address<int32_t>(7) : nullptr,
          .zero_b = p.has_zero ? address<int32_t>(8) : nullptr,
          .scale_d = p.has_scale_d ? address<float>(9) : nullptr,
          .group_offsets = grouped && !counts ? address<void>(10) : nullptr,
          .group_sizes = grouped && sizes ? address<void>(11) : nullptr,
          .amax = p.has_amax ? address<float>(12) : nullptr};
}

/// The emitted arguments' values, where the operation has them.
std::string assignments(const GemmProblem& p) {
  const GroupLayout& groups = p.groups;
  const bool grouped = groups.dimension != Grouping::none;
  const bool counts = groups.bounds == GroupBounds::counts;
  std::string text;
  const auto set = [&](bool given, const char* name, const std::string& value) {
    if (given) text += fmt::format("  x.{} = {};\n", name, value);
  };
  const auto pointer = [&](bool given, const char* name, const char* from) {
    set(given, name, fmt::format("static_cast<decltype(x.{})>(probe.arguments.{})", name, from));
  };
  for (const char* name : {"m", "n", "k"}) set(true, name, fmt::format("probe.problem.{}", name));
  set(true, grouped ? "groups" : "batch", "probe.problem.batch");
  set(true, "alpha", "probe.arguments.alpha");
  set(p.has_c, "beta", "probe.arguments.beta");
  for (const char* name : {"a", "b", "d"}) pointer(true, name, name);
  pointer(p.has_c, "c", "c");
  pointer(p.bias != Bias::none, "bias", "bias");
  set(p.bias != Bias::none && p.bias_stride_batch != 0, "batch_stride_bias",
      "probe.problem.bias_stride_batch");
  pointer(p.scale_a.kind != Scaling::none, "scale_a", "scale_a");
  pointer(p.scale_b.kind != Scaling::none, "scale_b", "scale_b");
  pointer(p.has_zero, "zero_a", "zero_a");
  pointer(p.has_zero, "zero_b", "zero_b");
  pointer(p.has_scale_d, "scale_d", "scale_d");
  pointer(p.has_amax, "amax", "amax");
  pointer(grouped && !counts, "offsets", "group_offsets");
  pointer(grouped && (counts || groups.bounds == GroupBounds::starts), "sizes", "group_sizes");
  return text;
}

std::string probe_source(const std::string& name, const GemmProblem& p) {
  return fmt::format(R"(#include "probe.h"

#include <cstring>

#include "{0}.h"

extern "C" __attribute__((visibility("default"))) void probe(fake_driver::Probe& probe) {{
  {0}::Arguments x;
{1}  static const {0}::Gemm gemm(0);
  std::strncpy(probe.reason, gemm.why_not(x).c_str(), sizeof(probe.reason) - 1);
  if (!gemm.can_implement(x)) return;
  probe.workspace_size = gemm.workspace_size(x);
  probe.counter_size = gemm.counter_size(x);
  gemm(x, probe.counters, probe.partials, static_cast<CUstream>(probe.stream));
}}
)",
                     name, assignments(p));
}

void run(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

/// An emitted project, built as a library.
class Project {
 public:
  Project(const std::string& name, const GemmPlan& plan)
      : folder_(fs::path(testing::TempDir()) / fmt::format("cleave_emit_{}_{}", name, getpid())) {
    fs::remove_all(folder_);
    const EmittedFiles files = emit(plan, {.name = name, .sources = EmitSources::cubin});
    write_folder(files, folder_);
    std::ofstream probe(folder_ / "probe.cpp");
    probe << probe_source(name, plan.problem());
    // One translation unit compiles several times faster than five.
    for (const auto& [path, text] : files) {
      const bool host = path.starts_with("src/") || path.starts_with("kernels/");
      if (host && path.ends_with(".cpp")) probe << fmt::format("#include \"{}\"\n", path);
    }
    probe.close();
    build();
  }
  ~Project() { fs::remove_all(folder_); }

  Probe call(const GemmProblem& problem, const GemmArguments& arguments) const {
    Probe probe{.problem = problem,
                .arguments = arguments,
                .counters = address<void>(20),
                .partials = address<void>(21),
                .stream = nullptr};
    function_(probe);
    return probe;
  }

  bool is_built() const { return function_ != nullptr; }

 private:
  void build() {
    const std::string folder = folder_.string();
    run(fmt::format(
        "{0} -std=c++20 -O0 -Wall -Wextra -Werror -Wno-missing-field-initializers "
        "-shared -fPIC -fvisibility=hidden -fvisibility-inlines-hidden "
        "-I{1}/include -I{1}/src -I{1}/kernels -isystem {2} -I{3}/include "
        "-I{3}/tests/fake_driver {1}/probe.cpp "
        "-o {1}/project.so {4}",
        CLEAVE_TEST_CXX, folder, CLEAVE_TEST_CUDA, CLEAVE_TEST_SOURCE, CLEAVE_TEST_DRIVER));
    library_ = dlopen((folder + "/project.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    function_ = reinterpret_cast<fake_driver::ProbeFunction*>(dlsym(library_, "probe"));
  }

  fs::path folder_;
  void* library_ = nullptr;
  fake_driver::ProbeFunction* function_ = nullptr;
};

void expect_equal(const char* what, const TensorMap& x, const TensorMap& y) {
  for (int i = 0; i < 16; ++i) EXPECT_EQ(x.words[i], y.words[i]) << what << " word " << i;
}

void expect_equal(const FastDivmod& x, const FastDivmod& y) {
  EXPECT_EQ(x.divisor, y.divisor);
  EXPECT_EQ(x.multiplier, y.multiplier);
  EXPECT_EQ(x.shift, y.shift);
}

void expect_equal(const Shares& x, const Shares& y) {
  EXPECT_EQ(x.base, y.base);
  EXPECT_EQ(x.extra, y.extra);
}

/// `k_grouped`: what a schedule says of K is then not used.
void expect_equal(const Schedule& x, const Schedule& y, bool k_grouped) {
  expect_equal(x.raster.per_batch, y.raster.per_batch);
  expect_equal(x.raster.per_band, y.raster.per_band);
  expect_equal(x.raster.width, y.raster.width);
  expect_equal(x.raster.last_width, y.raster.last_width);
  EXPECT_EQ(x.raster.full_bands, y.raster.full_bands);
  EXPECT_EQ(x.raster.bands_along_m, y.raster.bands_along_m);
  EXPECT_EQ(x.tiles, y.tiles);
  EXPECT_EQ(x.tiles_across, y.tiles_across);
  EXPECT_EQ(x.slices, y.slices);
  EXPECT_EQ(x.ranks, y.ranks);
  EXPECT_EQ(x.bundles, y.bundles);
  expect_equal(x.tiles_divmod, y.tiles_divmod);
  EXPECT_EQ(x.stream_tiles, y.stream_tiles);
  EXPECT_EQ(x.reduce_chunks, y.reduce_chunks);
  expect_equal(x.reduce_chunks_divmod, y.reduce_chunks_divmod);
  if (k_grouped) return;
  EXPECT_EQ(x.k_blocks, y.k_blocks);
  expect_equal(x.slice_shares, y.slice_shares);
  expect_equal(x.worker_shares, y.worker_shares);
  expect_equal(x.k_blocks_divmod, y.k_blocks_divmod);
}

void expect_equal(const GroupParams& x, const GroupParams& y) {
  EXPECT_EQ(x.offsets, y.offsets);
  EXPECT_EQ(x.sizes, y.sizes);
  EXPECT_EQ(x.bounds, y.bounds);
  EXPECT_EQ(x.wide, y.wide);
  EXPECT_EQ(x.zero_rest, y.zero_rest);
  EXPECT_EQ(x.count, y.count);
  EXPECT_EQ(x.spacing, y.spacing);
  EXPECT_EQ(x.extent, y.extent);
}

/// `batched`: else the strides of a batch do not matter.
void expect_equal(const EpilogueParams& x, const EpilogueParams& y, bool batched) {
  EXPECT_EQ(x.alpha, y.alpha);
  EXPECT_EQ(x.beta, y.beta);
  EXPECT_EQ(x.d, y.d);
  EXPECT_EQ(x.c, y.c);
  EXPECT_EQ(x.bias, y.bias);
  EXPECT_EQ(x.d_stride, y.d_stride);
  EXPECT_EQ(x.c_stride, y.c_stride);
  EXPECT_EQ(x.m, y.m);
  EXPECT_EQ(x.n, y.n);
  EXPECT_EQ(x.zero_a, y.zero_a);
  EXPECT_EQ(x.zero_b, y.zero_b);
  EXPECT_EQ(x.scale_d, y.scale_d);
  EXPECT_EQ(x.amax, y.amax);
  if (!batched) return;
  EXPECT_EQ(x.d_batch_stride, y.d_batch_stride);
  EXPECT_EQ(x.c_batch_stride, y.c_batch_stride);
  EXPECT_EQ(x.bias_batch_stride, y.bias_batch_stride);
}

void expect_equal_scales(const EpilogueParams& x, const EpilogueParams& y, bool batched) {
  EXPECT_EQ(x.scale_a, y.scale_a);
  EXPECT_EQ(x.scale_b, y.scale_b);
  EXPECT_EQ(x.scale_a_stride, y.scale_a_stride);
  EXPECT_EQ(x.scale_b_stride, y.scale_b_stride);
  if (!batched) return;
  EXPECT_EQ(x.scale_a_batch_stride, y.scale_a_batch_stride);
  EXPECT_EQ(x.scale_b_batch_stride, y.scale_b_batch_stride);
}

void expect_equal(const OperandParams& x, const OperandParams& y, bool batched) {
  EXPECT_EQ(x.data, y.data);
  EXPECT_EQ(x.stride, y.stride);
  if (!batched) return;
  EXPECT_EQ(x.batch_stride, y.batch_stride);
}

void expect_equal(const BlockScales& x, const BlockScales& y, bool batched) {
  EXPECT_EQ(x.data, y.data);
  EXPECT_EQ(x.stride_row, y.stride_row);
  EXPECT_EQ(x.stride_k, y.stride_k);
  if (!batched) return;
  EXPECT_EQ(x.stride_batch, y.stride_batch);
}

void expect_equal(const Launch& emitted, const Launch& own, const GemmProblem& p,
                  const GemmConfig& config) {
  EXPECT_EQ(emitted.blocks, own.blocks);
  EXPECT_EQ(emitted.threads, own.threads);
  EXPECT_EQ(emitted.cluster, own.cluster);
  EXPECT_EQ(emitted.shared_bytes, own.shared_bytes);
  EXPECT_EQ(emitted.programmatic, own.programmatic);
  const GemmParams &x = emitted.params, &y = own.params;
  const bool batched = p.batch > 1;
  if (config.family == KernelFamily::sm90) {
    expect_equal("map_a", x.map_a, y.map_a);
    expect_equal("map_b", x.map_b, y.map_b);
    if (config.store_by_tma) expect_equal("map_d", x.map_d, y.map_d);
    EXPECT_EQ(x.batched_a, y.batched_a);
    EXPECT_EQ(x.batched_b, y.batched_b);
  } else {
    expect_equal(x.a, y.a, batched);
    expect_equal(x.b, y.b, batched);
    EXPECT_EQ(x.k, y.k);
  }
  expect_equal(x.schedule, y.schedule, config.grouping == Grouping::k);
  expect_equal(x.epilogue, y.epilogue, batched);
  if (config.grouping != Grouping::none) expect_equal(x.groups, y.groups);
  if (config.scaling == Scaling::vector) expect_equal_scales(x.epilogue, y.epilogue, batched);
  if (config.scaling == Scaling::block) {
    expect_equal(x.scales_a, y.scales_a, batched);
    expect_equal(x.scales_b, y.scales_b, batched);
  }
  if (p.split_k_mode != SplitKMode::none && config.split != SplitKMode::none &&
      config.split != SplitKMode::cluster) {
    EXPECT_EQ(x.counters, y.counters);
    EXPECT_EQ(x.partials, y.partials);
  }
}

/// What the library launches, with the workspace in two parts as the probe has it.
Launch launch(const GemmPlan& plan, const GemmArguments& arguments) {
  // The library wants one piece, counters first.
  char* const partials = address<char>(21);
  plan.run(arguments, partials - plan.counter_size(), plan.workspace_size(), nullptr);
  Launch own = *fake_driver_last_launch();
  own.params.counters = address<uint32_t>(20);
  return own;
}

class EmitLaunch : public testing::TestWithParam<EmitCase> {};

TEST_P(EmitLaunch, IsTheLibrarys) {
  const GemmProblem& problem = GetParam().problem;
  const auto own = plan(problem);
  const GemmConfig& config = choice_of(*own)->config;
  const Project project(GetParam().name, *own);
  ASSERT_TRUE(project.is_built());
  const GemmArguments arguments = some_arguments(problem);

  const Probe probe = project.call(problem, arguments);
  ASSERT_STREQ(probe.reason, "");
  EXPECT_EQ(probe.workspace_size, own->workspace_size());
  EXPECT_EQ(probe.counter_size, own->counter_size());
  const Launch emitted = *fake_driver_last_launch();
  const Launch expected = launch(*own, arguments);
  EXPECT_EQ(expected.count, emitted.count + 1);
  expect_equal(emitted, expected, problem, config);
}

std::string name_of(const testing::TestParamInfo<EmitCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Operations, EmitLaunch, testing::ValuesIn(emit_cases()), name_of);

/// The kernel of one plan, given the sizes of others, launches as if planned with that kernel.
TEST(EmitLaunchSizes, FollowThePlannersRules) {
  const GemmProblem planned = product(4096, 4096, 4096, DType::bf16, DType::bf16);
  const auto own = plan(planned);
  const Spec spec = choice_of(*own)->spec;
  const Project project("any_sizes", *own);
  ASSERT_TRUE(project.is_built());
  for (const auto& [m, n, k] :
       {std::array<int64_t, 3>{1024, 512, 256}, {128, 8192, 72}, {4000, 24, 8000}, {9, 16, 4096}}) {
    const GemmProblem problem = product(m, n, k, DType::bf16, DType::bf16);
    const auto other = plan_as(problem, spec);
    const GemmConfig& config = choice_of(*other)->config;
    ASSERT_EQ(config, choice_of(*own)->config);
    const GemmArguments arguments = some_arguments(problem);
    ASSERT_STREQ(project.call(problem, arguments).reason, "");
    const Launch emitted = *fake_driver_last_launch();
    expect_equal(emitted, launch(*other, arguments), problem, config);
  }
}

/// Sizes that the kernel does not serve are refused, and nothing is launched.
TEST(EmitLaunchSizes, AreRefusedWithTheReason) {
  const auto own = plan(product(4096, 4096, 4096, DType::bf16, DType::bf16));
  const Project project("some_sizes", *own);
  ASSERT_TRUE(project.is_built());
  const int before = fake_driver_last_launch()->count;
  const auto reason = [&](const GemmProblem& problem, int64_t misalignment = 0) {
    GemmArguments arguments = some_arguments(problem);
    arguments.a = static_cast<const char*>(arguments.a) + misalignment;
    return std::string(project.call(problem, arguments).reason);
  };
  const auto sized = [](int64_t m, int64_t n, int64_t k) {
    return product(m, n, k, DType::bf16, DType::bf16);
  };
  EXPECT_NE(reason(sized(64, 64, 0)).find("k is 0"), std::string::npos);
  EXPECT_NE(reason(sized(-1, 64, 64)).find("m is -1"), std::string::npos);
  EXPECT_NE(reason(sized(64, 64, 65)).find("lda is 65"), std::string::npos);
  EXPECT_NE(reason(sized(64, 60, 64)).find("multiple of 8"), std::string::npos);
  EXPECT_NE(reason(sized(64, 64, 64), 2).find("a is at"), std::string::npos);
  EXPECT_EQ(fake_driver_last_launch()->count, before);
  EXPECT_EQ(reason(sized(0, 64, 64)), "");
  EXPECT_EQ(fake_driver_last_launch()->count, before) << "an empty D needs no launch";
}

}  // namespace
}  // namespace cleave
