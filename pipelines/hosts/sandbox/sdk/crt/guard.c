/* Control Flow Guard where nothing guards: code that was compiled with /guard:cf calls through these
 * two. Windows puts its own functions there in a program that says that it wants them, which none of
 * the sandbox's does. CUDA's cudart.lib is compiled so from 13.2 on.
 * https://learn.microsoft.com/en-us/windows/win32/secbp/control-flow-guard */

/* The address to go on to is in rax. */
__attribute__((naked)) static void dispatch(void) { __asm__("jmpq *%rax"); }

/* The address to look at is in rcx; every register is kept. */
__attribute__((naked)) static void check(void) { __asm__("retq"); }

void (*__guard_dispatch_icall_fptr)(void) = dispatch;
void (*__guard_check_icall_fptr)(void) = check;
