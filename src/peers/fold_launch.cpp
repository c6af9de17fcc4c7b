#include "peers/fold_launch.h"

#include "epilogue/spell.h"
#include "jit/translation_unit.h"
#include "peers/fold_problem.h"

namespace cleave {

namespace {

// As many on each rank, since they meet: from what all ranks know, not from how this one's D is aligned.
uint32_t ctas_of(const FoldProblem& p, FoldConfig config) {
  const auto columns = uint32_t(columns_of_d(p));
  config.vectors = true;
  config.vectors = columns % fold_elements(config) == 0;
  const int64_t most = max_of(max_of(p.rows, p.most_rows) * fold_pieces(config, columns), int64_t(1));
  const uint32_t ctas = p.pushed ? kMostCtas : kMostReadingCtas;
  return uint32_t(min_of(ceil_div(most, int64_t(fold_threads(config))), int64_t(ctas)));
}

}  // namespace

/// What it does is its body's to say.
static std::string spell(const EpilogueFunction*) {
  return "nullptr";
}

std::vector<FoldLaunch> fold_launches(const FoldProblem& p) {
  const FoldConfig config = config_of(p);
  const auto columns = uint32_t(columns_of_d(p));
  const uint32_t pieces_of_row = fold_pieces(config, columns);
  const FoldParams params{.rows = uint32_t(p.rows),
                          .columns = columns,
                          .pieces = uint32_t(p.rows) * pieces_of_row,
                          .row = FastDivmod(max_of(pieces_of_row, 1u)),
                          .partial_stride = p.partial.stride_row,
                          .scale_a_stride = p.scale_a.stride_row,
                          .scale_b_stride = p.scale_b.stride_row,
                          .c_stride = p.c.stride_row,
                          .scale_out_row_stride = p.scale_out.stride_row,
                          .scale_out_block_stride = p.scale_out.stride_k,
                          .d_stride = p.d.stride_row};
  const uint32_t ctas = config.strip_vectors > 0 ? uint32_t(p.columns) / kStripColumns : ctas_of(p, config);
  const LaunchShape shape{.grid = {ctas, 1, 1}, .block = {fold_threads(config), 1, 1}, .programmatic = true};
  return {{FoldKernel::fold, config, params, shape}};
}

std::string translation_unit(FoldKernel kernel, const FoldConfig& config) {
  return translation_unit({
      .folder = "peers",
      .name = enumerator_name(kernel),
      .config = "FoldConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, ranks, partial, c, bias, d, has_c, has_bias, has_scale_d, finds_scales,
                                      ue8m0, vectors, pushed, strip_vectors, has_function, gates, function),
      .launch_bounds = "cleave::fold_threads(config), 2",
      .entry = fold_entry,
      .params = "FoldParams",
      .beside = config.has_function ? function_body(*config.function) : std::string(),
  });
}

}  // namespace cleave
