/* The hybrid run-time: CUDA 13's cudart is only a loader on Windows, and asks the driver for the
 * rest, which the display driver brings as nvcudart_hybrid64.dll. Linux' driver has none; runtime.c
 * says where ours comes from. (The toolkit's cudart64_13.dll is no substitute: it asks here too.) */
#include "nvcuda.h"

static result load_runtime(const char *name, void **function, void **token)
{
    if (!name || !function || !token) return INVALID_VALUE;
    HMODULE module = LoadLibraryExA(name, NULL, LOAD_LIBRARY_SEARCH_SYSTEM32);
    if (!module) return FILE_NOT_FOUND;
    *function = GetProcAddress(module, "__cudaGetProcAddress");
    *token = module;
    if (*function) return 0;
    FreeLibrary(module);
    return FILE_NOT_FOUND;
}

static result free_runtime(void *token) { return FreeLibrary(token) ? 0 : INVALID_HANDLE; }

const void *const hybrid_table[3] = {(void *)24, load_runtime, free_runtime};
