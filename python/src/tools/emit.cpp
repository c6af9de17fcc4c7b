// Emitted projects: `cleave.emit` checks what Python knows, and this writes.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "cleave/emit.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "plans/plan_object.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

EmitTarget parse_target(const std::string& text) {
  if (text == "cpp") return EmitTarget::cpp;
  if (text == "pytorch") return EmitTarget::pytorch;
  refuse_value("target is \"{}\"; it must be \"cpp\" or \"pytorch\"", text);
}

EmitSources parse_sources(const std::string& text) {
  if (text == "cuda") return EmitSources::cuda;
  if (text == "cubin") return EmitSources::cubin;
  refuse_value("sources is \"{}\"; it must be \"cuda\" or \"cubin\"", text);
}

std::vector<std::string> emit_project(const PlanObject& plan, const std::string& name, const std::string& sourcedir,
                                      const std::string& target, const std::string& sources,
                                      const std::vector<std::string>& archs) {
  const EmitOptions options{name, parse_target(target), parse_sources(sources), archs, plan.backward()};
  const nb::gil_scoped_release unlocked;
  check_folder(sourcedir);
  const EmittedFiles files = emit(plan.plan(), options);
  write_folder(files, sourcedir);
  std::vector<std::string> paths;
  for (const auto& [path, bytes] : files) paths.push_back(path);
  return paths;
}

}  // namespace

void bind_emit(nb::module_& m) {
  m.def("emit", &emit_project, "plan"_a, "name"_a, "sourcedir"_a, nb::kw_only(), "target"_a, "sources"_a,
        "archs"_a = std::vector<std::string>(),
        "Writes the plan's operation as a project of its own. Returns the paths of its files.\n\n"
        "archs: of \"sm_80\" and \"sm_90a\"; none: the plan's own.");
}

}  // namespace cleave::python
