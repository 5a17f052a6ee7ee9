/* The Windows half: a DLL of Wine's own kind ("builtin") that exports the driver's functions and
 * lets the Linux half, which Wine finds by its name, fill them in. Where there is no driver it does
 * not load, as if it were not there.
 *
 * Built as nvcuda.dll (-DNVCUDA) and as nvml.dll; NAMES holds a line X(name) for each function. */
#include "nvcuda.h"

#ifdef NVCUDA
#define LIBRARY "libcuda.so.1"
#define ESSENTIAL "cuInit"
#define NAMES "nvcuda.names"
#define ERRORS {500, 801, 2} /* CUDA_ERROR_NOT_FOUND, _NOT_SUPPORTED, _OUT_OF_MEMORY */
#else
#define LIBRARY "libnvidia-ml.so.1"
#define ESSENTIAL "nvmlInit_v2"
#define NAMES "nvml.names"
#define ERRORS {13, 3, 20} /* NVML_ERROR_FUNCTION_NOT_FOUND, _NOT_SUPPORTED, _MEMORY */
#endif

enum { UNIX_FUNCTIONS = 1000 /* MemoryWineUnixFuncs */, PATH_SIZE = 1024 };

#define X(name)                                                                                    \
    void *to_##name;                                                                               \
    __declspec(dllexport) __attribute__((naked)) void name(void)                                   \
    {                                                                                              \
        __asm__("jmp *to_" #name "(%rip)");                                                        \
    }
#include NAMES
#undef X

static struct slot slots[] = {
#define X(name) {#name, &to_##name},
#include NAMES
#undef X
    {0, 0}};

#ifdef NVCUDA
struct replacement replaced[] = {{"cuInit", init, 0},
                                 {"cuGetExportTable", get_export_table, 0},
                                 {"cuDeviceGetLuid", get_luid, 0},
                                 {0, 0, 0}};
#else
static struct replacement replaced[] = {{0, 0, 0}};
static void thread_ends(void) {}
#endif

struct bridge bridge;

/* So that whoever tests can tell this from NVIDIA's own DLL, and say so. */
__declspec(dllexport) const char *driver_bridge(void) { return "1 " LIBRARY; }

/* -- what the Linux half asks for -------------------------------------------------------------- */

static DWORD WINAPI worker(void *unused)
{
    (void)unused;
    bridge.serve();
    return 0;
}

static int start_worker(void)
{
    HANDLE thread = CreateThread(NULL, 0, worker, NULL, 0, NULL);
    return thread && CloseHandle(thread);
}

char *unix_path(const char *path)
{
    WCHAR wide[PATH_SIZE];
    char *(*convert)(const WCHAR *) =
        (void *)GetProcAddress(GetModuleHandleA("kernel32"), "wine_get_unix_file_name");
    if (!convert || !MultiByteToWideChar(CP_ACP, 0, path, -1, wide, PATH_SIZE)) return NULL;
    return convert(wide);
}

void free_path(char *path) { HeapFree(GetProcessHeap(), 0, path); }

static int is_code(const void *address)
{
    MEMORY_BASIC_INFORMATION about;
    return VirtualQuery(address, &about, sizeof about) && about.State == MEM_COMMIT &&
           about.Protect &
               (PAGE_EXECUTE | PAGE_EXECUTE_READ | PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY);
}

/* -- joining the halves ------------------------------------------------------------------------ */

/* A warning where there is no Linux half to write it: through Wine's name for files of Unix. */
static void warn(const char *text)
{
    char path[PATH_SIZE];
    DWORD written, prefix = lstrlenA(lstrcpyA(path, "\\\\?\\unix"));
    DWORD size = GetEnvironmentVariableA("WCW_BRIDGE_LOG", path + prefix, PATH_SIZE - prefix);
    if (!size || size >= PATH_SIZE - prefix) return;
    HANDLE file = CreateFileA(path, FILE_APPEND_DATA, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL,
                              OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) return;
    WriteFile(file, text, lstrlenA(text), &written, NULL);
    CloseHandle(file);
}

static BOOL join(HINSTANCE self)
{
    HMODULE ntdll = GetModuleHandleA("ntdll");
    LONG(WINAPI * query)(HANDLE, void *, int, void *, SIZE_T, SIZE_T *) =
        (void *)GetProcAddress(ntdll, "NtQueryVirtualMemory");
    LONG(WINAPI * unix_call)(u64, unsigned, void *) =
        (void *)GetProcAddress(ntdll, "__wine_unix_call");
    void **dispatcher = (void **)GetProcAddress(ntdll, "__wine_unix_call_dispatcher");
    u64 library;

    if (dispatcher) unix_call = *dispatcher;
    if (!unix_call || !query ||
        query(GetCurrentProcess(), self, UNIX_FUNCTIONS, &library, sizeof library, NULL)) {
        warn(LIBRARY ": the bridge has no Linux half: Wine found none in WINEDLLPATH\n");
        return FALSE;
    }
    bridge = (struct bridge){.library = LIBRARY,
                             .essential = ESSENTIAL,
                             .slots = slots,
                             .replacements = replaced,
                             .errors = ERRORS,
                             .start_worker = start_worker,
                             .unix_path = unix_path,
                             .free_path = free_path,
                             .is_code = is_code};
    if (unix_call(library, 0, &bridge) || bridge.connect(&bridge)) return FALSE;
    /* For ever: the driver knows callbacks, and the application functions, that are in here. */
    return GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_PIN |
                                  GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS,
                              (const char *)join, &self);
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, void *process_ends)
{
    if (reason == DLL_PROCESS_ATTACH) return join(self);
    if (reason == DLL_THREAD_DETACH) thread_ends();
    if (reason == DLL_PROCESS_DETACH && process_ends && bridge.end) bridge.end();
    return TRUE;
}
