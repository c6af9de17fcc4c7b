#pragma once

#include "runtime/workspace_pool.h"

namespace cleave {

/// pooled_workspace, or nothing if `size` is. Throws Error(invalid_argument) if that fails because
/// `stream` belongs to another device than `device`.
Workspace stream_workspace(int device, CUstream stream, const WorkspaceSize& size);

}  // namespace cleave
