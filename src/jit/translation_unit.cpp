#include "jit/translation_unit.h"

namespace cleave {

std::string braced(const std::string& members) {
  std::string text = "{\n";
  for (size_t begin = 0, end; begin < members.size(); begin = end) {
    end = members.find('\n', begin) + 1;
    text += "    " + members.substr(begin, end - begin);
  }
  return text + "    }";
}

std::string translation_unit(const KernelText& kernel) {
  return fmt::format(R"(#include "cleave/{0}/{1}.h"

constexpr cleave::{2} config = {{
{3}}};
{7}
extern "C" __global__ void __launch_bounds__({4})
    {5}(const __grid_constant__ cleave::{6} params) {{
  cleave::{1}<config>(params);
}}
)",
                     kernel.folder, kernel.name, kernel.config, kernel.members, kernel.launch_bounds, kernel.entry,
                     kernel.params, kernel.beside);
}

}  // namespace cleave
