// The structs of DLPack 1.x's C ABI that this module reads, after its public header
// (github.com/dmlc/dlpack). Declared here because the exchange API is newer than the copies of that
// header that are installed with Python packages.
#pragma once

#include <cstdint>

namespace cleave::dlpack {

struct Version {
  uint32_t major;
  uint32_t minor;
};

enum DeviceType : int32_t { kHost = 1, kCuda = 2, kCudaPinned = 3, kCudaManaged = 13 };

struct Device {
  int32_t type;
  int32_t id;
};

/// Those of types that the library multiplies are DTypeInfo's.
enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kComplex = 5, kBool = 6 };

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major and packed
  uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

inline constexpr uint64_t kReadOnly = 1;  // a bit of VersionedTensor::flags

struct VersionedTensor {
  Version version;
  void* context;
  void (*deleter)(VersionedTensor*);
  uint64_t flags;
  Tensor tensor;
};

struct ExchangeHeader {
  Version version;
  const ExchangeHeader* previous;  // an older table of the same type, or null
};

/// Found on a type as the capsule `__dlpack_c_exchange_api__`: C functions instead of Python calls.
/// They return 0, or -1 with a Python exception set.
struct ExchangeApi {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, VersionedTensor** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*to_managed)(void* object, VersionedTensor** out);
  int (*from_managed)(VersionedTensor* tensor, void** out);
  int (*view)(void* object,
              Tensor* out);  // borrows: valid until control returns to Python; may be null
  int (*current_stream)(int32_t device_type, int32_t device, void** out);
};

}  // namespace cleave::dlpack
