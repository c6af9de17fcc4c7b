// The tests' kernels stay in the build folder, where the Python tests look for theirs too, and out
// of the user's cache.
#include <cstdlib>

namespace {

// Before main, and so before anything asks where the cache is.
[[maybe_unused]] const int is_set = setenv("CLEAVE_CACHE_DIR", CLEAVE_TEST_CACHE, 0);

}  // namespace
