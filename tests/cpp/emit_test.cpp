#include "cleave/emit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "cleave/device.h"
#include "cleave/error.h"
#include "emit/template.h"
#include "emit_cases.h"
#include "gemm_problems.h"
#include "plan/choice/choice.h"
#include "plan/plans/gpu_plan.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const GemmPlan> planned(GemmProblem problem) {
  problem.device = kPlanOnlyH100;
  return plan(problem);
}

EmitOptions as_cuda(EmitTarget target = EmitTarget::cpp, std::vector<std::string> archs = {}) {
  return {"projection", target, EmitSources::cuda, std::move(archs)};
}

std::vector<std::string> included(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#include \"") && line.ends_with('"')) names.push_back(line.substr(10, line.size() - 11));
  }
  return names;
}

void expect_refusal(const std::function<void()>& call, ErrorCode code, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    expect_parts(error.what(), parts);
  }
}

class Emit : public testing::TestWithParam<EmitCase> {};

TEST_P(Emit, IsCompleteAndHasNothingTooMuch) {
  const auto own = planned(GetParam().problem);
  for (const EmitTarget target : {EmitTarget::cpp, EmitTarget::pytorch}) {
    const EmittedFiles files = emit(*own, as_cuda(target));
    std::set<std::string> used;
    for (const auto& [path, text] : files) {
      for (const std::string& name : included(text)) {
        bool found = false;
        for (const char* folder : {"include/", "src/", "kernels/", "example/"}) {
          if (!files.contains(folder + name)) continue;
          used.insert(folder + name);
          found = true;
        }
        EXPECT_TRUE(found) << path << " includes " << name;
      }
    }
    for (const auto& [path, text] : files) {
      if (path.ends_with(".h")) {
        EXPECT_TRUE(used.contains(path)) << path << " is not used";
      }
    }
  }
}

TEST_P(Emit, NamesTheOperationAndNoPlaceOfThisMachine) {
  const auto own = planned(GetParam().problem);
  for (const EmitTarget target : {EmitTarget::cpp, EmitTarget::pytorch}) {
    for (const auto& [path, text] : emit(*own, as_cuda(target))) {
      EXPECT_EQ(path.find('@'), path.npos) << path;
      EXPECT_EQ(text.find("@name@"), text.npos) << path;
      EXPECT_EQ(text.find(fs::current_path().string()), text.npos) << path;
      EXPECT_EQ(text.find(fs::path(__FILE__).parent_path().string()), text.npos) << path;
    }
  }
}

std::string name_of(const testing::TestParamInfo<EmitCase>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Products, Emit, testing::ValuesIn(emit_cases()), name_of);
INSTANTIATE_TEST_SUITE_P(Convolutions, Emit, testing::ValuesIn(emit_conv_cases()), name_of);

TEST(EmitArchs, BothShareOneKernelFile) {
  const auto own = planned(product(1024, 1024, 1024, DType::bf16, DType::bf16));
  const EmittedFiles files = emit(*own, as_cuda(EmitTarget::cpp, {"sm_90a", "sm_80"}));
  expect_parts(files.at("kernels/projection.cu"), {"gemm_sm90.h", "gemm_portable.h"});
  expect_parts(files.at("CMakeLists.txt"), {"80-real;90a-real"});
  expect_parts(files.at("src/config.h"), {"kSm80Config", "kSm90aConfig"});
}

TEST(EmitArchs, NoneReliesOnThePromiseOfAPlansCalls) {
  GemmProblem problem = product(16, 4096, 4096, DType::bf16, DType::bf16);
  problem.static_b = true;
  const auto own = planned(problem);
  const GemmConfig& config = choice_of(*own)->config;
  ASSERT_TRUE(config.operands.static_a || config.operands.static_b) << own->kernel_name();
  for (const auto& [path, text] : emit(*own, as_cuda())) EXPECT_EQ(text.find("static_b = true"), text.npos) << path;
  for (const auto& [path, text] : emit(*own, as_cuda())) EXPECT_EQ(text.find("static_a = true"), text.npos) << path;
}

TEST(EmitRefuses, NamesThatAreNone) {
  const auto own = planned(product(64, 64, 64, DType::bf16, DType::bf16));
  for (const char* name : {"", "1st", "a-b", "a b", "a.b", "a__b", "_a", "\xc3\xa9"}) {
    expect_refusal([&] { emit(*own, {.name = name}); }, ErrorCode::invalid_argument, {"name is", "identifier"});
  }
  for (const char* name : {"class", "int", "std", "cleave", "torch", "errno", "stdin", "linux", "EOF", "NULL",
                           "SYS_read", "M_PIf", "size_t", "double_t", "my_t", "CUstream", "cuMemAlloc"}) {
    expect_refusal([&] { emit(*own, {.name = name}); }, ErrorCode::invalid_argument, {"name is", "pass another"});
  }
}

TEST(EmitRefuses, PlansWithoutAKernel) {
  GemmProblem on_cpu = product(64, 64, 64, DType::bf16, DType::bf16);
  on_cpu.device = kCpu;
  expect_refusal([&] { emit(*plan(on_cpu), as_cuda()); }, ErrorCode::invalid_argument, {"CPU", "plan for"});
  const auto empty = planned(product(0, 64, 64, DType::bf16, DType::bf16));
  expect_refusal([&] { emit(*empty, as_cuda()); }, ErrorCode::invalid_argument, {"empty D"});
}

TEST(EmitRefuses, ABackwardThatIsNone) {
  const auto own = planned(with_reductions(product(512, 256, 512, DType::bf16, DType::bf16), over_rows()));
  EmitOptions options = as_cuda(EmitTarget::pytorch);
  options.backward = "acc = cosine grad_d";
  expect_refusal([&] { emit(*own, options); }, ErrorCode::invalid_argument, {"cosine"});
}

TEST(EmitReductions, AreOutputsOfExtensions) {
  const auto own = planned(with_reductions(product(512, 256, 512, DType::bf16, DType::bf16), over_rows()));
  EmitOptions options = as_cuda(EmitTarget::pytorch);
  options.backward = "grad_d matrix\nacc = multiply grad_d 2";
  const std::string python = emit(*own, options).at("projection/_operation.py");
  expect_parts(python, {"\"total\": (torch.float32, \"row\")", "\"largest\": (torch.float32, \"scalar\")",
                        "BACKWARD = \"\"\"", "multiply grad_d 2"});
}

TEST(EmitReductions, HaveASecondKernel) {
  const auto own = planned(with_reductions(product(512, 256, 512, DType::bf16, DType::bf16), over_rows()));
  const EmittedFiles files = emit(*own, as_cuda(EmitTarget::cpp, {"sm_90a", "sm_80"}));
  expect_parts(files.at("kernels/projection.cu"), {"sm_80_reduce(", "sm_90a_reduce(", "reduce_partials.h"});
  expect_parts(files.at("include/emitted/projection.h"),
               {"RowOutput total;", "ScalarOutput largest;", "total = sum(v2, over=\"rows\")",
                "largest = absmax(acc, over=\"all\")"});
}

/// A call's C may lie anywhere: it does not come by bulk copies, nor does TMA add to it, and operands have the room
/// that either would take.
TEST(EmitGroups, AddToRowsThatLieAnywhere) {
  for (const int64_t k : {512, 8192}) {  // shallow and deep groups
    GemmProblem p = product(256, 256, k, DType::bf16, DType::f32, 1, false, true);
    p.has_c = true;
    p.c = p.d;
    const auto own = planned(grouped(p, Grouping::k));
    EXPECT_NE(choice_of(*own)->config.epilogue.c_words, choice_of(*own)->config.store.adds);
    const EmittedFiles aligned = emit(*own, as_cuda());
    p.c.alignment = 4;
    EXPECT_EQ(emit(*planned(grouped(p, Grouping::k)), as_cuda()).at("src/config.h"), aligned.at("src/config.h"));
    expect_parts(aligned.at("src/config.h"), {".has_c = true", ".c_words = false", ".adds = false"});
  }
}

TEST(EmitRefuses, GroupsThatLieApart) {
  const auto own = planned(grouped(product(64, 64, 256, DType::bf16, DType::bf16), Grouping::k,
                                   {.bounds = GroupBounds::aligned_ends, .spacing = 128, .apart = true}));
  expect_refusal([&] { emit(*own, as_cuda()); }, ErrorCode::unsupported, {"groups lie apart", "plan for a of"});
}

TEST(EmitRefuses, ArchitecturesThatLackTheOperation) {
  const auto fp8 = planned(product(64, 64, 64, DType::e4m3, DType::bf16));
  expect_refusal([&] { emit(*fp8, as_cuda(EmitTarget::cpp, {"sm_80"})); }, ErrorCode::unsupported,
                 {"sm_80 has no kernel"});
  expect_refusal([&] { emit(*fp8, as_cuda(EmitTarget::cpp, {"sm_70"})); }, ErrorCode::invalid_argument,
                 {"sm_70", "it must be"});
}

class EmitFolder : public testing::Test {
 protected:
  EmitFolder() { fs::create_directories(home_); }
  ~EmitFolder() override { fs::remove_all(home_); }

  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(home_)) names.push_back(entry.path().filename().string());
    return names;
  }

  const fs::path home_ = fs::path(testing::TempDir()) / ("cleave_emit_folder_" + std::to_string(getpid()));
  const EmittedFiles files_ = {{"a.txt", "one\n"}, {"b/c.txt", std::string("\0two", 4)}};
};

TEST_F(EmitFolder, IsWrittenWhole) {
  for (const char* name : {"new", "deep/down", "slash/"}) {
    write_folder(files_, home_ / name);
    std::ifstream file(home_ / name / "b/c.txt", std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(text.str(), files_.at("b/c.txt"));
  }
  EXPECT_EQ(entries().size(), 3u);
}

TEST_F(EmitFolder, MayExistIfEmpty) {
  fs::create_directory(home_ / "empty");
  write_folder(files_, home_ / "empty");
  EXPECT_TRUE(fs::exists(home_ / "empty/a.txt"));
}

TEST_F(EmitFolder, IsRefusedWithSomethingInIt) {
  write_folder(files_, home_ / "full");
  const auto write = [&](const char* name) { return [this, name] { write_folder({{"new.txt", ""}}, home_ / name); }; };
  expect_refusal(write("full"), ErrorCode::invalid_argument, {"sourcedir is", "not an empty"});
  expect_refusal(write("full/a.txt"), ErrorCode::invalid_argument, {"sourcedir is"});
  EXPECT_FALSE(fs::exists(home_ / "full/new.txt"));
  EXPECT_EQ(entries(), std::vector<std::string>{"full"});
}

/// Whatever another user, or a killed process of the same number, may have left.
TEST_F(EmitFolder, TakesNothingThatLiesBeside) {
  const fs::path planted = home_ / fmt::format(".new.{}", getpid());
  fs::create_directories(planted);
  std::ofstream(planted / "evil.txt") << "evil";
  std::ofstream(home_ / "mine.txt") << "mine";
  fs::create_symlink(home_ / "mine.txt", planted / "a.txt");
  write_folder(files_, home_ / "new");
  EXPECT_FALSE(fs::exists(home_ / "new/evil.txt"));
  EXPECT_FALSE(fs::is_symlink(home_ / "new/a.txt"));
  EXPECT_TRUE(fs::exists(planted / "evil.txt"));
  std::stringstream mine;
  mine << std::ifstream(home_ / "mine.txt").rdbuf();
  EXPECT_EQ(mine.str(), "mine");
  EXPECT_EQ(entries().size(), 3u);
}

TEST_F(EmitFolder, IsNoLink) {
  fs::create_directory(home_ / "other");
  fs::create_directory_symlink(home_ / "other", home_ / "link");
  expect_refusal([&] { write_folder(files_, home_ / "link"); }, ErrorCode::invalid_argument, {"cannot be written"});
  EXPECT_TRUE(fs::is_empty(home_ / "other"));
  EXPECT_EQ(entries().size(), 2u);
}

TEST_F(EmitFolder, HasTheModesOfTheUmask) {
  for (const mode_t mask : {022, 027, 077}) {
    const fs::path folder = home_ / std::to_string(mask);
    const mode_t before = umask(mask);
    write_folder(files_, folder);
    umask(before);
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms(0777 & ~mask));
    EXPECT_EQ(fs::status(folder / "b").permissions(), fs::perms(0777 & ~mask));
    EXPECT_EQ(fs::status(folder / "a.txt").permissions(), fs::perms(0666 & ~mask));
  }
}

TEST_F(EmitFolder, LeavesNothingBehindOnAnError) {
  // One path is a file and a folder.
  const EmittedFiles impossible = {{"a", "file"}, {"a/b", "file"}};
  expect_refusal([&] { write_folder(impossible, home_ / "new"); }, ErrorCode::invalid_argument, {"cannot be written"});
  EXPECT_TRUE(entries().empty());
}

TEST(EmitTemplate, FillsGapsAndKeepsOtherSigns) {
  const Vocabulary words{{{"name", "x"}, {"sum", "a + b"}}, {}};
  EXPECT_EQ(expand("@name@ = @sum@;\n@other me@domain @NAME@ @", words), "x = a + b;\n@other me@domain @NAME@ @");
  EXPECT_THROW(expand("@unknown@", words), std::logic_error);
}

TEST(EmitTemplate, KeepsLinesByTheirFlags) {
  const std::string text = "@if yes\n1\n@if no\n2\n@else\n3\n@end\n@else\n4\n@end\n@if !no\n5\n@end\n";
  EXPECT_EQ(expand(text, {{}, {{"yes", true}, {"no", false}}}), "1\n3\n5\n");
  EXPECT_EQ(expand(text, {{}, {{"yes", false}, {"no", true}}}), "4\n");
  EXPECT_EQ(expand("@if yes: @if: 1\n@if no: 2\n@if !no: 3\n", {{}, {{"yes", true}, {"no", false}}}), "@if: 1\n3\n");
  EXPECT_THROW(expand("@if unknown: 1\n", {}), std::logic_error);
  EXPECT_THROW(expand("@if yes\n", {{}, {{"yes", true}}}), std::logic_error);
  EXPECT_THROW(expand("@end\n", {}), std::logic_error);
  EXPECT_THROW(expand("@if unknown\n@end\n", {}), std::logic_error);
  const Vocabulary two{{{"word", "w"}}, {{"yes", true}, {"no", false}}, {{{"arch", "a"}}, {{"arch", "b"}}}};
  EXPECT_EQ(expand("@for arch\n@arch@\n@if yes\n@word@\n@end\n@end\n.", two), "a\nw\nb\nw\n.");
  EXPECT_EQ(expand("@if no\n@for arch\n@arch@\n@end\n@end\n.", two), ".");
  EXPECT_THROW(expand("@for arch\n@if yes\n@end\n", two), std::logic_error);
}

TEST(EmitTemplate, MayBelongToOneFlagAsAWhole) {
  EXPECT_EQ(expand_file("@only yes\ntext\n", {{}, {{"yes", true}}}), "text\n");
  EXPECT_EQ(expand_file("@only yes\ntext\n", {{}, {{"yes", false}}}), std::nullopt);
  EXPECT_EQ(expand_file("text\n", {}), "text\n");
}

}  // namespace
}  // namespace cleave
