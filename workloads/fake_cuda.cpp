// SPDX-License-Identifier: Apache-2.0
// Gives a CPU-only libtorch a "cuda" device that computes nothing, for fake tensors.
//
// Autograd, checkpointing and attention query the device's guard, its hooks and a stub that selects
// a kernel, and the dispatcher queries whether a kernel exists. A CPU build has none of these, so
// this file provides minimal versions. It must be loaded before torch is imported, because the
// hooks are looked up once.

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/transformers/attention.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

// One device, cuda:0, with one stream on which all work is always finished.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  static Device device() { return {DeviceType::CUDA, 0}; }
  static Stream stream() { return Stream(Stream::DEFAULT, device()); }

  Device exchangeDevice(Device) const override { return device(); }
  Device getDevice() const override { return device(); }
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream getDefaultStream(Device) const override { return stream(); }
  Stream getNewStream(Device, int) const override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  void record(void**, Stream const&, DeviceIndex, c10::EventFlag) const override {}
  void block(void*, Stream const&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(DeviceIndex) const override {}
};

// Reports CUDA as built, so that autograd treats cuda as an accelerator, but as not available, so
// that nothing initializes it.
struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return false; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
};

// The values of at::native's SDPBackend.
enum Attention : int64_t { math = 0, flash = 1, efficient = 2 };

// The attention that a data-center GPU (compute capability 8.0 or later) would run, among those
// that the program has not disabled.
int64_t choose_attention(at::Tensor const& query, at::Tensor const& key, at::Tensor const& value,
                         std::optional<at::Tensor> const& mask, double /*dropout*/, bool /*causal*/,
                         std::optional<double> /*scale*/, bool grouped) {
  auto const type = query.scalar_type();
  bool const half = type == at::kHalf || type == at::kBFloat16;
  bool const masked = mask.has_value() && mask->defined();
  bool const may_flash = at::globalContext().userEnabledFlashSDP();
  bool const may_efficient = at::globalContext().userEnabledMemEfficientSDP();
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return math;
  bool const narrow = query.size(-1) <= 256 && query.size(-1) == value.size(-1);
  if (may_flash && half && !masked && narrow) return flash;
  bool const fewer_key_heads = grouped && query.size(1) != key.size(1);
  if (may_efficient && (half || type == at::kFloat) && !fewer_key_heads) return efficient;
  return math;
}

[[maybe_unused]] bool const attention_chosen_here =
    (at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&choose_attention), true);

// Fake tensors never reach a kernel.
void refuse(c10::OperatorHandle const& operation, torch::jit::Stack*) {
  TORCH_CHECK(false, "the fake cuda device does not compute ", operation.schema().name());
}

}  // namespace

// Operators that have a kernel on CUDA and would otherwise be decomposed into other operators, with
// blocks of their own. (Other decomposed operators have no CUDA kernel, or do not need to be
// chosen.)
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (auto const* name : {"_fused_rms_norm", "mish_backward", "silu_backward"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse>());
  }
}

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}
namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)
}
