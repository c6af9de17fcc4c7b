// One line for each of a sample of the kernels, to show that an edit leaves them as they are:
//
//   build/kernel_digests 20 > before; (edit, build) build/kernel_digests 20 > after; diff before after
//
// The argument takes every so many of the sample that the tests compile and of the kernels that are no products'; 1 is
// all of it. The columns are architecture, number, a digest of the cubin, one of its instructions, one of how often it
// has each opcode, bytes of instructions, registers, bytes of the stack and of spills. An edit of names leaves all of
// them; one that moves a kernel's parameters leaves what follows the instructions' digest. A kernel that NVRTC refuses
// has "refused" and why instead. tools/nvrtc_versions.py compares NVRTCs by the same lines.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "all_kernels/all_configs.h"
#include "cleave/error.h"
#include "jit/compiler.h"
#include "jit/source.h"
#include "kernel_sample.h"
#include "other_sources.h"
#include "plan/model_device.h"

namespace {

using namespace cleave;

uint64_t digest(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

template <class T>
T read(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// The instructions in a cubin, which is an ELF file of 64 bits.
std::string instructions(std::string_view cubin) {
  std::string code;
  const auto sections = read<uint64_t>(cubin, 0x28);
  const auto bytes = read<uint16_t>(cubin, 0x3a), count = read<uint16_t>(cubin, 0x3c);
  const auto header = [&](uint32_t i) { return cubin.substr(sections + i * bytes, bytes); };
  const auto names = read<uint64_t>(header(read<uint16_t>(cubin, 0x3e)), 0x18);
  for (uint32_t i = 0; i < count; ++i) {
    if (std::string_view(cubin.data() + names + read<uint32_t>(header(i), 0)).starts_with(".text."))
      code += cubin.substr(read<uint64_t>(header(i), 0x18), read<uint64_t>(header(i), 0x20));
  }
  return code;
}

/// How often each opcode occurs, as text. Instructions are 16 bytes, the opcode their lowest 12 bits.
std::string opcodes(std::string_view code) {
  std::map<uint32_t, uint32_t> counts;
  for (size_t at = 0; at + 16 <= code.size(); at += 16) ++counts[read<uint16_t>(code, at) & 0xfff];
  std::string text;
  for (const auto& [opcode, count] : counts) text += fmt::format("{:x} {} ", opcode, count);
  return text;
}

std::string line(const std::string& arch, size_t number, const std::string& source) try {
  const CompiledKernel kernel = compile_uncached(source, arch);
  const std::string code = instructions(kernel.cubin);
  const KernelResources& used = kernel.resources;
  return fmt::format("{} {} {:016x} {:016x} {:016x} {} {} {} {}\n", arch, number, digest(kernel.cubin), digest(code),
                     digest(opcodes(code)), code.size(), used.registers, used.stack_bytes,
                     used.spill_store_bytes + used.spill_load_bytes);
} catch (const Error& error) {
  std::string why = std::string(error.what()).substr(0, 1000);
  std::ranges::replace(why, '\n', ' ');
  return fmt::format("{} {} refused {}\n", arch, number, why);
}

std::vector<std::string> sources_for(const std::string& arch) {
  std::vector<std::string> sources;
  for (const GemmConfig& config : kernel_sample(all_configs(model_device(arch))))
    sources.push_back(gemm_source(config));
  if (arch == "sm_90a") std::ranges::copy(OtherSources().all(), std::back_inserter(sources));
  return sources;
}

/// A file without a name, which disappears with its last owner.
using Lines = std::unique_ptr<std::FILE, decltype(&std::fclose)>;

/// In processes, one for each processor, that take turns: NVRTC's threads wait for each other.
void print_digests(const std::string& arch, size_t every) {
  const std::vector<std::string> sources = sources_for(arch);
  const size_t processes = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Lines> shares;
  for (size_t share = 0; share < processes; ++share) {
    shares.emplace_back(std::tmpfile(), &std::fclose);
    if (fork() != 0) continue;
    for (size_t i = share * every; i < sources.size(); i += processes * every)
      std::fputs(line(arch, i, sources[i]).c_str(), shares.back().get());
    std::fflush(shares.back().get());
    std::_Exit(0);
  }
  for (int status; wait(&status) > 0;) {
    if (status != 0) throw std::runtime_error("a process that compiles has ended by itself");
  }
  for (const Lines& lines : shares) std::rewind(lines.get());
  std::array<char, 4096> text;
  for (size_t i = 0; i * every < sources.size(); ++i) {
    if (std::fgets(text.data(), text.size(), shares[i % processes].get())) std::fputs(text.data(), stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const size_t every = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  for (const std::string& arch : model_architectures()) print_digests(arch, std::max<size_t>(every, 1));
}
