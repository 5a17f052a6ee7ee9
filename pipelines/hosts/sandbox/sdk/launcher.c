/* cl.exe, link.exe and lib.exe: hand the untouched rest of the command line to zig, so that
 * quoting, response files and the variables CL and LINK work as with Microsoft's tools. */
#include "process.h"

#if defined(TOOL_CL)
#include "nvcc.h"
/* The macros: Wine's headers mark functions dllimport, which clashes with the declarations of CUDA
 * and of ours, and they lack the calling convention that CUDA's headers name. */
#define TOOL                                                                                     \
    L"clang --driver-mode=cl -fms-compatibility-version=19.40 -Wno-unused-command-line-argument " \
    L"-D_CRTIMP= -D_ACRTIMP= -D__CRTDECL=__cdecl"
/* nvcc and CUDA's headers must take this for MSVC, not for clang. */
#define NO_CLANG                                                                                 \
    L" -Wno-builtin-macro-redefined -U__clang__ -U__clang_major__ -U__clang_minor__ "             \
    L"-U__clang_patchlevel__ -U__clang_version__ -I"
/* What cudafe++ reads: clang would answer these questions for itself, and NVIDIA's headers would
 * hand cudafe++ clang's built-ins. An error in a header that a line marker calls a system's ends
 * cudafe++ without a word (0xC0000409); a #line directive calls none so. */
#define FOR_CUDAFE                                                                               \
    L" /clang:-fuse-line-directives -U__cpp_static_call_operator -U__is_identifier -U__has_warning "     \
    L"-U__has_constexpr_builtin -U__has_c_attribute -U__has_embed -U__has_builtin "               \
    L"-U__has_feature -U__has_extension -U__has_attribute -U__has_declspec_attribute "            \
    L"-U__is_target_arch -U__is_target_os -U__is_target_vendor -U__is_target_environment "        \
    L"-U__building_module"
/* What cudafe++ wrote: clang drops the static, referred to by nobody, that registers the device
 * code when the program starts. The result would be a green build without any. */
#define KEEP_DEVICE_CODE                                                                         \
    L" -D__dummy_static_init__sti____cudaRegisterAll="                                           \
    L"__dummy_static_init__sti____cudaRegisterAll[[gnu::used]]"
static const char banner[] =
    "Microsoft (R) C/C++ Optimizing Compiler Version 19.40.33811 for x64\r\n"
    "(the sandbox's stand-in: clang in MSVC mode, not Microsoft's compiler)\r\n";

static wchar_t *flags(wchar_t *end, const wchar_t *rest)
{
    static wchar_t tools[MAX_PATH]; /* ...\VC\Tools\MSVC\VERSION, from its bin\Hostx64\x64\cl.exe */
    DWORD length = GetModuleFileNameW(NULL, tools, MAX_PATH);
    for (int up = 0; up < 4; up++)
        while (length && tools[--length] != '\\') {
        }
    tools[length] = 0;
    enum of_nvcc run = run_of_nvcc(rest);
    if (run != NOT_NVCC) { /* its headers come first, also before libc++'s that -I names */
        /* cudafe++ also takes for a system's what is below Visual Studio's directory, which nvcc names
         * it (--compiler_bindir). By another way there it prints the error, but it writes what it has
         * read in its own words, which do not always compile: for who looks for an error. */
        const wchar_t *ours = GetEnvironmentVariableW(L"WCW_NAME_ERRORS", NULL, 0) ? L"C:\\stand-in" : tools;
        end = append(end, NO_CLANG);
        /* What cudafe++ can read of libc++; in C++14, its default, it cannot. */
        if (GetEnvironmentVariableW(L"WCW_LIBCXX", NULL, 0) && is_newer_than_cxx14(rest)) {
            end = append(append(append(end, ours), L"\\nvcc -I"), ours);
            end = append(append(append(end, L"\\libcxx\\include -I"), ours), L"\\libcxx\\c");
            end = append(end, L" -w /FIlibrary.h"); /* of what cudafe++ made of it, nobody's code */
        } else
            end = append(append(end, ours), L"\\include");
        return append(end, run == PREPROCESSES ? FOR_CUDAFE : KEEP_DEVICE_CODE);
    }
    /* libc++, where it is installed, and clang's own headers; /permissive- looks names up in
     * templates as the standard says, without which torch's stable headers take other overloads:
     * https://github.com/pytorch/pytorch/pull/168155 */
    end = append(append(append(end, L" /permissive- -imsvc"), tools), L"\\libcxx\\include -imsvc");
    end = append(append(end, tools), L"\\libcxx\\c");
    return append(end, L" -imsvcC:\\zig\\lib\\include");
}
#elif defined(TOOL_LINK)
#define TOOL L"lld-link"
#elif defined(TOOL_LIB)
#define TOOL L"lib"
#endif

void start(void)
{
    const wchar_t *rest = GetCommandLineW();
    for (int quoted = 0; *rest && (quoted || (*rest != ' ' && *rest != '\t')); rest++)
        if (*rest == '"') quoted = !quoted;
    while (*rest == ' ' || *rest == '\t') rest++;
#ifdef TOOL_CL
    if (!*rest) { /* a bare "cl" prints its banner: how setuptools and nvcc ask for the version */
        DWORD written;
        WriteFile(GetStdHandle(STD_ERROR_HANDLE), banner, sizeof banner - 1, &written, NULL);
        ExitProcess(0);
    }
#endif
    wchar_t *end = append(line, L"C:\\zig\\zig.exe " TOOL);
#ifdef TOOL_CL
    end = flags(end, rest);
#endif
    append(append(end, L" "), rest);
    run_and_exit(0);
}
