#include "over_ranks/sum_in_parts.h"

#include <algorithm>

#include "base/refuse.h"
#include "operands/fold_operands.h"
#include "peers/beside.h"
#include "peers/fold_problem.h"

namespace cleave {
namespace {

using Part = SumInParts::Part;

/// Where, in its owner's place, a rank's partial results of its rows lie, from a row on.
size_t in_slot(const SumForm& form, int rank, int64_t first) {
  return size_t((rank * form.most + first) * form.columns) * size_of(form.partial);
}

/// What is made in the first of the places.
struct Maker {
  const SumForm& form;
  const SumTensors& tensors;
  const SumResults& results;
  const Places& places;
  const PlanOptions& options;

  const Group& group() const { return places.group(); }
  int device() const { return group().device(); }

  Operand partial(void* data, int64_t rows) const {
    return packed_matrix(data, form.partial, device(), rows, form.columns);
  }

  /// That of this rank's a from that row on, into `out`; or what is made already.
  Product product(int64_t first, const Operand& out, EpilogueTensors epilogue = {}) const {
    const Operand a = rows_of(tensors.a, first, out.rows());
    if (!tensors.b) return {nullptr, {.d = a.data}};
    GemmTensors t{.a = a, .b = tensors.b, .c = {}, .bias = {}, .epilogue = std::move(epilogue)};
    t.out = out;
    if (!form.exact) {
      t.scale_a = rows_of(tensors.scale_a, form.rows, first, out.rows());
      t.scale_b = tensors.scale_b;
    }
    return product_of(t, {.plan = options});
  }

  /// What has come from a rank, or this one's, of those rows of its own.
  Operand arrived(int rank, const Part& part) const {
    return partial(places.at(group().rank(), 0) + in_slot(form, rank, part.first), part.rows);
  }

  /// Where those rows of D go: to all ranks, or to this rank's result alone.
  Operand rows_of_d(const Part& part) const {
    if (!form.gathered) return rows_of(results.d, part.first, part.rows);
    char* const own = places.at(group().rank(), 0) + gathered_at(form, group().size());
    return rows_of(packed_matrix(own, form.d, device(), form.own, form.made), part.first, part.rows);
  }

  std::optional<Operand> rows_of_c(const Part& part) const {
    if (!tensors.c) return std::nullopt;
    return rows_of(*tensors.c, (form.gathered ? form.first : 0) + part.first, part.rows);
  }

  /// With the others' partial results, c and bias as inputs.
  Product joined(const Part& part) const {
    EpilogueTensors epilogue{.function = form.onto};
    for (int rank = 0; rank < group().size(); ++rank)
      if (rank != group().rank()) epilogue.inputs.push_back({arrived(rank, part)});
    if (const auto c = rows_of_c(part)) epilogue.inputs.push_back({*c});
    if (tensors.bias) epilogue.inputs.push_back({*tensors.bias});
    if (form.gathered) epilogue.outputs.push_back(rows_of(results.d, form.first + part.first, part.rows));
    return product(form.first + part.first, rows_of_d(part), std::move(epilogue));
  }

  FoldCall fold(const Part& part, void* own) const {
    FoldTensors t{.bias = tensors.bias, .c = rows_of_c(part), .scale_d = tensors.scale_d};
    t.d = rows_of_d(part);
    if (results.scale_out) t.scale_out = rows_of(*results.scale_out, part.first, part.rows);
    if (form.exact) {
      t.scale_a = rows_of(tensors.scale_a, form.rows, form.first + part.first, part.rows);
      t.scale_b = tensors.scale_b;
    }
    for (int rank = 0; rank < group().size(); ++rank)
      t.partials.push_back(rank == group().rank() ? rows_of(partial(own, form.own), part.first, part.rows)
                                                  : arrived(rank, part));
    FoldCall call = make_call(t, form.activation, part.rows, form.use_ue8m0);
    call.arguments.group = &group();
    call.arguments.call = form.call;
    return call;
  }
};

/// What a call does, in its place.
class Run {
 public:
  Run(SumInParts& made, const SumForm& form, const Places& places, int place, void* stream)
      : made_(made), form_(form), places_(places), place_(place), stream_(stream), beside_(group().device(), stream) {}

  void operator()() {
    for (size_t i = 0; i < made_.parts.size(); ++i) {
      leave(made_.parts[i]);
      beside_.mark(i);
    }
    if (made_.own.plan != nullptr) move_on(made_.own.arguments.d, offset());
    made_.own.launch(stream_);
    for (size_t i = 0; i < made_.parts.size(); ++i) {
      beside_.await(i);
      add_up(made_.parts[i]);
      if (form_.gathered) fetch(made_.parts[i]);
    }
  }

 private:
  const Group& group() const { return places_.group(); }
  size_t offset() const { return size_t(place_) * places_.bytes(); }

  void leave(const Part& part) {
    for (const auto& [product, owner] : part.leaving) {
      product.launch(stream_);
      beside_.follow();
      const size_t bytes = size_t(part.rows * form_.columns) * size_of(form_.partial);
      beside_.copy(places_.at(owner, place_) + in_slot(form_, group().rank(), part.first), product.arguments.d, bytes);
    }
    if (form_.onto != nullptr) meet_beside();  // else the kernel that adds up begins with a meeting
  }

  void add_up(Part& part) {
    if (form_.onto != nullptr) {
      for (int i = 0; i < group().size() - 1; ++i) move_on(part.joined.arguments.epilogue_inputs[i].data, offset());
      if (form_.gathered) move_on(part.joined.arguments.d, offset());
      return part.joined.launch(stream_);
    }
    for (int rank = 0; rank < group().size(); ++rank)
      if (rank != group().rank() || made_.own.plan != nullptr) move_on(part.fold_arguments.partials[rank], offset());
    if (form_.gathered) move_on(part.fold_arguments.d, offset());
    part.fold->run(part.fold_arguments, stream_);
  }

  /// The others' rows, and this rank's if no epilogue has stored them.
  void fetch(const Part& part) {
    beside_.follow();
    meet_beside();
    const size_t line = size_t(form_.made) * size_of(form_.d), bytes = size_t(part.rows) * line;
    for (int step = form_.onto != nullptr ? 1 : 0; step < group().size(); ++step) {
      const int peer = (group().rank() + step) % group().size();
      const char* const theirs = places_.at(peer, place_) + gathered_at(form_, group().size());
      beside_.copy(static_cast<char*>(made_.d) + size_t(peer * form_.own + part.first) * line,
                   theirs + size_t(part.first) * line, bytes);
    }
  }

  void meet_beside() { group().barrier(form_.call, beside_.stream(), true); }

  SumInParts& made_;
  const SumForm& form_;
  const Places& places_;
  const int place_;
  void* const stream_;
  Beside beside_;
};

}  // namespace

size_t leaving_bytes(const SumForm& form, const Group& group) {
  return size_t((group.size() - 1) * form.own * form.columns) * size_of(form.partial);
}

SumInParts make_in_parts(const SumForm& form, const SumTensors& tensors, const SumResults& results, void* leaving,
                         const Places& places, const PlanOptions& options) {
  check_place(form, places);
  const Maker make{form, tensors, results, places, options};
  const Group& group = places.group();
  SumInParts made{.d = results.d.data};
  char* next = static_cast<char*>(leaving);
  for (int64_t first = 0; first < form.own; first += form.part) {
    Part& part = made.parts.emplace_back(Part{.first = first, .rows = std::min(form.part, form.own - first)});
    for (int step = 1; step < group.size(); ++step) {
      const int owner = (group.rank() + step) % group.size();
      const Operand out = make.partial(next, part.rows);
      part.leaving.push_back({make.product(owner * form.own + first, out), owner});
      next += size_t(part.rows * form.columns) * size_of(form.partial);
    }
  }
  if (made.parts.size() > Beside::kMarks) refuse_value("part is {}; so many rows move in two at most", form.part);
  if (form.onto != nullptr) {
    for (Part& part : made.parts) part.joined = make.joined(part);
    return made;
  }
  void* const slot = places.at(group.rank(), 0) + in_slot(form, group.rank(), 0);
  made.own = make.product(form.first, make.partial(slot, form.own));
  for (Part& part : made.parts) {
    const FoldCall fold = make.fold(part, made.own.arguments.d);
    part.fold = plan(fold.problem);
    part.fold_arguments = fold.arguments;
  }
  return made;
}

void run(SumInParts made, const SumForm& form, Places& places, void* stream) {
  const int place = places.next(stream);  // operands have been checked, and all ranks take theirs
  Run(made, form, places, place, stream)();
}

}  // namespace cleave
