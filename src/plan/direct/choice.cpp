#include "plan/direct/choice.h"

#include <algorithm>
#include <iterator>

#include "plan/direct/at_once.h"
#include "plan/direct/columns.h"
#include "plan/direct/columns_wgrad.h"
#include "plan/direct/lines.h"
#include "plan/direct/pixels.h"
#include "plan/direct/rows.h"
#include "plan/direct/shift.h"
#include "plan/direct/spread.h"
#include "plan/direct/spread_wgrad.h"
#include "plan/direct/staged_wgrad.h"
#include "plan/direct/sweep.h"
#include "plan/direct/wgrad.h"
#include "plan/direct/windows.h"

namespace cleave {
namespace {

/// What a spec says beside its tile, by which those of some methods are told apart.
enum class Cut { plain, columns, ahead, at_once };

Cut cut_of(const Spec& spec) {
  if (spec.at_once) return Cut::at_once;
  if (spec.columns > 0) return Cut::columns;
  return spec.ahead > 0 ? Cut::ahead : Cut::plain;
}

/// Outputs and data gradients, or weight gradients, by one method.
struct Method {
  DirectMethod method;
  bool back, forward;  // wgrad; fprop and dgrad
  Cut cut;
  std::optional<Spec> (*spec)(const GemmProblem&, const DeviceInfo&);
  std::optional<Choice> (*make)(const GemmProblem&, const DeviceInfo&, const Spec&);
  DirectShape (*shape)(const Choice&);
  double (*predict)(const Choice&, const DeviceInfo&);
};

constexpr Method kMethods[] = {
    {DirectMethod::rows, false, true, Cut::plain, direct_rows_spec, make_direct_rows_choice, direct_rows_shape,
     predict_direct_rows_us},
    {DirectMethod::windows, true, true, Cut::plain, direct_windows_spec, make_direct_windows_choice,
     direct_windows_shape, predict_direct_windows_us},
    {DirectMethod::spread, false, true, Cut::plain, direct_spread_spec, make_direct_spread_choice, direct_spread_shape,
     predict_direct_spread_us},
    {DirectMethod::spread, true, false, Cut::plain, direct_spread_wgrad_spec, make_direct_spread_wgrad_choice,
     direct_spread_wgrad_shape, predict_direct_spread_wgrad_us},
    {DirectMethod::sweep, false, true, Cut::ahead, direct_sweep_spec, make_direct_sweep_choice, direct_sweep_shape,
     predict_direct_sweep_us},
    {DirectMethod::shift, true, true, Cut::plain, direct_shift_spec, make_direct_shift_choice, direct_shift_shape,
     predict_direct_shift_us},
    {DirectMethod::lines, true, false, Cut::plain, direct_lines_spec, make_direct_lines_choice, direct_lines_shape,
     predict_direct_lines_us},
    {DirectMethod::pixels, true, false, Cut::plain, direct_wgrad_spec, make_direct_wgrad_choice, direct_wgrad_shape,
     predict_direct_wgrad_us},
    {DirectMethod::columns, true, false, Cut::columns, direct_columns_wgrad_spec, make_direct_columns_wgrad_choice,
     direct_columns_wgrad_shape, predict_direct_columns_wgrad_us},
    {DirectMethod::staged, true, false, Cut::ahead, direct_staged_wgrad_spec, make_direct_staged_wgrad_choice,
     direct_staged_wgrad_shape, predict_direct_staged_wgrad_us},
    {DirectMethod::columns, false, true, Cut::columns, direct_columns_spec, make_direct_columns_choice,
     direct_columns_shape, predict_direct_columns_us},
    {DirectMethod::columns, false, true, Cut::columns, direct_column_rings_spec, make_direct_columns_choice,
     direct_columns_shape, predict_direct_columns_us},
    {DirectMethod::at_once, false, true, Cut::at_once, direct_at_once_spec, make_direct_at_once_choice,
     direct_at_once_shape, predict_direct_at_once_us},
    {DirectMethod::pixels, false, true, Cut::plain, direct_pixels_spec, make_direct_pixels_choice, direct_pixels_shape,
     predict_direct_pixels_us},
};

/// Multiply-adds, where tensor cores (shift) took a half to a fifth of the time.
bool multiplies_and_adds(const Method& method) {
  constexpr DirectMethod kSlower[] = {DirectMethod::columns, DirectMethod::at_once, DirectMethod::pixels};
  return method.forward && std::ranges::find(kSlower, method.method) != std::end(kSlower);
}

const Method& method_of(const GemmConfig& c) {
  const bool back = c.conv.kind == Conv::wgrad;
  return *std::ranges::find_if(kMethods, [&](const Method& method) {
    return method.method == c.direct.method && (back ? method.back : method.forward);
  });
}

}  // namespace

bool is_direct_spec(const Spec& spec) {
  const bool sliced = spec.split == SplitKMode::parallel && spec.slices > 1;
  return spec == Spec{.family = KernelFamily::direct,
                      .tile_m = spec.tile_m,
                      .tile_n = spec.tile_n,
                      .columns = spec.columns,
                      .ahead = spec.ahead,
                      .at_once = spec.at_once,
                      .split = sliced ? spec.split : SplitKMode::none,
                      .slices = sliced ? spec.slices : 1,
                      .cluster_k = sliced ? spec.cluster_k : 1};
}

std::vector<Spec> direct_specs(const GemmProblem& problem, const DeviceInfo& device) {
  if (const auto rows = direct_rows_spec(problem, device)) return {*rows};  // which reads nothing twice
  const bool shifts = direct_shift_spec(problem, device).has_value();
  std::vector<Spec> specs;
  for (const Method& method : kMethods) {
    if (shifts && multiplies_and_adds(method)) continue;
    if (const auto spec = method.spec(problem, device)) specs.push_back(*spec);
  }
  return specs;
}

std::optional<Choice> make_direct_choice(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec) {
  if (!is_direct_spec(spec)) return std::nullopt;
  const bool back = problem.conv.kind == Conv::wgrad;
  for (const Method& method : kMethods) {
    if (method.cut != cut_of(spec) || !(back ? method.back : method.forward)) continue;
    if (auto choice = method.make(problem, device, spec)) return choice;
  }
  return std::nullopt;
}

DirectShape direct_shape(const Choice& choice) {
  return method_of(choice.config).shape(choice);
}

double predict_direct_us(const Choice& choice, const DeviceInfo& device) {
  return method_of(choice.config).predict(choice, device);
}

}  // namespace cleave
