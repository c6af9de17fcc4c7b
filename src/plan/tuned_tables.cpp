#include "plan/tuned_tables.h"

namespace cleave {

std::string_view shipped_tuned_table() {
  return R"(
# Measured by graph replay over rotating inputs (cold L2), torch 2.11+cu130, driver 580, 2026-11-21.
NVIDIA H100 80GB HBM3 | 1024x1024x1024x1 tn bfloat16 bfloat16 | sm90 64x128 transposed
NVIDIA H100 80GB HBM3 | 2048x2048x2048x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H100 80GB HBM3 | 4096x4096x4096x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H100 80GB HBM3 | 8192x8192x8192x1 tn bfloat16 bfloat16 | sm90 128x192 transposed multicast 2x1
NVIDIA H100 80GB HBM3 | 1x2112x7168x1 tn bfloat16 bfloat16 | sm90 64x16 transposed cluster 2
NVIDIA H100 80GB HBM3 | 1x576x7168x1 tn bfloat16 bfloat16 | sm90 64x16 transposed cluster 6
NVIDIA H100 80GB HBM3 | 1x24576x1536x1 tn bfloat16 bfloat16 | sm90 64x16 transposed
NVIDIA H100 80GB HBM3 | 1x32768x512x1 tn bfloat16 bfloat16 | sm90 128x16 transposed
NVIDIA H100 80GB HBM3 | 1x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x16 transposed cluster 4
NVIDIA H100 80GB HBM3 | 1x4096x7168x1 tn bfloat16 bfloat16 | sm90 64x16 transposed cluster 2
NVIDIA H100 80GB HBM3 | 1x7168x2048x1 tn bfloat16 bfloat16 | sm90 64x16 transposed
NVIDIA H100 80GB HBM3 | 16x2112x7168x1 tn bfloat16 bfloat16 | sm90 64x16 transposed cluster 2
NVIDIA H100 80GB HBM3 | 16x576x7168x1 tn bfloat16 bfloat16 | sm90 64x16 transposed cluster 8
NVIDIA H100 80GB HBM3 | 16x24576x1536x1 tn bfloat16 bfloat16 | sm90 64x16 transposed
NVIDIA H100 80GB HBM3 | 16x32768x512x1 tn bfloat16 bfloat16 | sm90 128x16 transposed
NVIDIA H100 80GB HBM3 | 16x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x16 transposed cluster 4
NVIDIA H100 80GB HBM3 | 16x4096x7168x1 tn bfloat16 bfloat16 | sm90 64x16 transposed cluster 2
NVIDIA H100 80GB HBM3 | 16x7168x2048x1 tn bfloat16 bfloat16 | sm90 64x16 transposed
NVIDIA H100 80GB HBM3 | 64x2112x7168x1 tn bfloat16 bfloat16 | sm90 64x32 cluster 2
NVIDIA H100 80GB HBM3 | 64x576x7168x1 tn bfloat16 bfloat16 | sm90 64x32 cluster 5
NVIDIA H100 80GB HBM3 | 64x24576x1536x1 tn bfloat16 bfloat16 | sm90 64x64 transposed
NVIDIA H100 80GB HBM3 | 64x32768x512x1 tn bfloat16 bfloat16 | sm90 64x64 transposed
NVIDIA H100 80GB HBM3 | 64x7168x16384x1 tn bfloat16 bfloat16 | sm90 64x128
NVIDIA H100 80GB HBM3 | 64x4096x7168x1 tn bfloat16 bfloat16 | sm90 64x64 transposed cluster 2
NVIDIA H100 80GB HBM3 | 64x7168x2048x1 tn bfloat16 bfloat16 | sm90 64x64 transposed
NVIDIA H100 80GB HBM3 | 128x2112x7168x1 tn bfloat16 bfloat16 | sm90 128x32 cluster 2
NVIDIA H100 80GB HBM3 | 128x576x7168x1 tn bfloat16 bfloat16 | sm90 64x64 cluster 5
NVIDIA H100 80GB HBM3 | 128x24576x1536x1 tn bfloat16 bfloat16 | sm90 64x128 transposed
NVIDIA H100 80GB HBM3 | 128x32768x512x1 tn bfloat16 bfloat16 | sm90 64x128 transposed
NVIDIA H100 80GB HBM3 | 128x7168x16384x1 tn bfloat16 bfloat16 | sm90 64x128 transposed
NVIDIA H100 80GB HBM3 | 128x4096x7168x1 tn bfloat16 bfloat16 | sm90 64x64 transposed multicast 1x2
NVIDIA H100 80GB HBM3 | 128x7168x2048x1 tn bfloat16 bfloat16 | sm90 64x128 transposed
NVIDIA H100 80GB HBM3 | 256x2112x7168x1 tn bfloat16 bfloat16 | sm90 128x96 multicast 2x1 parallel 3
NVIDIA H100 80GB HBM3 | 256x576x7168x1 tn bfloat16 bfloat16 | sm90 128x64 multicast 2x1 parallel 6
NVIDIA H100 80GB HBM3 | 256x24576x1536x1 tn bfloat16 bfloat16 | sm90 128x128 transposed pingpong multicast 1x2
NVIDIA H100 80GB HBM3 | 256x32768x512x1 tn bfloat16 bfloat16 | sm90 128x128 transposed pingpong
NVIDIA H100 80GB HBM3 | 256x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x128 transposed multicast 1x2
NVIDIA H100 80GB HBM3 | 256x4096x7168x1 tn bfloat16 bfloat16 | sm90 128x64 transposed multicast 1x2
NVIDIA H100 80GB HBM3 | 256x7168x2048x1 tn bfloat16 bfloat16 | sm90 128x128 transposed pingpong multicast 1x2
NVIDIA H100 80GB HBM3 | 512x576x7168x1 tn bfloat16 bfloat16 | sm90 128x96 multicast 2x1 parallel 5
NVIDIA H100 80GB HBM3 | 512x24576x1536x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H100 80GB HBM3 | 512x32768x512x1 tn bfloat16 bfloat16 | sm90 128x128 transposed pingpong multicast 1x2
NVIDIA H100 80GB HBM3 | 512x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x224 multicast 2x1
NVIDIA H100 80GB HBM3 | 512x4096x7168x1 tn bfloat16 bfloat16 | sm90 128x128 transposed multicast 1x2
NVIDIA H100 80GB HBM3 | 512x7168x2048x1 tn bfloat16 bfloat16 | sm90 128x224 multicast 2x1
NVIDIA H100 80GB HBM3 | 1024x2112x7168x1 tn bfloat16 bfloat16 | sm90 128x144 multicast 2x1
NVIDIA H100 80GB HBM3 | 1024x576x7168x1 tn bfloat16 bfloat16 | sm90 128x144 multicast 1x2 parallel 4
NVIDIA H100 80GB HBM3 | 1024x24576x1536x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H100 80GB HBM3 | 1024x32768x512x1 tn bfloat16 bfloat16 | sm90 128x128 transposed pingpong multicast 1x2
NVIDIA H100 80GB HBM3 | 1024x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x224 multicast 2x1
NVIDIA H100 80GB HBM3 | 1024x4096x7168x1 tn bfloat16 bfloat16 | sm90 128x256 multicast 2x1
NVIDIA H100 80GB HBM3 | 1024x7168x2048x1 tn bfloat16 bfloat16 | sm90 128x224 multicast 1x2
NVIDIA H100 80GB HBM3 | 2048x2112x7168x1 tn bfloat16 bfloat16 | sm90 128x144 multicast 2x1
NVIDIA H100 80GB HBM3 | 2048x24576x1536x1 tn bfloat16 bfloat16 | sm90 128x256 transposed multicast 2x1
NVIDIA H100 80GB HBM3 | 2048x32768x512x1 tn bfloat16 bfloat16 | sm90 128x128 pingpong multicast 2x1
NVIDIA H100 80GB HBM3 | 2048x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x176 multicast 2x1
NVIDIA H100 80GB HBM3 | 2048x4096x7168x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H100 80GB HBM3 | 2048x7168x2048x1 tn bfloat16 bfloat16 | sm90 128x224 multicast 2x1
NVIDIA H100 80GB HBM3 | 4096x2112x7168x1 tn bfloat16 bfloat16 | sm90 128x176 multicast 2x1
NVIDIA H100 80GB HBM3 | 4096x576x7168x1 tn bfloat16 bfloat16 | sm90 128x144 multicast 1x2
NVIDIA H100 80GB HBM3 | 4096x24576x1536x1 tn bfloat16 bfloat16 | sm90 256x128 transposed multicast 1x2
NVIDIA H100 80GB HBM3 | 4096x32768x512x1 tn bfloat16 bfloat16 | sm90 128x128 pingpong multicast 2x1
NVIDIA H100 80GB HBM3 | 4096x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H100 80GB HBM3 | 4096x4096x7168x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H100 80GB HBM3 | 4096x7168x2048x1 tn bfloat16 bfloat16 | sm90 256x128
NVIDIA H100 80GB HBM3 | 128x128x16384x1 tn float16 float16 | sm90 64x32 multicast 1x2 parallel 12 clusters 4
NVIDIA H100 80GB HBM3 | 256x256x8192x1 tn float16 float16 | sm90 64x64 parallel 8
NVIDIA H100 80GB HBM3 | 64x64x65536x1 tn float16 float16 | sm90 64x64 parallel 120 clusters 8
NVIDIA H100 80GB HBM3 | 128x128x131072x1 tn float16 float16 | sm90 64x64 multicast 1x2 parallel 16
NVIDIA H100 80GB HBM3 | 512x512x32768x1 tn float16 float16 | sm90 128x128 multicast 1x2 parallel 8
NVIDIA H100 80GB HBM3 | 1024x256x16384x1 tn float16 float16 | sm90 128x64 transposed multicast 2x1 parallel 4
NVIDIA H100 80GB HBM3 | 384x384x12288x1 tn float16 float16 | sm90 128x64 multicast 1x2 parallel 7
NVIDIA H100 80GB HBM3 | 8192x8192x8192x1 tn float16 float16 | sm90 128x192 multicast 2x1
# On an H200, the same way.
NVIDIA H200 | 1024x1024x1024x1 tn bfloat16 bfloat16 | sm90 64x128
NVIDIA H200 | 4096x4096x4096x1 tn bfloat16 bfloat16 | sm90 128x256 transposed
NVIDIA H200 | 8192x8192x8192x1 tn bfloat16 bfloat16 | sm90 128x128 multicast 1x2 stream_k 1
NVIDIA H200 | 1x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x16 transposed cluster 4
NVIDIA H200 | 16x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x16 transposed cluster 4
NVIDIA H200 | 64x7168x16384x1 tn bfloat16 bfloat16 | sm90 64x64 multicast 1x2 stream_k 1
NVIDIA H200 | 128x7168x16384x1 tn bfloat16 bfloat16 | sm90 64x128 multicast 2x1
NVIDIA H200 | 4096x2112x7168x1 tn bfloat16 bfloat16 | sm90 128x176 multicast 1x2
NVIDIA H200 | 4096x576x7168x1 tn bfloat16 bfloat16 | sm90 128x144
NVIDIA H200 | 4096x24576x1536x1 tn bfloat16 bfloat16 | sm90 128x192 multicast 2x1 stream_k 1
NVIDIA H200 | 4096x32768x512x1 tn bfloat16 bfloat16 | sm90 64x256 pingpong multicast 2x1
NVIDIA H200 | 4096x7168x16384x1 tn bfloat16 bfloat16 | sm90 128x224
NVIDIA H200 | 4096x4096x7168x1 tn bfloat16 bfloat16 | sm90 128x256
NVIDIA H200 | 4096x7168x2048x1 tn bfloat16 bfloat16 | sm90 128x128 pingpong multicast 2x1
NVIDIA H200 | 512x2112x7168x1 tn bfloat16 bfloat16 | sm90 128x64 multicast 2x1
NVIDIA H200 | 2048x576x7168x1 tn bfloat16 bfloat16 | sm90 128x144 cluster 2
NVIDIA H200 | 128x128x16384x1 tn float16 float16 | sm90 64x32 transposed multicast 1x2 parallel 12 clusters 4
NVIDIA H200 | 64x64x65536x1 tn float16 float16 | sm90 64x32 multicast 1x2 parallel 60 clusters 4
NVIDIA H200 | 128x128x131072x1 tn float16 float16 | sm90 64x128 parallel 32
NVIDIA H200 | 512x512x32768x1 tn float16 float16 | sm90 128x128 multicast 2x1 parallel 8
NVIDIA H200 | 1024x256x16384x1 tn float16 float16 | sm90 128x128 transposed multicast 2x1 parallel 8
NVIDIA H200 | 384x384x12288x1 tn float16 float16 | sm90 128x64 transposed multicast 1x2 parallel 6
NVIDIA H200 | 8192x8192x8192x1 tn float16 float16 | sm90 128x128 multicast 1x2 stream_k 1
NVIDIA H200 | 4096x4096x4096x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x256 pingpong multicast 2x1
NVIDIA H200 | 8192x8192x8192x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x128 pingpong multicast 2x1
NVIDIA H200 | 16x2112x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x16 transposed cluster 2
NVIDIA H200 | 16x576x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x16 transposed cluster 6
NVIDIA H200 | 16x24576x1536x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x16 transposed
NVIDIA H200 | 16x32768x512x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x16 transposed
NVIDIA H200 | 16x7168x16384x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x16 transposed cluster 4
NVIDIA H200 | 16x4096x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x16 transposed
NVIDIA H200 | 16x7168x2048x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x16 transposed
NVIDIA H200 | 64x2112x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x64 transposed cluster 3
NVIDIA H200 | 64x576x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x32 cluster 5
NVIDIA H200 | 64x24576x1536x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x64 transposed
NVIDIA H200 | 64x32768x512x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x64 transposed
NVIDIA H200 | 64x7168x16384x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x64
NVIDIA H200 | 64x4096x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x64 transposed
NVIDIA H200 | 64x7168x2048x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x64 transposed
NVIDIA H200 | 128x2112x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x64 transposed multicast 1x2 stream_k 1
NVIDIA H200 | 128x576x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x32 cluster 5
NVIDIA H200 | 128x24576x1536x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x64
NVIDIA H200 | 128x32768x512x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x128
NVIDIA H200 | 128x7168x16384x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x128 multicast 2x1
NVIDIA H200 | 128x4096x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x64 multicast 2x1
NVIDIA H200 | 128x7168x2048x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x128 multicast 2x1
NVIDIA H200 | 4096x2112x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x176 multicast 1x2
NVIDIA H200 | 4096x576x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x144 multicast 1x2
NVIDIA H200 | 4096x24576x1536x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x128 pingpong multicast 2x1
NVIDIA H200 | 4096x32768x512x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 64x256 transposed pingpong multicast 2x1
NVIDIA H200 | 4096x7168x16384x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x128 pingpong multicast 1x2
NVIDIA H200 | 4096x4096x7168x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 256x128 transposed
NVIDIA H200 | 4096x7168x2048x1 tn float8_e4m3fn bfloat16 scaled fast | sm90 128x128 pingpong multicast 2x1
NVIDIA H200 | 4096x4096x4096x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 256x128 multicast 1x2
NVIDIA H200 | 8192x8192x8192x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 192x128
NVIDIA H200 | 1x2112x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x16 transposed cluster 3
NVIDIA H200 | 1x576x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x16 transposed cluster 8
NVIDIA H200 | 1x24576x1536x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x16 transposed
NVIDIA H200 | 1x32768x512x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 128x16 transposed
NVIDIA H200 | 1x7168x16384x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x16 transposed cluster 2
NVIDIA H200 | 1x4096x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x16 transposed cluster 2
NVIDIA H200 | 1x7168x2048x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x16 transposed
NVIDIA H200 | 64x2112x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64 cluster 3
NVIDIA H200 | 64x576x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x32 cluster 5
NVIDIA H200 | 64x24576x1536x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64
NVIDIA H200 | 64x32768x512x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x128
NVIDIA H200 | 64x7168x16384x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64
NVIDIA H200 | 64x4096x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64 cluster 2
NVIDIA H200 | 64x7168x2048x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64
NVIDIA H200 | 128x2112x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64 multicast 2x1 stream_k 1
NVIDIA H200 | 128x576x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64 cluster 5
NVIDIA H200 | 128x24576x1536x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x128 multicast 2x1
NVIDIA H200 | 128x32768x512x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 128x128
NVIDIA H200 | 128x7168x16384x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x128 multicast 2x1
NVIDIA H200 | 128x4096x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x64 multicast 2x1
NVIDIA H200 | 128x7168x2048x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 64x128 multicast 2x1
NVIDIA H200 | 4096x2112x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 192x128
NVIDIA H200 | 4096x576x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 128x144 multicast 1x2
NVIDIA H200 | 4096x24576x1536x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 192x128 multicast 2x1
NVIDIA H200 | 4096x32768x512x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 192x128 multicast 2x1
NVIDIA H200 | 4096x7168x16384x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 256x128 multicast 1x2
NVIDIA H200 | 4096x4096x7168x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 256x128 multicast 1x2
NVIDIA H200 | 4096x7168x2048x1 tn float8_e4m3fn bfloat16 blocks 1x128 | sm90 256x128 multicast 1x2
NVIDIA H200 | 4096x4096x4096x1 tn int8 bfloat16 scaled | sm90 64x256 pingpong multicast 2x1
NVIDIA H200 | 8192x8192x8192x1 tn int8 bfloat16 scaled | sm90 128x128 transposed pingpong
NVIDIA H200 | 32x4096x4096x1 tn int8 bfloat16 scaled | sm90 64x32 transposed
NVIDIA H200 | 128x4096x4096x1 tn int8 bfloat16 scaled | sm90 64x64 multicast 2x1
NVIDIA H200 | 512x4096x4096x1 tn int8 bfloat16 scaled | sm90 128x128 transposed multicast 1x2
NVIDIA H200 | 4096x7168x2048x1 tn int8 bfloat16 scaled | sm90 128x128 transposed pingpong multicast 2x1
NVIDIA H200 | 32x12288x4096x1 tn int8 bfloat16 scaled | sm90 64x32 transposed
)";
}

}  // namespace cleave
