// Compiled kernels: all of an architecture, and those on disk.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "all_kernels/all_configs.h"
#include "cleave/config/loads.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "jit/compiler.h"
#include "jit/disk_cache.h"
#include "jit/kernel_packs.h"
#include "jit/source.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "plan/measured/tuned.h"
#include "plan/model_device.h"
#include "plan/plans/gpu_plan.h"
#include "plans/plan_object.h"
#include "runtime/kernel_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

constexpr const char* kCompileAllDoc =
    R"(Compiles every kernel that the planner can choose for "sm_90a" or "sm_80", on all cores.

Needs NVRTC but no GPU, and fills the disk cache. Returns for each kernel its name, arch, registers,
spill_bytes, shared_bytes, seconds, from_cache and cubin. Raises CudaError if one does not compile.)";

Division division_of(const GemmConfig& c) {
  if (c.conv.fast_load) return c.conv.fast_store ? Division::fast : Division::fast_load;
  return c.conv.fast_store ? Division::fast_store : Division::plain;
}

std::string describe(const GemmConfig& c) {
  std::string text = fmt::format("{} {}x{}x{}{} {}{} {}", to_string(c.family), c.tile.m, c.tile.n, c.tile.k,
                                 c.warps.pingpong ? " pingpong" : "", c.operands.a_major == Major::k ? 't' : 'n',
                                 c.operands.b_major == Major::k ? 'n' : 't', to_string(c.operands.a));
  if (c.operands.b != c.operands.a) text += fmt::format("*{}", to_string(c.operands.b));
  text += fmt::format("->{} {}", to_string(c.epilogue.d), to_string(c.schedule.split));
  if (copies_narrow(c)) text += " narrow";
  if (c.conv.kind != Conv::none) {
    text += fmt::format(" {} division {}", to_string(c.conv.kind), to_string(division_of(c)));
  }
  if (c.epilogue.scaling == Scaling::vector) text += " scaled";
  if (c.epilogue.scaling == Scaling::block) {
    text += fmt::format(" scaled {}x{}", c.scales.rows_a, c.scales.rows_b);
  }
  if (c.scales.promote) text += " promoted";
  if (const EpilogueFunction* f = c.epilogue.function.function; f != nullptr && f->activation() != Activation::none)
    text += fmt::format(" {}", to_string(f->activation()));
  if (c.epilogue.bias != Bias::none) text += " bias";
  if (c.epilogue.has_c) text += " c";
  if (c.epilogue.has_zero) text += " zero points";
  if (c.epilogue.has_scale_d) text += " scale_d";
  if (c.epilogue.has_amax) text += " amax";
  return text;
}

Fields report(const GemmConfig& config, const std::string& arch, const CompiledKernel& kernel) {
  const KernelResources& used = kernel.resources;
  nb::dict entry;
  entry["name"] = describe(config);
  entry["arch"] = arch;
  entry["registers"] = used.registers;
  entry["spill_bytes"] = used.spill_store_bytes + used.spill_load_bytes;
  entry["shared_bytes"] = used.static_shared_bytes + smem_plan(config).bytes;
  entry["seconds"] = kernel.seconds;
  entry["from_cache"] = kernel.from_cache;
  entry["cubin"] = nb::bytes(kernel.cubin.data(), kernel.cubin.size());
  return entry;
}

Fields compile_plan(const PlanObject& planned) {
  const Choice* choice = choice_of(planned.plan());
  if (choice == nullptr) {
    refuse_value("the plan is for the CPU, where nothing is compiled; plan for \"cuda\" or \"h100\"");
  }
  std::string arch;
  CompiledKernel kernel;
  {
    const nb::gil_scoped_release unlocked;
    arch = device_arch(planned.problem().device);
    const std::string own = gemm_source(choice->config);
    kernel = compile(own, arch);
    for (const std::string& source : planned.plan().kernel_sources()) {
      if (source != own) compile(source, arch);
    }
  }
  return report(choice->config, arch, kernel);
}

void compile_source(const std::string& source, const std::string& arch) {
  const nb::gil_scoped_release unlocked;
  compile(source, arch);
}

FieldsList compile_all(const std::string& arch) {
  std::vector<GemmConfig> configs;
  std::vector<CompiledKernel> kernels;
  {
    const nb::gil_scoped_release unlocked;
    configs = all_configs(model_device(arch));
    kernels.resize(configs.size());
    std::atomic<size_t> next = 0;
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto work = [&] {
      try {
        for (size_t i; (i = next++) < configs.size();) kernels[i] = compile(gemm_source(configs[i]), arch);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        failure = std::current_exception();
        next = configs.size();
      }
    };
    {
      std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()));
      for (std::jthread& thread : threads) thread = std::jthread(work);
    }
    if (failure) std::rethrow_exception(failure);
  }
  nb::list list;
  for (size_t i = 0; i < kernels.size(); ++i) list.append(report(configs[i], arch, kernels[i]));
  return list;
}

using Source = std::pair<std::string, std::string>;

nb::bytes make_pack_file(const std::vector<Source>& given) {
  std::string content;
  {
    const nb::gil_scoped_release unlocked;
    std::vector<KernelSource> sources;
    for (const auto& [text, arch] : given) sources.push_back({text, arch});
    content = make_pack(sources);
  }
  return nb::bytes(content.data(), content.size());
}

std::vector<Source> loaded_kernels() {
  std::vector<Source> kernels;
  for (KernelSource& each : loaded_sources()) kernels.emplace_back(std::move(each.text), std::move(each.arch));
  return kernels;
}

/// As os.fsdecode does: paths, and what is read from files, need not be UTF-8.
nb::object fs_decode(const std::string& text) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(text.data(), Py_ssize_t(text.size())));
}

Fields cache_info() {
  const DiskCache& cache = DiskCache::user();
  const std::vector<CacheEntryInfo> entries = cache.list();
  uint64_t bytes = 0;
  for (const CacheEntryInfo& entry : entries) bytes += entry.bytes;
  nb::dict info;
  info["path"] = fs_decode(cache.directory().string());
  info["entries"] = entries.size();
  info["bytes"] = bytes;
  info["limit"] = cache.limits().bytes;
  info["problem"] = fs_decode(cache.problem());
  return info;
}

Fields tuned_info() {
  const TunedTable table = tuned_table();
  nb::dict info;
  info["path"] = fs_decode(table.path);
  info["entries"] = table.entries;
  info["problem"] = fs_decode(table.problem);
  return info;
}

Fields fields_of(const KernelPack& pack) {
  nb::dict fields;
  fields["path"] = fs_decode(pack.path().string());
  fields["kernels"] = pack.kernels();
  fields["bytes"] = pack.bytes();
  fields["compiler"] = fmt::format("{}.{}", pack.compiler().major, pack.compiler().minor);
  fields["problem"] = fs_decode(pack.problem());
  return fields;
}

FieldsList pack_list() {
  nb::list list;
  for (const KernelPack& pack : kernel_packs()) list.append(fields_of(pack));
  return list;
}

Fields pack_info(const std::string& path) {
  return fields_of(KernelPack(path, library_key()));
}

size_t cache_clear() {
  clear_tuned();
  return DiskCache::user().clear();
}

FieldsList cache_list() {
  nb::list list;
  for (const CacheEntryInfo& entry : DiskCache::user().list()) {
    nb::dict fields;
    fields["key"] = fs_decode(entry.key);
    fields["arch"] = fs_decode(entry.arch);
    fields["bytes"] = entry.bytes;
    fields["age_seconds"] = double(entry.age.count());
    fields["current"] = entry.library == library_key().hex();
    list.append(fields);
  }
  return list;
}

}  // namespace

void bind_kernels(nb::module_& m) {
  m.def("compile_all", &compile_all, "arch"_a, kCompileAllDoc);
  m.def("compile_plan", &compile_plan, "plan"_a,
        "Compiles the plan's kernel into the disk cache. Returns what `compile_all` does of each.\n\n"
        "Needs NVRTC but no GPU.");
  m.def("compile_source", &compile_source, "source"_a, "arch"_a,
        "Compiles one of a plan's `kernel_sources` into the disk cache. Needs NVRTC but no GPU.");
  m.def("make_pack", &make_pack_file, "sources"_a,
        "The content of a pack of kernels, given as (source, arch). Needs NVRTC but no GPU.");
  m.def("loaded_kernels", &loaded_kernels, "What this process has loaded, as (source, arch), each kernel once.");
  m.def("pack_list", &pack_list, "The packs of this process: path, kernels, bytes, compiler, problem.");
  m.def("pack_info", &pack_info, "path"_a, "The same of one file.");
  m.def("cache_info", &cache_info,
        "Where compiled kernels are kept on disk: path, entries, bytes, the limit of bytes, "
        "problem.\n\n"
        "The problem says why kernels are not kept, and the remedy; it is empty if they are. To "
        "find out, a\nfile is written and removed.");
  m.def("cache_list", &cache_list,
        "The kernels on disk, newest first: key, arch, bytes, age_seconds, and whether this "
        "version of Cleave\nmade it (current).");
  m.def("tuned_info", &tuned_info,
        "What `cleave tune` has measured: the path of the file, entries, and the problem, which "
        "says\n"
        "why it is not believed, or not all of it.");
  m.def("cache_clear", &cache_clear,
        "Removes the compiled kernels and the tuning file from disk, not from memory. Returns how "
        "many\nkernels.");
}

}  // namespace cleave::python
