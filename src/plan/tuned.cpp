#include "plan/tuned.h"

#include <fmt/format.h>

#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <unordered_map>

#include "base/embedded.h"
#include "base/refuse.h"
#include "cleave/names.h"
#include "jit/disk_cache.h"
#include "plan/catalogue.h"
#include "plan/tuned_file.h"
#include "process/fork.h"

namespace cleave {
namespace {

/// `adds`: with what is added to the sums from memory.
std::string problem_key(const GemmProblem& p, bool adds) {
  const char a = p.a.stride_col == 1 ? 't' : 'n', b = p.b.stride_row == 1 ? 'n' : 't';
  std::string key =
      fmt::format("{}x{}x{}x{} {}{} {} {}", p.m, p.n, p.k, p.batch, a, b, to_string(p.a.dtype), to_string(p.d.dtype));
  if (p.b.dtype != p.a.dtype) key += fmt::format(" by {}", to_string(p.b.dtype));
  if (p.groups.dimension != Grouping::none) key += fmt::format(" grouped {}", to_string(p.groups.dimension));
  if (p.scale_a.kind == Scaling::vector) key += " scaled";
  if (p.scale_a.kind == Scaling::block) key += fmt::format(" blocks {}x{}", p.scale_a.rows, p.scale_b.rows);
  if (p.fast_accumulation) key += " fast";
  if (p.activation == Activation::swiglu) key += " swiglu";
  if (adds && p.has_c) key += " c";
  if (adds && p.bias != Bias::none) key += " bias";
  if (p.precision == Precision::ieee) key += " ieee";
  if (p.conv.kind != Conv::none) {
    key += fmt::format(" {}", to_string(p.conv.kind));
    for (const ConvAxis& axis : p.conv.axes)
      key += fmt::format(" {}:{}/{}p{},{}d{}", axis.size, axis.filter, axis.stride, axis.pad_begin, axis.pad_end,
                         axis.dilation);
  }
  return key;
}

/// The same of the other 16-bit float: their kernels differ in nothing but the instruction's type.
GemmProblem of_other_float(GemmProblem p) {
  for (DType* type : {&p.a.dtype, &p.b.dtype, &p.c.dtype, &p.d.dtype}) {
    *type = *type == DType::f16 ? DType::bf16 : *type == DType::bf16 ? DType::f16 : *type;
  }
  return p;
}

std::string key(const std::string& device, const std::string& problem) {
  return device + " | " + problem;
}

TunedFile user_file() {
  return TunedFile(DiskCache::user().directory());
}

using Winners = std::unordered_map<std::string, Spec>;

Winners read_winners() {
  Winners winners;
  for (const EmbeddedFile& table : shipped_tuned_tables()) {
    std::istringstream shipped{std::string(table.text)};
    for (std::string line; std::getline(shipped, line);) {
      if (auto parsed = parse_tuned(line)) winners.insert(std::move(*parsed));
    }
  }
  for (const auto& [key, spec] : user_file().read().lines) winners[key] = spec;
  return winners;
}

class Table {
 public:
  Table() : winners_(read_winners()) {}

  std::optional<Spec> find(const std::string& key) const {
    const std::shared_lock lock(mutex_);
    const auto it = winners_.find(key);
    return it == winners_.end() ? std::nullopt : std::optional(it->second);
  }

  void store(const std::string& key, const Spec& spec) {
    const std::unique_lock lock(mutex_);
    winners_[key] = spec;
  }

 private:
  mutable ForkSharedMutex mutex_;
  Winners winners_;
};

Table& table() {
  static constinit Lazy<Table> table;
  return table.get();
}

}  // namespace

namespace {

std::optional<Spec> find(const GemmProblem& problem, const std::string& device) {
  const std::string exact = problem_key(problem, true), bare = problem_key(problem, false);
  auto spec = table().find(key(device, exact));
  return spec || bare == exact ? spec : table().find(key(device, bare));
}

std::optional<Spec> find_alike(const GemmProblem& problem, const std::string& device) {
  auto spec = find(problem, device);
  const bool wide = size_of(problem.a.dtype) == 2 && problem.conv.kind == Conv::none;
  return spec || !wide ? spec : find(of_other_float(problem), device);
}

}  // namespace

std::optional<Spec> tuned(const GemmProblem& problem, const DeviceInfo& device) {
  if (problem.split_k_mode != SplitKMode::automatic || problem.split_k_slices != 0 ||
      problem.kernel != KernelFamily::automatic) {
    return std::nullopt;
  }
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
  const TunedLine line(key(device.name, problem_key(problem, true)), spec);
  user_file().store(line);
  table().store(line.first, spec);
  return user_file().path().string();
}

TunedTable tuned_table() {
  const TunedFile file = user_file();
  const TunedFile::Contents contents = file.read();
  return {file.path().string(), contents.lines.size(), contents.problem};
}

bool clear_tuned() {
  return user_file().remove();
}

}  // namespace cleave
