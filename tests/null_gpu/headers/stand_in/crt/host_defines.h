// What driver_types.h needs of a header that NVIDIA has in another package: words for its compiler.
#pragma once

#define __device_builtin__
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __location__(where)
#define __host__
#define __device__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
