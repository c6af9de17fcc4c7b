#include "jit/kernel_image.h"

#include <cstring>

#include "jit/digest.h"

namespace cleave {
namespace {

uint64_t checksum_of(ImageHeader header, std::string_view payload) {
  header.checksum = 0;
  Digest digest;
  digest.update({reinterpret_cast<const char*>(&header), sizeof(header)});
  digest.update(payload);
  return digest.low();
}

}  // namespace

bool ImageHeader::has_magic() const {
  return std::memcmp(magic, ImageHeader().magic, sizeof(magic)) == 0;
}

std::string kernel_image(const CacheKey& key, std::string_view arch, const CompiledKernel& kernel) {
  const std::string payload = kernel.cubin + kernel.log;
  ImageHeader header{.cubin_size = kernel.cubin.size(), .log_size = kernel.log.size(), .resources = kernel.resources};
  set_field(header.key, key.hex());
  set_field(header.library, key.library());
  set_field(header.arch, arch);
  header.checksum = checksum_of(header, payload);
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload;
}

std::optional<CompiledKernel> read_image(std::string_view image, const CacheKey& key) {
  ImageHeader header;
  if (image.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, image.data(), sizeof(header));
  const std::string_view payload = image.substr(sizeof(header));
  const bool whole = header.has_magic() && text_of(header.key) == key.hex() && header.cubin_size <= payload.size() &&
                     header.log_size == payload.size() - header.cubin_size &&
                     header.checksum == checksum_of(header, payload);
  if (!whole) return std::nullopt;
  return CompiledKernel{.cubin = std::string(payload.substr(0, header.cubin_size)),
                        .log = std::string(payload.substr(header.cubin_size)),
                        .resources = header.resources,
                        .from_cache = true};
}

}  // namespace cleave
