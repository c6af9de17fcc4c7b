#include "runtime/stream_workspace.h"

#include "cleave/error.h"
#include "runtime/context.h"

namespace cleave {

Workspace stream_workspace(int device, CUstream stream, const WorkspaceSize& size) {
  if (size.counters == 0 && size.partials == 0) return {};
  try {
    return pooled_workspace(device, stream, size);
  } catch (const Error&) {
    check_stream(stream, device);
    throw;
  }
}

}  // namespace cleave
