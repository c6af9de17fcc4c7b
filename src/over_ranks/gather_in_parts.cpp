#include "over_ranks/gather_in_parts.h"

#include <algorithm>

#include "base/refuse.h"
#include "cleave/core/math.h"
#include "over_ranks/rows.h"
#include "peers/beside.h"

namespace cleave {
namespace {

using Part = GatherInParts::Part;

/// The product of gathered tensors, or of some of their rows, into rows of D.
Product multiplied(const GatherForm& form, const GatherTensors& tensors, const std::vector<Operand>& gathered,
                   const Operand& d, const PlanOptions& options) {
  GemmTensors t{.a = gathered[0], .b = tensors.b, .c = {}, .bias = tensors.bias, .epilogue = {}};
  if (gathered.size() > 1) t.scale_a = gathered[1];
  t.scale_b = tensors.scale_b;
  t.out = d;
  return product_of(t, {.activation = form.activation, .plan = options});
}

/// What a call does, in its place.
class Run {
 public:
  Run(GatherInParts& made, const GatherForm& form, const Places& places, int place, void* stream)
      : made_(made), form_(form), places_(places), place_(place), stream_(stream), beside_(group().device(), stream) {}

  void operator()(void* all) {
    beside_.follow();
    for (size_t i = 0; i < made_.parts.size(); ++i) {
      leave(made_.parts[i]);
      beside_.mark(i);
    }
    if (all != nullptr) keep(static_cast<char*>(all));
    if (!form_.by_rank) return multiply_all();
    made_.product.launch(stream_);
    for (size_t i = 0; i < made_.parts.size(); ++i) {
      beside_.await(i);
      for (Product& product : made_.parts[i].arriving) launch_in_place(product);
    }
  }

 private:
  const Group& group() const { return places_.group(); }
  int rank() const { return group().rank(); }

  /// Where in a place rows of a rank begin.
  size_t at(const GatheredTensor& x, int rank, int64_t first) const {
    return x.at + size_t(rank * form_.share + first) * x.row_bytes();
  }

  /// The next rank's first, so that none receives from all at once. Ranks meet as often, whatever they wait for.
  void leave(const Part& part) {
    for (const GatheredTensor& x : made_.tensors) {
      const char* const own = static_cast<const char*>(x.own.data) + size_t(part.first) * x.row_bytes();
      for (int step = 1; step < group().size(); ++step) {
        const int peer = (rank() + step) % group().size();
        beside_.copy(places_.at(peer, place_) + at(x, rank(), part.first), own, size_t(part.rows) * x.row_bytes());
      }
    }
    const int64_t meetings = ceil_div(part.rows, form_.part);
    for (int64_t i = 0; i < meetings; ++i) group().barrier(form_.call, beside_.stream(), true);
  }

  /// Everybody's a.
  void keep(char* all) {
    const GatheredTensor& a = made_.tensors[0];
    const size_t bytes = size_t(form_.share) * a.row_bytes();
    for (int peer = 0; peer < group().size(); ++peer) {
      const void* const rows = peer == rank() ? a.own.data : places_.at(rank(), place_) + at(a, peer, 0);
      beside_.copy(all + size_t(peer) * bytes, rows, bytes);
    }
  }

  /// Where they lie, with this rank's own among them.
  void multiply_all() {
    for (const GatheredTensor& x : made_.tensors)
      places_.put(place_, at(x, rank(), 0), x.own.data, size_t(form_.share) * x.row_bytes(), stream_);
    beside_.await(made_.parts.size() - 1);
    launch_in_place(made_.product);
  }

  void launch_in_place(Product& product) {
    const size_t offset = size_t(place_) * places_.bytes();
    move_on(product.arguments.a, offset);
    move_on(product.arguments.scale_a, offset);
    product.launch(stream_);
  }

  GatherInParts& made_;
  const GatherForm& form_;
  const Places& places_;
  const int place_;
  void* const stream_;
  Beside beside_;
};

}  // namespace

GatherInParts make_in_parts(const GatherForm& form, const GatherTensors& tensors, const Operand& d,
                            const Places& places, PlanOptions options) {
  const Group& group = places.group();
  GatherInParts made{.tensors = gathered_tensors(form, tensors, places), .parts = {}, .product = {}};
  if (form.by_rank) options = unsplit(options);
  const auto product = [&](bool own, int64_t first, int64_t rows, int64_t first_of_d) {
    std::vector<Operand> gathered;
    for (const GatheredTensor& x : made.tensors)
      gathered.push_back(rows_of(own ? x.own : gathered_rows(form, x, places), first, rows));
    return multiplied(form, tensors, gathered, rows_of(d, first_of_d, rows), options);
  };
  const int64_t step = form.awaits_all ? form.share : form.part;
  for (int64_t first = 0; first < form.share; first += step) {
    Part& part = made.parts.emplace_back(Part{first, std::min(step, form.share - first), {}});
    for (int i = 1; i < group.size() && form.by_rank; ++i) {
      const int64_t row = (group.rank() + i) % group.size() * form.share + first;
      part.arriving.push_back(product(false, row, part.rows, row));
    }
  }
  if (made.parts.size() > Beside::kMarks) refuse_value("part is {}; so many rows move in two at most", form.part);
  made.product =
      form.by_rank ? product(true, 0, form.share, group.rank() * form.share) : product(false, 0, form.rows, 0);
  return made;
}

void run(GatherInParts made, const GatherForm& form, Places& places, void* all, void* stream) {
  const int place = places.next(stream);  // operands have been checked, and all ranks take theirs
  Run(made, form, places, place, stream)(all);
}

}  // namespace cleave
