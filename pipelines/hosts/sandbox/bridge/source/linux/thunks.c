/* Calls across the border, both ways, without knowledge of what is called: integers and pointers
 * are handed on, as many as any function of the driver takes.
 *
 * A thunk only jumps: it puts its entry's address into r11 and goes to the code that the entry
 * names. So no thunk is ever on the stack, and an exception in the driver (which Wine makes of a
 * SIGSEGV) is unwound through the code below by its CFI, up to the __except of a Windows caller.
 * The driver runs on the Windows thread's own stack: Wine's for system calls is too small for it. */
#include "linux.h"

/* Registers that a Windows callee keeps and a Linux one does not: rdi, rsi, xmm6 to xmm15. Above
 * %rbp: the caller's rbp, the return address, the home space of four arguments, the fifth... */
__asm__(
    ".macro ENTER\n"
    ".cfi_startproc\n"
    "pushq %rbp\n .cfi_def_cfa_offset 16\n .cfi_offset %rbp, -16\n"
    "movq %rsp, %rbp\n .cfi_def_cfa_register %rbp\n"
    "pushq %rdi\n .cfi_offset %rdi, -24\n"
    "pushq %rsi\n .cfi_offset %rsi, -32\n"
    "subq $256, %rsp\n" /* 12 arguments, then the registers */
    ".irp n, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "movaps %xmm\\n, (\\n * 16)(%rsp)\n .cfi_offset %xmm\\n, \\n * 16 - 288\n"
    ".endr\n"
    ".endm\n"
    ".macro LEAVE\n"
    ".irp n, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
    "movaps (\\n * 16)(%rsp), %xmm\\n\n"
    ".endr\n"
    "movq -8(%rbp), %rdi\n"
    "movq -16(%rbp), %rsi\n"
    "leave\n .cfi_def_cfa %rsp, 8\n"
    "ret\n .cfi_endproc\n"
    ".endm\n"
    ".macro THIS_IS_A_WINDOWS_THREAD\n"
    "movq windows_thread@gottpoff(%rip), %rax\n"
    "movl $1, %fs:(%rax)\n"
    ".endm\n"

    ".text\n .p2align 4\n .hidden bridge_plain\n .globl bridge_plain\n"
    ".type bridge_plain, @function\n"
    "bridge_plain:\n"
    "ENTER\n"
    ".irp n, 0, 1, 2, 3, 4, 5\n" /* arguments 7 to 18 */
    "movups (64 + \\n * 16)(%rbp), %xmm0\n movaps %xmm0, (\\n * 16)(%rsp)\n"
    ".endr\n"
    "movq %rcx, %rdi\n movq %rdx, %rsi\n movq %r8, %rdx\n movq %r9, %rcx\n"
    "movq 48(%rbp), %r8\n movq 56(%rbp), %r9\n"
    "THIS_IS_A_WINDOWS_THREAD\n"
    "call *8(%r11)\n"
    "LEAVE\n"
    ".size bridge_plain, . - bridge_plain\n"

    ".p2align 4\n .hidden bridge_special\n .globl bridge_special\n"
    ".type bridge_special, @function\n"
    "bridge_special:\n"
    "ENTER\n"
    "movq %rcx, 16(%rbp)\n movq %rdx, 24(%rbp)\n movq %r8, 32(%rbp)\n movq %r9, 40(%rbp)\n"
    "movq %xmm0, (%rsp)\n movq %xmm1, 8(%rsp)\n movq %xmm2, 16(%rsp)\n movq %xmm3, 24(%rsp)\n"
    "THIS_IS_A_WINDOWS_THREAD\n"
    "leaq 16(%rbp), %rdi\n movq %r11, %rsi\n movq %rsp, %rdx\n"
    "call special\n" /* special.c: (arguments, entry, the first four as floating-point numbers) */
    "LEAVE\n"
    ".size bridge_special, . - bridge_special\n"

    /* From the driver: its six register arguments stay where they are, the function is the seventh. */
    ".p2align 4\n .hidden bridge_callback\n .globl bridge_callback\n"
    ".type bridge_callback, @function\n"
    "bridge_callback:\n"
    ".cfi_startproc\n"
    "pushq 8(%r11)\n .cfi_adjust_cfa_offset 8\n"
    "call call_back\n" /* callbacks.c */
    "addq $8, %rsp\n .cfi_adjust_cfa_offset -8\n"
    "ret\n .cfi_endproc\n"
    ".size bridge_callback, . - bridge_callback\n");

extern void bridge_plain(void) HIDDEN, bridge_special(void) HIDDEN, bridge_callback(void) HIDDEN;

/* -- where they are -------------------------------------------------------------------------- */

/* A hash table that only grows; entry n's thunk is thunk n. A program has some hundred functions of
 * the driver's and as many callbacks as it makes functions for: Python's ctypes makes many. */
enum { ENTRIES = 1 << 16, FULL = ENTRIES / 4 * 3, READ_WRITE = 3, EXECUTE = 4, PRIVATE = 0x22 };

typedef unsigned char thunk[16];

static struct book {
    struct entry *entries;
    thunk *thunks;
    int used, warned;
} to_driver, to_windows;
static char lock;

static int make_room(struct book *book)
{
    book->entries = mmap(0, ENTRIES * sizeof(struct entry), READ_WRITE, PRIVATE, -1, 0);
    book->thunks = mmap(0, ENTRIES * sizeof(thunk), READ_WRITE | EXECUTE, PRIVATE, -1, 0);
    return (long)book->entries != -1 && (long)book->thunks != -1;
}

int make_room_for_thunks(void) { return make_room(&to_driver) && make_room(&to_windows); }

static void *thunk_for(struct book *book, void *code, void *real, const struct special *special,
                       const char *name)
{
    u64 at = ((u64)real + (u64)special * 31) * 0x9e3779b97f4a7c15u >> 48;
    struct entry *entry = &book->entries[at];

    while (entry->real && (entry->real != real || entry->special != special))
        entry = &book->entries[at = (at + 1) % ENTRIES];
    if (!entry->real) {
        if (book->used == FULL) return 0;
        book->used++;
        entry->code = code;
        entry->real = real;
        entry->special = special;
        snprintf(entry->name, sizeof entry->name, "%s", name);
        memcpy(book->thunks[at], "\x49\xbb", 2); /* movabs $entry, %r11 */
        memcpy(book->thunks[at] + 2, &entry, 8);
        memcpy(book->thunks[at] + 10, "\x41\xff\x23", 3); /* jmp *(%r11) */
    }
    return book->thunks[at];
}

static void *shared_thunk(struct book *book, void *code, void *real, const struct special *special,
                          const char *name)
{
    acquire(&lock);
    void *found = thunk_for(book, code, real, special, name);
    int tell = !found && !book->warned;
    if (tell) book->warned = 1;
    release(&lock);
    if (tell) warn("no room left for %s: there are %d already", name, FULL);
    return found;
}

void *for_windows(void *real, const struct special *special, const char *name)
{
    void *code = special ? (void *)bridge_special : (void *)bridge_plain;
    return shared_thunk(&to_driver, code, real, special, name);
}

void *for_driver(void *target)
{
    if (!have_workers()) return 0;
    return shared_thunk(&to_windows, (void *)bridge_callback, target, 0, "callbacks");
}

void call_it_plainly(struct entry *entry)
{
    __atomic_store_n(&entry->code, (void *)bridge_plain, __ATOMIC_RELEASE);
}

void *windows_function(void *thunk)
{
    u64 at = ((u64)thunk - (u64)to_windows.thunks) / 16;
    return at < ENTRIES ? to_windows.entries[at].real : thunk;
}
