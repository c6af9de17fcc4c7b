// Ranks that see each other's memory, for cleave.distributed.
#include "cleave/group.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "array/tensor.h"
#include "base/refuse.h"
#include "cleave/names.h"
#include "cleave/peers/strip_sizes.h"
#include "module/bindings.h"
#include "operands/fold_operands.h"
#include "peers/fold_problem.h"
#include "peers/places.h"
#include "plans/plan_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

using Bytes = nb::ndarray<nb::pytorch, uint8_t, nb::ndim<1>>;

std::shared_ptr<Group> share(int rank, int size, int device, size_t bytes, const nb::callable& all_gather) {
  const nb::gil_scoped_release unlocked;
  return Group::share(rank, size, device, bytes, [&](const std::string& own) {
    const nb::gil_scoped_acquire locked;
    std::vector<std::string> said;
    for (const nb::handle text : all_gather(nb::str(own.c_str(), own.size())))
      said.push_back(nb::cast<std::string>(text));
    return said;
  });
}

std::shared_ptr<Group> from_nccl(uintptr_t comm, size_t bytes) {
  const nb::gil_scoped_release unlocked;
  return Group::from_nccl(reinterpret_cast<void*>(comm), bytes);
}

/// The tensor keeps the group, and says that it is of the device that sees it.
Bytes staging(const nb::object& group, int rank) {
  const auto& self = nb::cast<const Group&>(group);
  const size_t shape[] = {self.bytes()};
  const bool host = self.device() == kCpu;
  return Bytes(self.staging(rank), 1, shape, group, nullptr, nb::dtype<uint8_t>(),
               host ? nb::device::cpu::value : nb::device::cuda::value, host ? 0 : self.device());
}

void barrier(const Group& group, std::string_view call, uintptr_t stream, bool beside) {
  const nb::gil_scoped_release unlocked;
  group.barrier(call, reinterpret_cast<void*>(stream), beside);
}

/// Writes to `out`.
void fold(const nb::list& partials, nb::handle out, nb::handle scale_a, nb::handle scale_b, nb::handle bias,
          nb::handle c, nb::handle scale_d, std::string_view activation, int64_t most_rows, const Group* group,
          std::string_view call, bool pushed, nb::handle stream, bool in_strips, nb::handle scale_out, bool use_ue8m0) {
  TensorReader reader(stream);
  const auto read = [&](nb::handle array, const char* name) {
    return given(array) ? std::optional<Operand>(reader.read(array, name)) : std::nullopt;
  };
  FoldTensors tensors{.scale_a = read(scale_a, "scale_a"),
                      .scale_b = read(scale_b, "scale_b"),
                      .bias = read(bias, "bias"),
                      .c = read(c, "c"),
                      .scale_d = read(scale_d, "scale_d"),
                      .scale_out = read(scale_out, "scale_out"),
                      .d = {}};
  for (const nb::handle partial : partials) tensors.partials.push_back(reader.read(partial, "a partial result"));
  tensors.d = reader.read_output(out, "out");
  FoldCall made = make_call(tensors, from_string<Activation>(activation), most_rows, use_ue8m0);
  made.arguments.group = group;
  made.arguments.call = call;
  made.problem.pushed = pushed && can_push(made.problem);
  made.problem.in_strips = in_strips && made.problem.pushed && can_strip(made.problem);
  const auto plan = RecentPlans<FoldProblem>::shared().get(made.problem);
  {
    const nb::gil_scoped_release unlocked;
    plan->run(made.arguments, reader.stream());
  }
  reader.mark_written();
}

void gather(const Group& group, uintptr_t own, size_t bytes, uintptr_t out, std::string_view call, uintptr_t stream) {
  const nb::gil_scoped_release unlocked;
  group.gather(reinterpret_cast<const void*>(own), bytes, reinterpret_cast<void*>(out), call,
               reinterpret_cast<void*>(stream));
}

/// own, bytes, share, place and out of each part, by addresses; out 0: none.
using PushedPart = std::tuple<uintptr_t, size_t, size_t, size_t, uintptr_t>;

void push(const Group& group, const std::vector<PushedPart>& parts, std::string_view call, uintptr_t stream) {
  std::vector<Group::Rows> rows;
  for (const auto& [own, bytes, share, place, out] : parts) {
    rows.push_back({reinterpret_cast<const void*>(own), bytes, share, place, reinterpret_cast<void*>(out)});
  }
  const nb::gil_scoped_release unlocked;
  group.push(rows, call, reinterpret_cast<void*>(stream));
}

}  // namespace

void bind_group(nb::module_& m) {
  nb::class_<Group>(m, "Group", "include/cleave/group.h in Python: blocks of memory that all ranks of one host have.")
      .def_static("share", &share, "rank"_a, "size"_a, "device"_a, "bytes"_a, "all_gather"_a,
                  "Makes one, on every rank. device: a CUDA ordinal, or -1 for the host. all_gather: from this rank's "
                  "text to the list of all ranks'.")
      .def_static("from_nccl", &from_nccl, "comm"_a, "bytes"_a,
                  "share() of the ranks of an ncclComm_t, by its address.")
      .def_prop_ro("bytes", &Group::bytes, "Of each rank's staging.")
      .def("staging", &staging, "rank"_a, "A rank's, as a torch tensor of bytes on this rank's device.")
      .def("barrier", &barrier, "call"_a, "stream"_a, "beside"_a = false,
           "Enqueues a barrier: what any rank's stream has written before it is visible behind it. Raises PeerError if "
           "the group is broken, or if the ranks say different things, on the CPU at once.")
      .def("gather", &gather, "own"_a, "bytes"_a, "out"_a, "call"_a, "stream"_a,
           "A barrier, and behind it what is at one place of every rank's staging, by addresses.")
      .def("push", &push, "parts"_a, "call"_a, "stream"_a,
           "To one place of every rank's staging what each has, and a barrier: for each part its address, bytes, share "
           "and place, and where a copy of all ranks' goes, or 0.")
      .def("abort", &Group::abort, "Ends all waiting and breaks the group, from any thread.")
      .def(
          "reset", &Group::reset, nb::call_guard<nb::gil_scoped_release>(),
          "On every rank: makes a broken group of ranks that all live whole again. Raises PeerError where one does not "
          "come.")
      .def("problem", &Group::problem, "Empty, or what broke the group.");
  nb::class_<Places>(m, "Places", "Staging of a group's ranks, in places that calls take in turn.")
      .def(nb::init<std::shared_ptr<const Group>>(), "group"_a)
      .def_prop_ro("bytes", &Places::bytes, "Of each.")
      .def("reset", &Places::reset, "Begins anew, on all ranks.")
      .def(
          "next", [](Places& places, uintptr_t stream) { return places.next(reinterpret_cast<void*>(stream)); },
          "stream"_a,
          "The number of the next call's, which all ranks make alike; of a graph's first call, behind a barrier.");
  m.def("fits_strips", &fits_strips, "ranks"_a, "rows"_a, "columns"_a, "element_bytes"_a,
        "Whether products may add up themselves what so many ranks have, and folds may be in strips.");
  m.def("fold", &fold, "partials"_a, "out"_a, "scale_a"_a.none(), "scale_b"_a.none(), "bias"_a.none(), "c"_a.none(),
        "scale_d"_a.none(), "activation"_a, "most_rows"_a, "group"_a.none(), "call"_a, "pushed"_a, "stream"_a.none(),
        "in_strips"_a = false, "scale_out"_a = nb::none(), "use_ue8m0"_a = false,
        "include/cleave/fold.h in Python: the sum over ranks of their partial results; pushed, where it can be, and in "
        "strips; with a scale_out, D's scales are found.");
}

}  // namespace cleave::python
