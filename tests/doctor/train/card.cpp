// A CUDA device that does nothing, for a PyTorch without CUDA: what the autograd engine asks of one.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
using namespace c10;

struct Guard final : impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, getDevice()); }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

struct CUDAHooks final : at::CUDAHooksInterface {  // by this name the registry looks for it
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex current_device() const override { return 0; }
  int getNumGPUs() const override { return 1; }
  bool isPinnedPtr(const void*) const override { return false; }
  Allocator* getPinnedMemoryAllocator() const override { return GetCPUAllocator(); }
};
}  // namespace

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}
