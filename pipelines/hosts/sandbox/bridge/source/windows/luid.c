/* A GPU's number among Windows' display adapters: Linux' driver has none (it answers 801), and
 * without one NVIDIA's run-time does not start. It is made up of the GPU's UUID: the same for each
 * process, and no adapter of Direct3D's. */
#include "nvcuda.h"

enum { LUID_SIZE = 8 };

result get_luid(unsigned char *luid, unsigned *nodes, int device)
{
    uuid id;
    if (!luid) return INVALID_VALUE;
    result error = DRIVER(cuDeviceGetUuid, id, device);
    for (int i = 0; i < LUID_SIZE && !error; i++) luid[i] = id[i];
    if (!error && nodes) *nodes = 1;
    return error;
}
