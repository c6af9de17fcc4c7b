#include "jit/cache_key.h"

#include <fmt/format.h>

#include "jit/digest.h"

namespace cleave {

CacheKey::CacheKey(const std::vector<std::string_view>& parts) {
  Digest digest;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    digest.update({reinterpret_cast<const char*>(&size), sizeof(size)});
    digest.update(part);
  }
  hex_ = fmt::format("{:016x}{:016x}", digest.high(), digest.low());
}

CacheKey::CacheKey(const CacheKey& library, std::vector<std::string_view> parts) : library_(library.hex()) {
  parts.insert(parts.begin(), library_);
  hex_ = CacheKey(parts).hex_;
}

}  // namespace cleave
