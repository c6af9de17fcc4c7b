"""Products over ranks, and experts that are dealt to them, on the GPUs of one host.

.            products, by all ways (torchrun -m bench.distributed)
.experts     a layer of experts, by each dispatcher (torchrun -m bench.distributed.experts)
.fit         what calls add to their products, from what was measured
.report, .plot   what was measured, as files and as a picture
"""

import os

# Before torch is imported: NVLink multicast stays off, whoever would use it.
os.environ |= {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
