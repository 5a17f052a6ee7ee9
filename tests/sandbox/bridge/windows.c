/* What a test needs of a Windows program that Python is not: its registers, and __try. */
#include <windows.h>

unsigned long _exception_code(void); /* which GetExceptionCode is */

/* Calls a function and says which of the registers that a Windows callee must keep it did not. */
__declspec(dllexport) unsigned changed_registers(void *function, void *argument)
{
    unsigned changed;
    __asm__ volatile(
        "pushq %%rsi\n pushq %%rdi\n pushq %%rbx\n pushq %%r12\n"
        "pushq %%r13\n pushq %%r14\n pushq %%r15\n pushq %%rbp\n"
        "subq $360, %%rsp\n"
        ".irp n, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n movups %%xmm\\n, (104 + \\n * 16)(%%rsp)\n "
        ".endr\n"
        "movq %%rcx, 40(%%rsp)\n movq %%rdx, 48(%%rsp)\n"
        "movq $0x11, %%rsi\n movq $0x12, %%rdi\n movq $0x13, %%rbx\n movq $0x14, %%r12\n"
        "movq $0x15, %%r13\n movq $0x16, %%r14\n movq $0x17, %%r15\n movq $0x18, %%rbp\n"
        "pcmpeqd %%xmm6, %%xmm6\n"
        ".irp n, 7, 8, 9, 10, 11, 12, 13, 14, 15\n movaps %%xmm6, %%xmm\\n\n .endr\n"
        "movq 48(%%rsp), %%rcx\n movq 40(%%rsp), %%rax\n callq *%%rax\n"
        "xorl %%eax, %%eax\n"
        "cmpq $0x11, %%rsi\n je 1f\n orl $1, %%eax\n1: cmpq $0x12, %%rdi\n je 1f\n orl $2, %%eax\n"
        "1: cmpq $0x13, %%rbx\n je 1f\n orl $4, %%eax\n1: cmpq $0x14, %%r12\n je 1f\n orl $8, "
        "%%eax\n"
        "1: cmpq $0x15, %%r13\n je 1f\n orl $16, %%eax\n1: cmpq $0x16, %%r14\n je 1f\n orl $32, "
        "%%eax\n"
        "1: cmpq $0x17, %%r15\n je 1f\n orl $64, %%eax\n1: cmpq $0x18, %%rbp\n je 1f\n orl $128, "
        "%%eax\n"
        "1:\n"
        ".irp n, 7, 8, 9, 10, 11, 12, 13, 14, 15\n pand %%xmm\\n, %%xmm6\n .endr\n"
        "pmovmskb %%xmm6, %%ecx\n cmpl $0xffff, %%ecx\n je 1f\n orl $256, %%eax\n1:\n"
        ".irp n, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n movups (104 + \\n * 16)(%%rsp), %%xmm\\n\n "
        ".endr\n"
        "addq $360, %%rsp\n"
        "popq %%rbp\n popq %%r15\n popq %%r14\n popq %%r13\n"
        "popq %%r12\n popq %%rbx\n popq %%rdi\n popq %%rsi\n"
        : "=a"(changed), "+c"(function), "+d"(argument)
        :
        : "r8", "r9", "r10", "r11", "memory", "cc");
    return changed;
}

struct guarded {
    int (*function)(void *, void *);
    void *first, *second;
    unsigned caught; /* 0: nothing */
};

/* Calls a function under __try, and notes which exception it raised. */
__declspec(dllexport) __attribute__((noinline)) void call_guarded(struct guarded *what)
{
    __try {
        what->function(what->first, what->second);
    } __except (what->caught = _exception_code(), EXCEPTION_EXECUTE_HANDLER) {
    }
}

/* The mean time of a call, in picoseconds. */
__declspec(dllexport) long long time_calls(int (*function)(void *), void *argument, int count)
{
    LARGE_INTEGER frequency, start, end;
    QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&start);
    for (int i = 0; i < count; i++) function(argument);
    QueryPerformanceCounter(&end);
    return (end.QuadPart - start.QuadPart) * (1000000000000 / frequency.QuadPart) / count;
}

BOOL WINAPI DllMain(HINSTANCE self, DWORD reason, void *reserved)
{
    (void)self, (void)reason, (void)reserved;
    return TRUE;
}
