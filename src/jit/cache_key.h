// The address of a compiled kernel: a digest of everything that it depends on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cleave/core/api.h"

namespace cleave {

class CLEAVE_TOOLS CacheKey {
 public:
  /// The order of `parts` matters, and so does where one ends and the next begins.
  explicit CacheKey(const std::vector<std::string_view>& parts);

  /// A kernel of `library`, which stands for what all kernels of one build of Cleave depend on: the
  /// entries of other ones are the first that a full cache removes.
  CacheKey(const CacheKey& library, std::vector<std::string_view> parts);

  const std::string& hex() const { return hex_; }
  const std::string& library() const { return library_; }

 private:
  std::string hex_;
  std::string library_;
};

}  // namespace cleave
