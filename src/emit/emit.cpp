#include "cleave/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/embedded.h"
#include "emit/choices.h"
#include "emit/closure.h"
#include "emit/name.h"
#include "emit/operation.h"
#include "jit/compiler.h"
#include "jit/source.h"
#include "launch/reductions.h"
#include "plan/plans/reduce_kernel.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// A cubin as numbers of 8 bytes, five in a line.
std::string as_numbers(const std::string& bytes) {
  std::string text;
  for (size_t at = 0, count = 0; at < bytes.size(); at += 8, ++count) {
    uint64_t number = 0;
    std::memcpy(&number, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    text += fmt::format("{}0x{:016x},", count % 5 == 0 ? count == 0 ? "    " : "\n    " : " ", number);
  }
  return text;
}

/// The templates below `folder`, filled in.
void add_templates(std::string_view folder, const Vocabulary& vocabulary, EmittedFiles& files) {
  constexpr std::string_view kEnding = ".in";
  for (const EmbeddedFile& file : embedded_templates()) {
    std::string_view name = file.name;
    if (!name.starts_with(folder)) continue;
    name.remove_prefix(folder.size());
    name.remove_suffix(kEnding.size());
    if (auto text = expand_file(file.text, vocabulary)) files.emplace(expand(name, vocabulary), std::move(*text));
  }
}

std::string with_word(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

/// The code below `folder`, which has the operation's name where it says "operation".
void add_code(std::string_view folder, const std::string& name, EmittedFiles& files) {
  const std::pair<const char*, std::string> words[] = {{"expected_operation", "expected_" + name},
                                                       {"finish_operation", "finish_" + name},
                                                       {"operands_operation", "operands_" + name},
                                                       {"packed_operation", "packed_" + name},
                                                       {"emitted::operation", "emitted::" + name},
                                                       {"\"emitted/operation.h\"", "\"emitted/" + name + ".h\""},
                                                       {"import operation\n", "import " + name + " as operation\n"},
                                                       {"from operation import", "from " + name + " import"},
                                                       {"from operation.", "from " + name + "."}};
  for (const EmbeddedFile& file : embedded_project()) {
    const std::string_view path = file.name;
    if (!path.starts_with(folder)) continue;
    std::string text = file.text;
    for (const auto& [from, to] : words) text = with_word(std::move(text), from, to);
    std::string place(path.substr(folder.size()));
    place = with_word(std::move(place), "package/", name + "/");
    files.emplace(with_word(std::move(place), "_operation.py", "_" + name + ".py"), std::move(text));
  }
}

void add_images(const std::vector<ArchChoice>& choices, const Vocabulary& vocabulary, EmittedFiles& files) {
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string name = choices[i].name();
    const GemmConfig& config = choices[i].choice.config;
    const auto add = [&](const std::string& source, const char* text, const std::string& image, const char* ending) {
      const std::string cubin = compile(source, choices[i].arch).cubin;
      Vocabulary own = vocabulary;
      own.words.insert(vocabulary.archs[i].begin(), vocabulary.archs[i].end());
      own.words["image"] = image;
      own.words["image_text"] = text;
      own.words["image_constant"] = own.words["constant"] + ending;
      own.words["image_bytes"] = std::to_string(cubin.size());
      own.words["image_numbers"] = as_numbers(cubin);
      add_templates("image/", own, files);
    };
    add(gemm_source(config), "The kernel", name, "Image");
    if (config.epilogue.function.reduces())
      add(reduce_source(reduce_config(config)), "What joins partial results", name + "_reduce", "ReduceImage");
  }
}

}  // namespace

EmittedFiles emit(const GemmPlan& plan, const EmitOptions& options) {
  check_name(options.name);
  const auto choices = choose_all(plan, options.archs);
  Vocabulary vocabulary = describe(plan.problem(), choices);
  const bool cubin = options.sources == EmitSources::cubin;
  vocabulary.words["name"] = options.name;
  vocabulary.words["library"] = "Cleave";
  vocabulary.words["version"] = CLEAVE_VERSION;
  vocabulary.flags["cubin"] = cubin;
  vocabulary.flags["cuda"] = !cubin;
  describe_backward(options.backward, vocabulary);
  vocabulary.flags["reduces_compiled"] = cubin && vocabulary.flags["reduces"];
  EmittedFiles files;
  const std::string target = options.target == EmitTarget::pytorch ? "pytorch" : "cpp";
  const std::string kind = vocabulary.flags["convolution"] ? "convolution" : "product";
  const bool function = vocabulary.flags["function"];
  // PyTorch has kernels of its own for the gradients of activations.
  const std::string of_cpp = vocabulary.flags["epilogue"] ? "_function" : "_plain";
  const std::string epilogue = target + (target == "cpp" ? of_cpp : function ? "_function" : "_activation");
  const std::string weight = target + (vocabulary.flags["packed"] ? "_packed" : "_matrix");
  std::vector<std::string> folders = {"common", kind, target, target + "_" + kind, epilogue};
  if (kind == "product") folders.push_back(weight);
  for (const std::string& folder : folders) {
    add_templates(folder + "/", vocabulary, files);
    add_code(folder + "/", options.name, files);
  }
  if (cubin) add_code("cubin/", options.name, files);
  if (options.target == EmitTarget::pytorch) {
    const auto add = [&](const std::string& place, std::span<const EmbeddedFile> copied) {
      for (const EmbeddedFile& file : copied) files.emplace(options.name + place + file.name, file.text);
    };
    add("/_", embedded_sums());
    if (function) add("/function/", embedded_functions());
  }
  if (cubin) add_images(choices, vocabulary, files);
  add_included_headers(files);
  for (const EmbeddedFile& file : embedded_license()) files.emplace("kernels/LICENSE", file.text);
  return files;
}

}  // namespace cleave
