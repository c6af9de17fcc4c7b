// A libnvrtc whose kernels are empty: what they are launched with is what counts.
#include <nvrtc.h>

#include <cstdlib>
#include <cstring>

namespace {
constexpr char kCubin[64] = "\177ELF\2";  // and no section
}

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult) {
  return "an error of the fake compiler";
}
nvrtcResult nvrtcVersion(int* major, int* minor) {
  const char* const version = std::getenv("FAKE_NVRTC_VERSION");  // as cudaRuntimeGetVersion has them: 12010
  const int number = version ? std::atoi(version) : 13000;
  *major = number / 1000;
  *minor = number % 1000 / 10;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int, const char* const*,
                               const char* const*) {
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) {
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t* size) {
  *size = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* log) {
  *log = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, size_t* size) {
  *size = sizeof(kCubin);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* cubin) {
  std::memcpy(cubin, kCubin, sizeof(kCubin));
  return NVRTC_SUCCESS;
}
}
