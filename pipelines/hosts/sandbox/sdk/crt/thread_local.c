/* Thread-local variables: the directory of the image that the loader reads, C++'s initialisers, run
 * in each thread, and destructors, run when it ends. */

typedef void(__cdecl *procedure)(void);
typedef void(__stdcall *tls_callback)(void *module, unsigned long reason, void *reserved);

__declspec(dllimport) void *malloc(unsigned long long);
__declspec(dllimport) void free(void *);

/* The linker sorts sections by name: what compilers emit lands between these markers. */
#pragma section(".tls", long, read, write)
#pragma section(".tls$ZZZ", long, read, write)
#pragma section(".CRT$XDA", long, read)
#pragma section(".CRT$XDZ", long, read)
#pragma section(".CRT$XLA", long, read)
#pragma section(".CRT$XLC", long, read)
#pragma section(".CRT$XLZ", long, read)
#pragma section(".rdata$T", long, read)
__declspec(allocate(".tls")) char _tls_start = 0;
__declspec(allocate(".tls$ZZZ")) char _tls_end = 0;
__declspec(allocate(".CRT$XDA")) procedure first_initialiser[] = {0};
__declspec(allocate(".CRT$XDZ")) procedure last_initialiser[] = {0};
__declspec(allocate(".CRT$XLA")) tls_callback first_callback[] = {0};
__declspec(allocate(".CRT$XLZ")) tls_callback last_callback[] = {0};

unsigned long _tls_index = 0;
/* IMAGE_TLS_DIRECTORY64 */
struct tls_directory {
    void *start, *end;
    unsigned long *index;
    tls_callback *callbacks;
    unsigned long zero_fill, characteristics;
};
extern const struct tls_directory _tls_used;
__declspec(allocate(".rdata$T")) const struct tls_directory _tls_used = {
    &_tls_start, &_tls_end, &_tls_index, first_callback + 1, 0, 0};
#pragma comment(linker, "/include:_tls_used")

/* Compilers test it before they use a thread_local: this thread may be older than the DLL. */
__declspec(thread) char __tls_guard = 0;
static __declspec(thread) struct at_end {
    struct at_end *next;
    procedure call;
} *last_at_end = 0;

void __dyn_tls_on_demand_init(void)
{
    if (__tls_guard) return;
    __tls_guard = 1;
    for (procedure *call = first_initialiser + 1; call < last_initialiser; call++)
        if (*call) (*call)();
}

/* Register a destructor of a thread_local; what is not 0 means that there is no memory. */
int __tlregdtor(procedure call)
{
    struct at_end *entry = malloc(sizeof *entry);
    if (!entry) return -1;
    entry->next = last_at_end;
    entry->call = call;
    last_at_end = entry;
    return 0;
}

/* Objects with a thread_local name this function, so that the linker takes this one along. */
void __stdcall __dyn_tls_init(void *module, unsigned long reason, void *reserved)
{
    enum { PROCESS_ENDS, PROCESS_BEGINS, THREAD_BEGINS, THREAD_ENDS };
    (void)module, (void)reserved;
    if (reason == PROCESS_BEGINS || reason == THREAD_BEGINS) __dyn_tls_on_demand_init();
    if (reason != PROCESS_ENDS && reason != THREAD_ENDS) return;
    while (last_at_end) {
        struct at_end *entry = last_at_end;
        last_at_end = entry->next;
        entry->call();
        free(entry);
    }
}
__declspec(allocate(".CRT$XLC")) tls_callback our_callback = __dyn_tls_init;
