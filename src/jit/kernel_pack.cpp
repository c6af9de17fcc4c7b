#include "jit/kernel_pack.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "jit/digest.h"
#include "jit/kernel_image.h"

namespace cleave {
namespace {

namespace fs = std::filesystem;
using Entry = KernelPack::Entry;

constexpr uint64_t kMostKernels = 1 << 20;
constexpr uint64_t kLargestImage = 64 << 20;  // kernels take some 50 KB

struct PackHeader {
  char magic[8] = {'C', 'L', 'E', 'A', 'V', 'E', 'P', '1'};
  char library[32] = {};
  char version[16] = {};  // Cleave's, for messages
  int32_t compiler_major = 0, compiler_minor = 0;
  uint64_t kernels = 0;
  uint64_t checksum = 0;  // of the header with a checksum of 0, then the index
};
static_assert(sizeof(PackHeader) == 80 && sizeof(Entry) == 48, "padding would be written, and hashed, uninitialised");

template <class T>
std::string_view bytes_of(const T* first, size_t count) {
  return {reinterpret_cast<const char*>(first), count * sizeof(T)};
}

uint64_t checksum_of(PackHeader header, const std::vector<Entry>& index) {
  header.checksum = 0;
  Digest digest;
  digest.update(bytes_of(&header, 1));
  digest.update(bytes_of(index.data(), index.size()));
  return digest.low();
}

bool read_at(const Descriptor& file, uint64_t offset, void* to, size_t bytes) {
  for (size_t have = 0; have < bytes;) {
    const ssize_t count = pread(file.get(), static_cast<char*>(to) + have, bytes - have, off_t(offset + have));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    have += size_t(count);
  }
  return true;
}

bool before(const Entry& entry, std::string_view key) {
  return text_of(entry.key) < key;
}

}  // namespace

std::string pack_of(std::vector<PackedKernel> kernels, const CacheKey& library, NvrtcVersion compiler) {
  std::ranges::sort(kernels, {}, [](const PackedKernel& kernel) { return kernel.key.hex(); });
  const auto repeated = std::ranges::unique(kernels, {}, [](const PackedKernel& kernel) { return kernel.key.hex(); });
  kernels.erase(repeated.begin(), repeated.end());

  PackHeader header{.compiler_major = compiler.major, .compiler_minor = compiler.minor, .kernels = kernels.size()};
  set_field(header.library, library.hex());
  set_field(header.version, CLEAVE_VERSION);
  std::vector<Entry> index;
  std::string images;
  const uint64_t begin = sizeof(header) + kernels.size() * sizeof(Entry);
  for (const PackedKernel& each : kernels) {
    const std::string image = kernel_image(each.key, each.arch, each.kernel);
    Entry& entry = index.emplace_back(Entry{.key = {}, .offset = begin + images.size(), .size = image.size()});
    set_field(entry.key, each.key.hex());
    images += image;
  }
  header.checksum = checksum_of(header, index);
  return fmt::format("{}{}{}", bytes_of(&header, 1), bytes_of(index.data(), index.size()), images);
}

KernelPack::KernelPack(const fs::path& file, const CacheKey& library) : path_(file) {
  problem_ = open(library);
  if (!problem_.empty()) index_.clear();
}

// Here: who includes the header alone does not close files.
KernelPack::KernelPack(KernelPack&&) noexcept = default;
KernelPack::~KernelPack() = default;

std::string KernelPack::open(const CacheKey& library) {
  std::error_code missing;
  const fs::path real = fs::canonical(path_, missing);  // a link that the user named is the user's own
  if (missing) return fmt::format("it cannot be opened ({})", missing.message());
  const PrivateDirectory directory(real.parent_path(), PrivateDirectory::IfMissing::leave, "CLEAVE_PACKS");
  if (!directory) return directory.problem();
  file_ = directory.open_file(real.filename());
  struct stat status;
  if (!file_ || fstat(file_.get(), &status) != 0) {
    return "it is no file of yours or root's that nobody else may write; look at its owner, and run chmod go-w";
  }
  bytes_ = uint64_t(status.st_size);

  PackHeader header;
  if (!read_at(file_, 0, &header, sizeof(header)) || std::memcmp(header.magic, PackHeader().magic, 8) != 0)
    return "it is no pack of kernels that this version of Cleave can read; build it with `cleave pack build`";
  compiler_ = {header.compiler_major, header.compiler_minor};
  if (header.kernels > kMostKernels) return "it is damaged; build it again";
  index_.resize(header.kernels);
  if (!read_at(file_, sizeof(header), index_.data(), index_.size() * sizeof(Entry)) ||
      header.checksum != checksum_of(header, index_)) {
    return "it is damaged; build it again";
  }
  if (text_of(header.library) != library.hex()) {
    return fmt::format("its kernels are of another build of Cleave (version {}, this one is {}); build it again",
                       text_of(header.version), CLEAVE_VERSION);
  }
  if (compiler_.major > loadable_major()) {
    return fmt::format(
        "it was compiled by NVRTC {}.{}, whose kernels the driver is too old to load; build it with "
        "NVRTC {}, or update the driver",
        compiler_.major, compiler_.minor, loadable_major());
  }
  return "";
}

std::optional<CompiledKernel> KernelPack::load(const CacheKey& key) const {
  const auto entry = std::lower_bound(index_.begin(), index_.end(), key.hex(), before);
  if (entry == index_.end() || text_of(entry->key) != key.hex() || entry->size > kLargestImage) return std::nullopt;
  std::string image(entry->size, '\0');
  if (!read_at(file_, entry->offset, image.data(), image.size())) return std::nullopt;
  return read_image(image, key);
}

}  // namespace cleave
