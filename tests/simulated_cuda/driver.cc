// A library by the name of the CUDA driver's (libcuda.so.1), with the one function of it that
// LibTorch looks up on the paths that the simulated device takes: autograd and pinned memory ask
// through it whether a device has a context. Any other one is missing, which LibTorch reports.

extern "C" {

// The driver's header is not included: its name for this function is what matters here.
int cuDevicePrimaryCtxGetState(int device, unsigned int* flags, int* is_active);

int cuDevicePrimaryCtxGetState(int device, unsigned int* flags, int* is_active) {
  *flags = 0;
  *is_active = device == 0 ? 1 : 0;
  return 0;
}

}  // extern "C"
