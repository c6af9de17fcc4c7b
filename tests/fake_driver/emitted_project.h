// Projects that are emitted, built by the compiler that built this, and called in this process.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cleave/emit.h"
#include "cleave/epilogue.h"
#include "expect_equal.h"
#include "fake_driver.h"
#include "launch/function_operands.h"
#include "probe.h"

namespace cleave {

namespace fs = std::filesystem;
using fake_driver::Launch;
using fake_driver::Probe;

/// Before anything asks for the compiler, or for the cache of what it made.
inline const bool environment_is_set = [] {
  setenv("CLEAVE_NVRTC", CLEAVE_TEST_COMPILER, 1);
  setenv("CLEAVE_CACHE_DIR", CLEAVE_TEST_CACHE, 1);
  return true;
}();

/// Pointers that nobody follows, far apart and aligned.
template <class T>
T* address(int which) {
  return reinterpret_cast<T*>(uintptr_t(which + 1) << 40);
}

/// Calls the emitted class `type`. `assignments`: C++ that fills its arguments `x` from `probe`.
inline std::string probe_source(const std::string& name, const char* type, const std::string& assignments) {
  return fmt::format(R"(#include "probe.h"

#include <cstring>

#include "emitted/{0}.h"

extern "C" __attribute__((visibility("default"))) void probe(fake_driver::Probe& probe) {{
  emitted::{0}::Arguments x;
{1}  static const emitted::{0}::{2} operation(0);
  std::strncpy(probe.reason, operation.why_not(x).c_str(), sizeof(probe.reason) - 1);
  if (!operation.can_implement(x)) return;
  probe.workspace_size = operation.workspace_size(x);
  probe.counter_size = operation.counter_size(x);
  const auto find_workspace = [&](size_t counters, size_t partials) {{
    probe.bytes_asked = counters + partials;
    return emitted::{0}::Workspace{{probe.counters, probe.partials}};
  }};
  operation(x, find_workspace, static_cast<CUstream>(probe.stream));
}}
)",
                     name, assignments, type);
}

inline void run(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

/// What an epilogue function reads and writes, far apart and aligned, but for numbers.
inline void set_function_arguments(const GemmProblem& p, GemmArguments& x) {
  if (p.epilogue.function == nullptr) return;
  for (size_t i = 0; i < p.epilogue.function->inputs().size(); ++i) {
    if (is_number(p.epilogue.inputs[i]))
      x.epilogue_inputs[i].value = 0.25f;
    else
      x.epilogue_inputs[i].data = address<void>(int(30 + i));
  }
  for (size_t i = 0; i + 1 < p.epilogue.function->outputs().size(); ++i)
    x.epilogue_outputs[i] = address<void>(int(40 + i));
}

/// Arguments for every operand of the problem, of which nobody follows a pointer.
inline GemmArguments some_arguments(const GemmProblem& p) {
  const bool grouped = p.groups.dimension != Grouping::none;
  const bool counts = p.groups.bounds == GroupBounds::counts;
  const bool sizes = counts || p.groups.bounds == GroupBounds::starts;
  GemmArguments x{.a = address<void>(0),
                  .b = address<void>(1),
                  .c = p.has_c ? address<void>(2) : nullptr,
                  .d = address<void>(3),
                  .bias = p.bias != Bias::none ? address<void>(4) : nullptr,
                  .alpha = p.d.dtype == DType::i32 ? 1.0f : 0.5f,
                  .beta = p.has_c ? 2.0f : 0.0f,
                  .scale_a = p.scale_a.kind != Scaling::none ? address<float>(5) : nullptr,
                  .scale_b = p.scale_b.kind != Scaling::none ? address<float>(6) : nullptr,
                  .weight_scale = p.weights_b.format != WeightFormat::none ? address<void>(13) : nullptr,
                  .weight_zero = p.weights_b.has_zero ? address<uint8_t>(14) : nullptr,
                  .zero_a = p.has_zero ? address<int32_t>(7) : nullptr,
                  .zero_b = p.has_zero ? address<int32_t>(8) : nullptr,
                  .scale_d = p.has_scale_d ? address<float>(9) : nullptr,
                  .group_offsets = grouped && !counts ? address<void>(10) : nullptr,
                  .group_sizes = grouped && sizes ? address<void>(11) : nullptr,
                  .amax = p.has_amax ? address<float>(12) : nullptr};
  set_function_arguments(p, x);
  return x;
}

/// The same as the emitted arguments' values.
inline std::string function_assignments(const GemmProblem& p) {
  std::string text;
  if (p.epilogue.function == nullptr) return text;
  for (size_t i = 0; i < p.epilogue.function->inputs().size(); ++i) {
    const char* const member = is_number(p.epilogue.inputs[i]) ? "value" : "data";
    text += fmt::format("  x.inputs.{}.{} = probe.arguments.epilogue_inputs[{}].{};\n",
                        p.epilogue.function->inputs()[i].name, member, i, member);
  }
  for (size_t i = 0; i + 1 < p.epilogue.function->outputs().size(); ++i) {
    text += fmt::format("  x.outputs.{}.data = probe.arguments.epilogue_outputs[{}];\n",
                        p.epilogue.function->outputs()[i + 1].name, i);
  }
  return text;
}

/// A folder for an emitted project.
inline fs::path new_folder(const std::string& name) {
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("cleave_emit_{}_{}", name, getpid());
  fs::remove_all(folder);
  return folder;
}

/// The folder's probe.cpp as a library, which nothing of the driver's is linked with, loaded. The
/// compiler warns of nothing in it.
inline void* build_probe(const fs::path& folder) {
  run(fmt::format(
      "{0} {4} -shared -include '{5}' "
      "-I{1}/include -I{1}/src -I{1}/kernels -isystem '{2}' "
      "'-I{3}/include' '-I{3}/tests/fake_driver' {1}/probe.cpp -o {1}/project.so",
      CLEAVE_TEST_CXX, folder.string(), CLEAVE_TEST_CUDA, CLEAVE_TEST_SOURCE, CLEAVE_TEST_FLAGS, CLEAVE_TEST_STANDARD));
  void* const library = dlopen((folder / "project.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

/// An emitted project, built as a library.
class Project {
 public:
  Project(const std::string& name, const GemmPlan& plan, const std::string& assignments) : folder_(new_folder(name)) {
    const EmittedFiles files = emit(plan, {.name = name, .sources = EmitSources::cubin});
    write_folder(files, folder_);
    std::ofstream probe(folder_ / "probe.cpp");
    const char* const type = plan.problem().conv.kind == Conv::none ? "Gemm" : "Conv";
    probe << probe_source(name, type, assignments);
    // One translation unit compiles several times faster than six.
    probe << "#include \"example/main.cpp\"\n";
    for (const auto& [path, text] : files) {
      const bool host = path.starts_with("src/") || path.starts_with("kernels/");
      if (host && path.ends_with(".cpp")) probe << fmt::format("#include \"{}\"\n", path);
    }
    probe.close();
    if (void* const library = build_probe(folder_))
      function_ = reinterpret_cast<fake_driver::ProbeFunction*>(dlsym(library, "probe"));
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
  fs::path folder_;
  fake_driver::ProbeFunction* function_ = nullptr;
};

/// What the library launches, with the workspace in two parts as the probe has it.
inline Launch launch(const GemmPlan& plan, const GemmArguments& arguments) {
  // The library wants one piece, counters first.
  char* const partials = address<char>(21);
  plan.run(arguments, partials - plan.counter_size(), plan.workspace_size(), nullptr);
  Launch own = *fake_driver_last_launch();
  own.params().counters = address<uint32_t>(20);
  return own;
}

/// Two calls' second kernels, if there are any: none, or one of each and the same.
inline void expect_equal_joins(const Launch& before, const Launch& emitted, const Launch& own, bool joins) {
  ASSERT_EQ(emitted.count, before.count + joins);
  ASSERT_EQ(own.count, emitted.count + joins);
  if (!joins) return;
  EXPECT_EQ(emitted.blocks, own.blocks);
  EXPECT_EQ(emitted.threads, own.threads);
  EXPECT_EQ(emitted.cluster, own.cluster);
  EXPECT_EQ(emitted.shared_bytes, own.shared_bytes);
  EXPECT_EQ(emitted.programmatic, own.programmatic);
  expect_equal(emitted.params<ReduceParams>(), own.params<ReduceParams>());
}

}  // namespace cleave
