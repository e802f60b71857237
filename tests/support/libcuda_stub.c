/* Stand-in for the driver's library: enough of it for cuDNN to load and to make plans without a card.

   cuDNN loads code and asks for kernels while it makes a plan of an engine that is compiled; these
   calls succeed and give the same object for everything. All others return CUDA_ERROR_NO_DEVICE: a
   test that would run something fails. */

enum { SUCCESS = 0, NO_DEVICE = 100, DRIVER_VERSION = 13020, ATTRIBUTE = 64 };

static int object;

#define GIVES_OBJECT(name) int name(void **result) { *result = &object; return SUCCESS; }
#define SUCCEEDS(name) int name(void) { return SUCCESS; }
#define NEEDS_CARD(name) int name(void) { return NO_DEVICE; }

GIVES_OBJECT(cuLibraryLoadData)
GIVES_OBJECT(cuLibraryLoadFromFile)
GIVES_OBJECT(cuLibraryGetKernel)
GIVES_OBJECT(cuKernelGetFunction)
GIVES_OBJECT(cuModuleLoadData)
GIVES_OBJECT(cuModuleGetFunction)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuKernelSetAttribute)
int cuKernelGetAttribute(int *value) { *value = ATTRIBUTE; return SUCCESS; }
int cuDriverGetVersion(int *version) { *version = DRIVER_VERSION; return SUCCESS; }
NEEDS_CARD(cuCtxGetCurrent)
NEEDS_CARD(cuCtxGetLimit)
NEEDS_CARD(cuCtxPopCurrent)
NEEDS_CARD(cuCtxPushCurrent)
NEEDS_CARD(cuDeviceGet)
NEEDS_CARD(cuDeviceGetCount)
NEEDS_CARD(cuGetErrorName)
NEEDS_CARD(cuGetErrorString)
NEEDS_CARD(cuLaunchCooperativeKernel)
NEEDS_CARD(cuLaunchKernel)
NEEDS_CARD(cuLaunchKernelEx)
NEEDS_CARD(cuLinkAddData)
NEEDS_CARD(cuLinkComplete)
NEEDS_CARD(cuLinkCreate)
NEEDS_CARD(cuLinkDestroy)
NEEDS_CARD(cuOccupancyMaxPotentialClusterSize)
NEEDS_CARD(cuStreamGetCtx)
NEEDS_CARD(cuTensorMapEncodeIm2col)
NEEDS_CARD(cuTensorMapEncodeTiled)
