// tests/stand_in/torch_calls/old_torch.cpp: the exceptions of PyTorch 2.5 to 2.12.
// SPDX-License-Identifier: Apache-2.0
//
// Compiled twice: with CUDA_PART, libc10_cuda.so, which has the out-of-memory error; without,
// libc10.so, which has its base. Up to 2.5, both have the std::string of before C++11.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#define EXPORT __attribute__((visibility("default")))

namespace c10 {

struct SourceLocation {
  char const* function;
  char const* file;
  std::uint32_t line;
};

class EXPORT Error : public std::exception {
 public:
  Error(SourceLocation where, std::string text);
  ~Error() override;
  char const* what() const noexcept override;

 private:
  std::string text_;
};

class EXPORT OutOfMemoryError : public Error {
 public:
  using Error::Error;
  ~OutOfMemoryError() override;
};

#ifdef CUDA_PART
OutOfMemoryError::~OutOfMemoryError() = default;
#else
Error::Error(SourceLocation, std::string text) : text_(std::move(text)) {}
Error::~Error() = default;
char const* Error::what() const noexcept { return text_.c_str(); }
#endif

}  // namespace c10

#ifdef CUDA_PART
// As in calls.cpp.
extern "C" EXPORT int what_is_thrown(void* (*alloc)(std::ptrdiff_t, int, void*),
                                     std::ptrdiff_t size, char* said, std::size_t room) {
  try {
    alloc(size, 0, nullptr);
    return 0;
  } catch (c10::OutOfMemoryError const& error) {
    std::snprintf(said, room, "%s", error.what());
    return 1;
  } catch (std::exception const& error) {
    std::snprintf(said, room, "%s", error.what());
    return 2;
  }
}
#endif
