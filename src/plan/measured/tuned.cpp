#include "plan/measured/tuned.h"

#include <fmt/format.h>

#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "base/embedded.h"
#include "base/refuse.h"
#include "cleave/epilogue.h"
#include "jit/disk_cache.h"
#include "plan/catalogue/listed.h"
#include "plan/measured/tuned_file.h"
#include "plan/problem_text.h"
#include "problem/problem.h"
#include "process/fork.h"

namespace cleave {
namespace {

/// `p` without what is done to its sums, and of rows that lie as the product reads them.
GemmProblem bare(GemmProblem p) {
  p.gather = GatherLayout();
  p.has_c = p.has_zero = p.has_scale_d = p.has_amax = false;
  p.bias = Bias::none;
  p.epilogue = epilogue_of(is_gated(p) ? Activation::swiglu : Activation::none);
  p.conv.division = Division::automatic;
  return p;
}

/// The same of the other 16-bit float: their kernels differ in nothing but the instruction's type.
GemmProblem of_other_float(GemmProblem p) {
  for (DType* type : {&p.a.dtype, &p.b.dtype, &p.c.dtype, &p.d.dtype, &p.bias_dtype}) {
    *type = *type == DType::f16 ? DType::bf16 : *type == DType::bf16 ? DType::f16 : *type;
  }
  return p;
}

TunedFile user_file() {
  return TunedFile(DiskCache::user().directory());
}

class Table {
 public:
  Table() {
    for (const EmbeddedFile& shipped : shipped_tuned_tables()) {
      std::istringstream text{std::string(shipped.text)};
      for (std::string line; std::getline(text, line);) {
        if (const auto parsed = parse_tuned(line)) add(*parsed);
      }
    }
    for (const TunedLine& line : user_file().read().lines) add(line);
  }

  std::optional<Spec> find(const std::string& key) const {
    const std::shared_lock lock(mutex_);
    const auto it = winners_.find(key);
    return it == winners_.end() ? std::nullopt : std::optional(it->second);
  }

  /// False where no problem of these sizes was measured: saves texts of problems that are not there.
  bool has_size(const GemmProblem& p) const {
    const std::shared_lock lock(mutex_);
    return sizes_.contains(fmt::format("{}x{}x{}x{}", p.m, p.n, p.k, p.batch));
  }

  void store(const TunedLine& line) {
    const std::unique_lock lock(mutex_);
    add(line);
  }

 private:
  void add(const TunedLine& line) {
    winners_[line.key] = line.spec;
    const size_t problem = line.key.rfind(" | ") + 3;
    sizes_.insert(line.key.substr(problem, line.key.find(' ', problem) - problem));
  }

  mutable ForkSharedMutex mutex_;
  std::unordered_map<std::string, Spec> winners_;
  std::unordered_set<std::string> sizes_;
};

Table& table() {
  static constinit Lazy<Table> table;
  return table.get();
}

std::optional<Spec> find(const GemmProblem& problem, const std::string& device) {
  if (auto spec = table().find(tuned_key(device, problem_text(problem)))) return spec;
  const GemmProblem plain = bare(problem);
  return plain == problem ? std::nullopt : table().find(tuned_key(device, problem_text(plain)));
}

std::optional<Spec> find_alike(const GemmProblem& problem, const std::string& device) {
  auto spec = find(problem, device);
  const bool wide = size_of(problem.a.dtype) == 2 && problem.conv.kind == Conv::none;
  return spec || !wide ? spec : find(of_other_float(problem), device);
}

}  // namespace

std::optional<Spec> tuned(const GemmProblem& problem, const DeviceInfo& device) {
  if (!is_automatic(problem) || !table().has_size(problem)) return std::nullopt;
  if (is_batch_invariant(problem)) return std::nullopt;  // what won may split K otherwise
  if (auto spec = find_alike(problem, device.name)) return spec;
  // Until it has been measured itself, a chip does what was best on another of its kind.
  if (device.compute_capability != 90 || device.num_sms != 132) return std::nullopt;
  for (const char* measured : {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}) {
    if (auto spec = find_alike(problem, measured)) return spec;
  }
  return std::nullopt;
}

std::string store_tuned(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  if (!is_listed(spec)) {
    refuse_value(
        "the plan runs as \"{}\", which split_k_mode=\"auto\" would not consider; tune one of the plan's candidates",
        to_string(spec));
  }
  const std::string text = problem_text(problem);
  if (!parse_problem(text)) refuse_value("\"{}\" is no problem that a table of choices can name", text);
  const TunedLine line{tuned_key(device.name, text), spec};
  user_file().store({line}, true);
  table().store(line);
  return user_file().path().string();
}

bool is_tuned(const GemmProblem& problem, const DeviceInfo& device) {
  return table().has_size(problem) && table().find(tuned_key(device.name, problem_text(problem)));
}

MergedTable merge_tuned(const std::string& text, bool replaces) {
  const TunedLines given = parse_tuned_file(text);
  const size_t known = given.lines.empty() ? 0 : user_file().store(given.lines, replaces);
  for (const TunedLine& line : user_file().read().lines) table().store(line);
  return {.added = given.lines.size() - known,
          .replaced = replaces ? known : 0,
          .kept = replaces ? 0 : known,
          .problem = given.problem};
}

TunedTable tuned_table() {
  const TunedFile file = user_file();
  const TunedLines contents = file.read();
  return {file.path().string(), contents.lines.size(), contents.problem};
}

bool clear_tuned() {
  return user_file().remove();
}

}  // namespace cleave
