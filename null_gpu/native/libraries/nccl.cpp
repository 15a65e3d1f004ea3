// native/libraries/nccl.cpp: NCCL; collectives end at once, with this rank's data.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

struct Communicator {
  int ranks, rank, device;
};

struct UniqueId {
  char bytes[128];
};

Communicator& of(Handle communicator) { return *static_cast<Communicator*>(communicator); }

int make(Handle* out, int ranks, int rank) {
  *out = new Communicator{ranks, rank, current_device()};
  return kSuccess;
}

Size bytes_of(int type, Size count) {
  constexpr Size kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // by ncclDataType_t
  return count * (type >= 0 && type < 12 ? kBytes[type] : 4);
}

}  // namespace

NULL_GPU_DOES(ncclGetVersion, (int* version), *version = Machine::get().settings().nccl_version)
NULL_GPU_DOES(ncclGetUniqueId, (UniqueId * id), std::memset(id, 1, sizeof *id))
NULL_GPU_GIVES(ncclCommInitRank, (Handle * out, int ranks, UniqueId, int rank),
               make(out, ranks, rank))
NULL_GPU_ALIASES(null_ncclCommInitRank, null_ncclCommInitRankConfig);
NULL_GPU_GIVES(ncclCommInitRankScalable, (Handle * out, int ranks, int rank),
               make(out, ranks, rank))

NULL_GPU_API int null_ncclCommInitAll(Handle* out, int count, int const* devices) {
  for (int rank = 0; rank < count; ++rank)
    out[rank] = new Communicator{count, rank, devices == nullptr ? rank : devices[rank]};
  return kSuccess;
}

// One rank does not know how many ranks chose the same color, so the new communicator has as many
// ranks as its parent.
NULL_GPU_GIVES(ncclCommSplit, (Handle parent, int, int key, Handle* out, void*),
               make(out, of(parent).ranks, key < of(parent).ranks ? key : 0))
NULL_GPU_DOES(ncclCommDestroy, (Handle communicator),
              delete static_cast<Communicator*>(communicator))
NULL_GPU_ALIASES(null_ncclCommDestroy, null_ncclCommAbort);
NULL_GPU_DOES(ncclCommCount, (Handle communicator, int* count), *count = of(communicator).ranks)
NULL_GPU_DOES(ncclCommUserRank, (Handle communicator, int* rank), *rank = of(communicator).rank)
NULL_GPU_DOES(ncclCommCuDevice, (Handle communicator, int* device),
              *device = of(communicator).device)
NULL_GPU_DOES(ncclCommGetAsyncError, (Handle, int* error), *error = kSuccess)
NULL_GPU_TEXTS(ncclGetErrorString)

NULL_GPU_API char const* null_ncclGetLastError(Handle) { return ""; }

NULL_GPU_DOES(ncclCommRegister, (Handle, void*, Size, Handle* handle),
              *handle = Machine::get().new_handle())

NULL_GPU_API int null_ncclMemAlloc(void** pointer, Size size) {
  Address address = 0;
  if (current_memory().allocate(size, &address) != kSuccess) return 1;  // ncclUnhandledCudaError
  *pointer = reinterpret_cast<void*>(address);
  return kSuccess;
}

NULL_GPU_API int null_ncclMemFree(void* pointer) {
  int const device = Machine::get().device_of(pointer);
  if (device < 0) return 4;  // ncclInvalidArgument
  return Machine::get().memory(device).release(reinterpret_cast<Address>(pointer)) == 0 ? 0 : 4;
}

NULL_GPU_API int null_ncclRedOpCreatePreMulSum(int* operation, void*, int, int, void*) {
  constexpr int kBuiltIn = 5;  // the number of built-in operations
  *operation = kBuiltIn + 1;
  return kSuccess;
}

// Other ranks than the root have nothing to send or to receive.
NULL_GPU_API int null_ncclAllReduce(void const* from, void* to, Size count, int type) {
  if (from != nullptr && to != nullptr) Values::get().receive(to, from, bytes_of(type, count));
  return kSuccess;
}
NULL_GPU_ALIASES(null_ncclAllReduce, null_ncclReduce, null_ncclBroadcast, null_ncclReduceScatter);

NULL_GPU_API int null_ncclAllGather(void const* from, void* to, Size count, int type,
                                    Handle communicator) {
  Size const bytes = bytes_of(type, count);
  for (int rank = 0; rank < of(communicator).ranks; ++rank)
    Values::get().receive(static_cast<char*>(to) + rank * bytes, from, bytes);
  return kSuccess;
}
