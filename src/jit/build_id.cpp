#include "jit/build_id.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>
#include <string_view>

namespace cleave {
namespace {

struct Search {
  uintptr_t address;
  std::string id;
};

// A note is a header, "GNU" and the id, each padded to 4 bytes.
std::string id_in_notes(const char* notes, size_t size) {
  const auto padded = [](size_t bytes) { return (bytes + 3) & ~size_t(3); };
  ElfW(Nhdr) note;
  for (size_t at = 0; at + sizeof(note) <= size;) {
    std::memcpy(&note, notes + at, sizeof(note));
    const size_t name = at + sizeof(note), text = name + padded(note.n_namesz);
    at = text + padded(note.n_descsz);
    if (at > size) break;
    const std::string_view owner(notes + name, note.n_namesz);
    if (note.n_type != NT_GNU_BUILD_ID || owner != std::string_view("GNU", 4)) continue;
    const auto* const id = reinterpret_cast<const uint8_t*>(notes + text);
    return fmt::format("{:02x}", fmt::join(id, id + note.n_descsz, ""));
  }
  return "";
}

int visit(dl_phdr_info* library, size_t, void* data) {
  Search& search = *static_cast<Search*>(data);
  bool found = false;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr) & part = library->dlpi_phdr[i];
    found |= part.p_type == PT_LOAD && search.address - (library->dlpi_addr + part.p_vaddr) < part.p_memsz;
  }
  for (int i = 0; found && i < library->dlpi_phnum && search.id.empty(); ++i) {
    const ElfW(Phdr) & part = library->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    search.id = id_in_notes(reinterpret_cast<const char*>(library->dlpi_addr + part.p_vaddr), part.p_memsz);
  }
  return found;
}

}  // namespace

std::string build_of(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address), ""};
  if (!dl_iterate_phdr(visit, &search)) return "";
  if (!search.id.empty()) return search.id;
  Dl_info info = {};
  struct stat status = {};
  if (!dladdr(address, &info) || !info.dli_fname || stat(info.dli_fname, &status) != 0) return "";
  return fmt::format("{} {} {}.{:09}", info.dli_fname, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

}  // namespace cleave
